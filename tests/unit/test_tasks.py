"""A function's arguments: to a payload and back, and what is refused on either way."""

import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from taskq import Context, TaskQ, codec
from taskq.errors import ConfigError, InvalidInput, InvalidPayload
from taskq.tasks import Parameters, Task, TaskOptions


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: Decimal


class Order(BaseModel):
    id: uuid.UUID
    lines: list[Point] = []
    color: Color = Color.RED


def through(func: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What the function would be called with on a worker."""
    parameters = Parameters(func, "task")
    return parameters.load(codec.loads(parameters.dump(args, kwargs)))


class TestThereAndBack:
    @pytest.mark.parametrize(
        ("hint", "value"),
        [
            (int, 2**64),
            (float, 1e-7),
            (str, "\x00\u2028😀"),
            (bool, True),
            (None, None),
            (datetime, datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
            (date, date(2025, 1, 2)),
            (timedelta, timedelta(days=1, seconds=2)),
            (uuid.UUID, uuid.uuid4()),
            (Decimal, Decimal("1.10")),
            (Color, Color.BLUE),
            (Point, Point(1, Decimal("0.1"))),
            (Order, Order(id=uuid.uuid4(), lines=[Point(1, Decimal(2))])),
            (list[Order], [Order(id=uuid.uuid4())]),
            (dict[str, Point], {"a": Point(1, Decimal(2))}),
            (set[int], {1, 2}),
            (tuple[int, str], (1, "a")),
            (int | str, "1"),
            (int | None, None),
            (Optional[Color], Color.RED),  # noqa: UP045
            (Literal["a", "b"], "b"),
            (Annotated[int, Field(gt=0)], 1),
            (Any, {"a": [], "b": {}}),
        ],
    )
    def test_each_type(self, hint: Any, value: Any) -> None:
        def func(value: Any) -> None: ...

        func.__annotations__["value"] = hint
        back = through(func, value)["value"]
        assert back == value
        assert type(back) is type(value)

    def test_without_hints(self) -> None:
        def func(a, b=2):  # type: ignore[no-untyped-def]
            ...

        assert through(func, [1]) == {"a": [1]}
        assert through(func, 1, b=[]) == {"a": 1, "b": []}

    def test_defaults_are_left_to_the_function(self) -> None:
        """So that a default may change while jobs wait."""

        def func(a: int, b: int = 2, *, c: int = 3) -> None: ...

        assert through(func, 1) == {"a": 1}
        assert through(func, a=1, c=4) == {"a": 1, "c": 4}

    def test_keyword_only(self) -> None:
        def func(*, a: int) -> None: ...

        assert through(func, a=1) == {"a": 1}
        with pytest.raises(InvalidInput):
            through(func, 1)

    def test_further_keywords(self) -> None:
        def func(a: int, **rest: Any) -> None: ...

        assert through(func, 1, b=[2]) == {"a": 1, "b": [2]}
        assert through(func, 1, b=[2], rest=3) == {"a": 1, "b": [2], "rest": 3}
        assert through(func, 1) == {"a": 1}

    def test_nothing(self) -> None:
        assert through(lambda: None) == {}

    @pytest.mark.parametrize(
        "name", ["name", "items", "keys", "get", "__class__", "from_", "model"]
    )
    def test_any_name(self, name: str) -> None:
        space: dict[str, Any] = {}
        exec(f"def func({name}: int) -> None: ...", space)
        assert through(space["func"], 1) == {name: 1}


class TestContext:
    def test_anywhere(self) -> None:
        def first(ctx: Context, a: int) -> None: ...
        def last(a: int, ctx: Context) -> None: ...
        def keyword(a: int, *, ctx: Context) -> None: ...
        def optional(a: int, ctx: Context | None = None) -> None: ...
        def old(a: int, ctx: Optional[Context] = None) -> None: ...  # noqa: UP045

        for func in (first, last, keyword, optional, old):
            assert Parameters(func, "task").context_name == "ctx"
            assert through(func, 1) == {"a": 1}
            with pytest.raises(InvalidInput):
                Parameters(func, "task").load({"a": 1, "ctx": {}})

    def test_alone(self) -> None:
        def func(ctx: Context) -> None: ...

        assert through(func) == {}

    def test_it_is_known_by_its_hint_and_not_its_name(self) -> None:
        def func(ctx: int) -> None: ...

        assert Parameters(func, "task").context_name is None
        assert through(func, 1) == {"ctx": 1}

    async def test_a_direct_call_fills_it_in(self) -> None:
        app = TaskQ()

        @app.task
        def first(ctx: Context, a: int) -> tuple[int, str]:
            return a, ctx.job_type

        @app.task
        def last(a: int, ctx: Context) -> tuple[int, str]:
            return a, ctx.job_type

        own = Context.detached("own")
        assert first(1) == (1, "first")
        assert first(a=1) == (1, "first")
        assert first.func(own, 1) == (1, "own")
        assert last(1) == (1, "last")  # type: ignore[call-arg]
        assert last(1, own) == (1, "own")


class TestRefused:
    def func(self, a: int, b: str = "") -> None: ...

    @pytest.mark.parametrize(
        ("args", "kwargs", "says"),
        [
            ((), {}, "'a'"),
            ((1, "", 3), {}, "too many"),
            ((1,), {"c": 1}, "'c'"),
            ((1,), {"a": 1}, "'a'"),
        ],
    )
    def test_submissions_that_do_not_fit(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(InvalidInput, match=says) as refused:
            Parameters(self.func, "task").dump(args, kwargs)
        assert refused.value.field == "payload"

    @pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", open, b"x"])
    def test_values_that_are_not_json(self, value: Any) -> None:
        with pytest.raises(InvalidPayload):
            Parameters(self.func, "task").dump((value,), {})

    @pytest.mark.parametrize(
        ("payload", "says"),
        [
            ({}, "a: "),
            ({"a": "x"}, "a: "),
            ({"a": 1, "b": 2}, "b: "),
            ({"a": 1, "c": 1}, "c: "),
            ({"a": 1.5}, "a: "),
            ([], "object"),
            ("a", "object"),
            (None, "object"),
        ],
    )
    def test_payloads_that_do_not_fit(self, payload: Any, says: str) -> None:
        with pytest.raises(InvalidInput, match=says) as refused:
            Parameters(self.func, "task").load(payload)
        assert refused.value.field == "payload"

    def test_each_misfit_is_named(self) -> None:
        with pytest.raises(InvalidInput, match=r"a: .*; b: "):
            Parameters(self.func, "task").load({"a": [], "b": []})

    def test_a_value_is_not_shown(self) -> None:
        with pytest.raises(InvalidInput) as refused:
            Parameters(self.func, "task").load({"a": "top secret"})
        assert "top secret" not in str(refused.value)

    def test_any_argument_where_there_is_none(self) -> None:
        with pytest.raises(InvalidInput, match="'a'"):
            Parameters(lambda: None, "task").load({"a": 1})


class TestRegistration:
    @pytest.mark.parametrize(
        "func",
        [lambda *args: None, lambda a, *args: None, lambda a, /: None, eval("lambda a, /, b: 1")],
    )
    def test_parameters_without_a_name_in_a_payload(self, func: Callable[..., Any]) -> None:
        with pytest.raises(ConfigError, match="named parameters only"):
            Parameters(func, "task")

    def test_hints_that_cannot_be_read(self) -> None:
        def func(a: "Unheard") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(ConfigError, match="type hints of task 'task'"):
            Parameters(func, "task")

    def test_a_name_that_is_taken(self) -> None:
        app = TaskQ()
        app.register(lambda: None, "a", TaskOptions())
        with pytest.raises(ConfigError, match="registered already"):
            app.register(lambda: None, "a", TaskOptions())

    @pytest.mark.parametrize("name", ["", "a b", "1a", "a{b}", "<lambda>"])
    def test_a_name_that_is_none(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="not a name"):
            Task(lambda: None, name, TaskOptions())

    def test_an_executor_that_does_not_fit(self) -> None:
        async def coroutine() -> None: ...

        with pytest.raises(ConfigError, match="coroutine function"):
            Task(coroutine, "a", TaskOptions(executor="thread"))
        with pytest.raises(ConfigError, match="plain function"):
            Task(lambda: None, "a", TaskOptions(executor="async"))
        assert Task(coroutine, "a", TaskOptions()).defaults.executor == "async"
        assert Task(lambda: None, "a", TaskOptions()).defaults.executor == "thread"

    @pytest.mark.parametrize(
        "options",
        [
            {"queue": "{q}"},
            {"priority": 101},
            {"priority": True},
            {"priority": 1.5},
            {"max_attempts": 0},
            {"max_attempts": True},
            {"max_attempts": 10**7},
            {"max_attempts": 1.5},
            {"max_attempts": "3"},
            {"timeout": -1},
            {"timeout": float("nan")},
            {"timeout": float("inf")},
            {"timeout": "1"},
            {"expires": -1},
            {"result_ttl": 1e12},
            {"executor": "gpu"},
            {"backoff": 5},
        ],
    )
    def test_options_that_are_wrong(self, options: dict[str, Any]) -> None:
        def func() -> None: ...

        with pytest.raises((InvalidInput, ConfigError)):
            TaskQ().task(**options)(func)

    def test_an_option_that_does_not_exist(self) -> None:
        app = TaskQ()
        with pytest.raises(ConfigError, match="no task option 'retries'"):
            app.task(retries=3)  # type: ignore[call-overload]
        task = app.register(lambda: None, "a", TaskOptions())
        with pytest.raises(InvalidInput, match="no submission option 'dealy'"):
            task.options(dealy=3)  # type: ignore[call-arg]

    def test_bare_and_with_options(self) -> None:
        app = TaskQ()

        @app.task
        def bare() -> None:
            """Says what it does."""

        @app.task(queue="mail", priority=5)
        def told() -> None: ...

        assert bare.__doc__ == "Says what it does."
        assert (told.defaults.queue, told.defaults.priority) == ("mail", 5)
        assert set(app.tasks) == {"bare", "told"}


class TestSchema:
    def test_it_describes_the_payload(self) -> None:
        def func(ctx: Context, a: int, b: Color = Color.RED) -> None: ...

        schema = Parameters(func, "task").schema()
        assert schema["properties"]["a"] == {"title": "A", "type": "integer"}
        assert set(schema["properties"]) == {"a", "b"}
        assert schema["required"] == ["a"]
        assert schema["additionalProperties"] is False

    def test_of_no_arguments(self) -> None:
        schema = Parameters(lambda: None, "task").schema()
        assert schema == {"type": "object", "properties": {}, "additionalProperties": False}

    def test_of_further_keywords(self) -> None:
        assert Parameters(lambda **rest: None, "task").schema()["additionalProperties"] is True

    def test_of_what_has_none(self) -> None:
        class Opaque: ...

        def func(a: Opaque) -> None: ...

        assert Parameters(func, "task").schema() == {"type": "object"}
