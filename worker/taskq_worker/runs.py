"""A run (one claim of one job in this process) and how it ends: values, no behaviour."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from taskq.context import Context
from taskq.ids import join_id
from taskq.model import Claimed

if TYPE_CHECKING:
    from taskq_worker.seat import Seat


class Succeeded(NamedTuple):
    """A tuple, like all that is made for every job."""

    result: bytes
    result_ttl_ms: int | None = None
    keep_payload: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """``error`` is JSON text; ``max_attempts`` 0 means: no retry."""

    error: bytes
    delay_ms: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Crashed:
    """The run's own process died, or had to be ended; ``reason`` is in our words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """Handed back unfinished, burning nothing; ``reason`` is a word of ours."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The lease is lost: there is nothing to report."""


Outcome: TypeAlias = Succeeded | Failed | Crashed | Snoozed | Released | Dropped


@dataclass(slots=True, eq=False)
class Run:
    """Times are monotonic seconds; ``deadline`` None means no timeout."""

    claimed: Claimed
    seat: "Seat"
    worker: str
    """The worker id it was claimed under: reports go out under this one, whatever the seat's is by then."""
    context: Context
    timeout_seconds: float
    """0: none."""
    deadline: float | None = None
    task: "asyncio.Task[None] | None" = None
    started: bool = False
    stop_asked_at: float | None = None
    cancelled_at: float = 0.0
    written_off: bool = False
    outcome: Outcome | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def job_id(self) -> str:
        return join_id(self.seat.queue, self.claimed.ulid)

    def start_clock(self) -> None:
        """The timeout counts from now."""
        if self.timeout_seconds:
            self.deadline = time.monotonic() + self.timeout_seconds

    def ask_to_stop(self, reason: str, now: float) -> None:
        """``cancelled``, ``timeout``, ``stop`` or ``lease_lost``; the first reason stands."""
        self.context._ask_to_stop(reason)
        if self.stop_asked_at is None:
            self.stop_asked_at = now
        self._cancel(now)

    def insist(self, now: float) -> None:
        """Cancels once more, a second after the last time: for handlers that swallow it once."""
        if now - self.cancelled_at > 1:
            self._cancel(now)

    def _cancel(self, now: float) -> None:
        self.cancelled_at = now
        if self.task is not None and self.started:
            self.task.cancel()
