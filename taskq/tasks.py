"""Registered tasks: a function, its options, and how its arguments become a payload and back."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NotRequired, ParamSpec, TypeVar

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from taskq import codec
from taskq.calls import check_priority, delay_to_ms
from taskq.context import Context
from taskq.errors import ConfigError, InvalidInput
from taskq.ids import check_job_type, check_queue
from taskq.retry import Backoff

_typed_dict: Any = TypedDict  # made from a signature, at run time
P = ParamSpec("P")
R = TypeVar("R")
Executor = Literal["async", "thread", "process"]

DEFAULT_TIMEOUT_SECONDS = 3600.0
DEFAULT_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How the jobs of a task are run, unless a submission says otherwise.

    ``timeout`` in seconds (0: none); ``expires`` seconds a job may wait; ``result_ttl`` seconds the result
    is kept (None: as the queue's retention says); ``executor`` None chooses by the function's kind;
    ``memory_mb`` MiB that a job in a process of its own (with all it starts) may use before it is killed.
    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    expires: float | None = None
    result_ttl: float | None = None
    keep_payload: bool = False
    executor: Executor | None = None
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        check_queue(self.queue)
        check_priority(self.priority)
        attempts: object = self.max_attempts
        if type(attempts) is not int or not 1 <= attempts <= 1_000_000:
            raise InvalidInput("max_attempts must be from 1 to 1,000,000", field="max_attempts")
        if not isinstance(self.backoff, Backoff):
            raise InvalidInput("backoff must be a taskq.Backoff", field="backoff")
        for name in ("timeout", "expires", "result_ttl"):
            value = getattr(self, name)
            if value is not None:
                delay_to_ms(value, name)
        if self.executor not in (None, "async", "thread", "process"):
            raise InvalidInput("executor must be 'async', 'thread' or 'process'", field="executor")
        if self.memory_mb is not None and (self.memory_mb < 1 or self.executor != "process"):
            raise InvalidInput(
                "memory_mb needs executor='process' and at least 1", field="memory_mb"
            )


class Task(Generic[P, R]):
    """A registered handler. Calling it just calls the function; ``taskq.app`` adds submission."""

    def __init__(self, func: Callable[..., Any], name: str, options: TaskOptions) -> None:
        self.func = func
        self.name = check_job_type(name)
        self.is_async = inspect.iscoroutinefunction(func)
        executor = options.executor or ("async" if self.is_async else "thread")
        if executor != "process" and self.is_async != (executor == "async"):
            kind = "a coroutine function" if self.is_async else "a plain function"
            raise ConfigError(
                f"task {name!r} is {kind}: it cannot run on the {executor!r} executor"
            )
        self.defaults = replace(options, executor=executor)
        self.parameters = Parameters(func, name)
        self.payload_schema: Callable[[], dict[str, Any]] = self.parameters.schema
        """Makes the JSON Schema of the payload that workers publish."""
        self.__doc__ = func.__doc__
        self.__wrapped__ = func

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Parameters:
    """The arguments of a task's function: to JSON when submitting, from JSON when running."""

    def __init__(self, func: Callable[..., Any], name: str) -> None:
        self.signature = inspect.signature(func)
        try:
            hints = typing.get_type_hints(func, include_extras=True)
        except Exception as error:
            raise ConfigError(f"the type hints of task {name!r} cannot be read: {error}") from error
        self.context_name: str | None = None
        self._rest_name: str | None = None
        fields: dict[str, Any] = {}
        for parameter in self.signature.parameters.values():
            hint = hints.get(parameter.name, Any)
            if _is_context(hint):
                self.context_name = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._rest_name = parameter.name
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ConfigError(
                    f"task {name!r}: parameter {parameter.name!r} has no name in a payload; "
                    "tasks take named parameters only"
                )
            else:
                fields[parameter.name] = (
                    hint if parameter.default is parameter.empty else NotRequired[hint]
                )
        self._fields = fields
        self._bindable = self.signature.replace(
            parameters=[
                p for p in self.signature.parameters.values() if p.name != self.context_name
            ]
        )
        self._adapter = self._make_adapter(name) if fields or self._rest_name else None
        self._result = _result_adapter(hints.get("return", Any))

    def _make_adapter(self, name: str) -> "TypeAdapter[dict[str, Any]]":
        config = ConfigDict(
            extra="allow" if self._rest_name else "forbid", arbitrary_types_allowed=True
        )
        shape: Any = _typed_dict(name, self._fields)
        shape.__pydantic_config__ = config
        try:
            return TypeAdapter(shape)
        except (PydanticUserError, TypeError, NameError) as error:
            raise ConfigError(f"the type hints of task {name!r} cannot be used: {error}") from error

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Arguments of a submission as a JSON payload. Raises ``InvalidInput``."""
        try:
            values = self.named(args, kwargs)
        except TypeError as error:
            raise InvalidInput(f"arguments do not fit the task: {error}", field="payload") from None
        return codec.dumps(values, default=codec.plain)

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name, the context left out. Raises ``TypeError`` like a call."""
        values = dict(self._bindable.bind(*args, **kwargs).arguments)
        if self._rest_name is not None:
            values.update(values.pop(self._rest_name, {}))
        return values

    def load(self, payload: Any) -> dict[str, Any]:
        """Keyword arguments from a decoded payload. Raises ``InvalidInput`` naming each misfit."""
        if not isinstance(payload, dict):
            raise InvalidInput(
                f"the payload must be a JSON object of named arguments, not {type(payload).__name__}",
                field="payload",
            )
        if self._adapter is None:
            if payload:
                raise InvalidInput(f"unknown argument {next(iter(payload))!r}", field="payload")
            return {}
        try:
            return self._adapter.validate_python(payload)
        except ValidationError as error:
            texts = [
                f"{'.'.join(str(part) for part in e['loc']) or 'payload'}: {e['msg']}"
                for e in error.errors(include_url=False, include_context=False, include_input=False)
            ]
            raise InvalidInput("; ".join(texts[:5]), field="payload") from None

    def load_result(self, value: Any) -> Any:
        """A result as the function's hint says, or as JSON gives it where the two do not fit."""
        if self._result is None:
            return value
        try:
            return self._result.validate_python(value)
        except ValidationError:
            return value

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the payload."""
        if self._adapter is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        try:
            return self._adapter.json_schema()
        except PydanticUserError:
            return {"type": "object"}


_JSON_TYPES = (Any, None, type(None), bool, int, float, str, dict, list, object)


def _result_adapter(hint: Any) -> "TypeAdapter[Any] | None":
    """What turns JSON into the hinted type; None where JSON gives it already, or nothing can."""
    if hint in _JSON_TYPES:
        return None
    try:
        return TypeAdapter(hint)
    except (PydanticUserError, TypeError, NameError):
        return None


def _is_context(hint: Any) -> bool:
    if hint is Context:
        return True
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return Context in typing.get_args(hint)
    return False
