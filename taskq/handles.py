"""What a submission answers: a handle to look at the job, wait for it and steer it."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from taskq.client import AsyncClient, SyncClient
from taskq.inspector import Inspector
from taskq.model import Job
from taskq.position import Position, position
from taskq.states import State

R = TypeVar("R")


class Connected(Protocol):
    """Who has the connections: the application."""

    def client(self) -> AsyncClient: ...
    def sync_client(self) -> SyncClient: ...


class JobHandle(Generic[R]):
    """A submitted job. ``state`` is what it was when the submission was answered."""

    def __init__(
        self,
        app: Connected,
        job_id: str,
        state: State,
        created: bool,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        self.id = job_id
        self.state = state
        self.created = created
        """False when the id was known already: an idempotency key or a repeat."""
        self._app = app
        self._decode = decode

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self.state}>"

    async def result(self, timeout: float | None = None) -> R:
        """Waits for the end, at most ``timeout`` seconds, and answers the result.

        Of a task's own submission it has the type that the function's hint says (a model, a datetime ..);
        for a job known by its name or id only, and where the stored value does not fit the hint, it is
        what JSON gives.

        Raises ``JobFailed``, ``JobCancelled``, ``ResultExpired``, ``ResultTimeout``, ``JobNotFound``.
        """
        return self._typed(await self._app.client().result(self.id, timeout))

    def result_sync(self, timeout: float | None = None) -> R:
        """The same from sync code."""
        return self._typed(self._app.sync_client().result(self.id, timeout))

    def _typed(self, value: Any) -> R:
        result: R = value if self._decode is None else self._decode(value)
        return result

    async def info(self) -> Job:
        """All that is kept of the job now, with its history. Raises ``JobNotFound``."""
        return await self._app.client().job(self.id)

    def info_sync(self) -> Job:
        """The same from sync code."""
        return self._app.sync_client().job(self.id)

    async def position(self) -> Position:
        """Why the job waits: its place in line, what keeps it there, and when it is likely to start.

        Raises ``JobNotFound``.
        """
        return await position(Inspector(self._app.client().store), self.id)

    async def cancel(self) -> State:
        """Cancels the job; a running one is asked to stop. Raises ``JobNotFound``, ``WrongState``."""
        return await self._app.client().cancel(self.id)

    def cancel_sync(self) -> State:
        """The same from sync code."""
        return self._app.sync_client().cancel(self.id)

    async def retry(self) -> State:
        """Puts the job back in line after it has failed for good, with a clean count of failures.

        Raises ``JobNotFound``, ``WrongState``, ``UniqueHeld``.
        """
        return await self._app.client().retry(self.id)

    def retry_sync(self) -> State:
        """The same from sync code."""
        return self._app.sync_client().retry(self.id)
