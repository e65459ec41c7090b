"""The strategy interface of built-in job types: one class per type, one method to run it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

from pydantic import BaseModel, JsonValue, ValidationError

from taskq_worker.handlers.errors import PayloadInvalid

JSON: TypeAlias = JsonValue
"""What a payload or a result may be made of."""

PayloadT = TypeVar("PayloadT", bound=BaseModel)

_SHOWN_PROBLEMS = 5


class Backoff(NamedTuple):
    """Delay before attempt n+1: ``min(cap_seconds, base_seconds * factor ** (n - 1))``.

    ``jitter`` is the share of that delay which is drawn at random (0 none, 1 full).
    """

    base_seconds: float = 1.0
    factor: float = 2.0
    cap_seconds: float = 60.0
    jitter: float = 0.5


@dataclass(frozen=True)
class HandlerSettings:
    """What the operator of a worker decides for its built-in handlers."""

    http_allow_private: bool = False
    """Let `http_call` reach private, loopback, link-local and other special addresses."""
    http_max_body_bytes: int = 65_536
    """How much of a response body is kept, in bytes after decompression."""
    http_max_timeout_seconds: float = 300
    """The largest ``timeout`` a payload may ask for."""
    http_max_redirects: int = 5
    """How many redirects one call follows."""


class HandlerContext(Protocol):
    """What a running handler knows about its job and may say about it."""

    @property
    def job_id(self) -> str:
        """The id of the job."""

    @property
    def attempt(self) -> int:
        """1 on the first run."""

    @property
    def fence(self) -> int:
        """The number of this claim; a later claim of the job has a larger one."""

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop."""

    def log(self, line: str) -> None:
        """Add a line to the job's log."""

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how much is done, from 0 to 1."""


class Handler(ABC, Generic[PayloadT]):
    """One job type.

    A subclass sets `name` and `payload_model` and writes `run`; everything else has a default. One
    instance serves many jobs at once, so what belongs to a job stays out of ``self``.
    """

    name: ClassVar[str]
    """The job type."""
    payload_model: ClassVar[type[BaseModel]]
    """The pydantic model of the payload, the same as the type argument; it forbids extra fields."""
    max_attempts: ClassVar[int] = 5
    """How often the handler may fail before the job is failed."""
    timeout_seconds: ClassVar[float | None] = None
    """When the worker stops a run; None leaves it to the worker's default."""
    backoff: ClassVar[Backoff] = Backoff()
    """The delay between attempts."""

    @classmethod
    def from_settings(cls, settings: HandlerSettings) -> Self:
        """Make the instance a worker will use. A handler without settings ignores them."""
        return cls()

    @classmethod
    def parse(cls, payload: Any) -> PayloadT:
        """The decoded payload as this handler's model.

        Raises `PayloadInvalid`, whose text names the fields and not their values.
        """
        try:
            return cast(PayloadT, cls.payload_model.model_validate(payload))
        except ValidationError as exc:
            problems = exc.errors(include_url=False, include_context=False, include_input=False)
        texts = [f"{_path(problem['loc'])}: {problem['msg']}" for problem in problems]
        more = ["..."] if len(texts) > _SHOWN_PROBLEMS else []
        raise PayloadInvalid("; ".join([*texts[:_SHOWN_PROBLEMS], *more]))

    @abstractmethod
    async def run(self, payload: PayloadT, ctx: HandlerContext) -> JSON:
        """Do the job and return its result.

        Raises `HandlerError` for a failure with a known reason. Any other exception is a failure
        too and is retried. Cancellation arrives as `asyncio.CancelledError`.
        """


def _path(location: tuple[int | str, ...]) -> str:
    """Where in the payload, short enough for one line."""
    return ".".join(str(part)[:40] for part in location[:4]) or "payload"
