"""What a running task is given: who it is, whether to stop, and where to tell how far it is."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from taskq.errors import InvalidInput

TEN_YEARS = 315_360_000


def _check_seconds(value: object, field: str) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= TEN_YEARS
    ):
        raise InvalidInput(f"{field} must be 0 to {TEN_YEARS} seconds, not {value!r}", field=field)


class Retry(Exception):
    """Raise it to fail this attempt and try again ``after`` seconds (None: by the task's back-off).

    Counts as a failure: ``max_attempts`` still ends it.
    """

    def __init__(self, message: str = "retry asked for", *, after: float | None = None) -> None:
        super().__init__(message)
        if after is not None:
            _check_seconds(after, "after")
        self.after = after


class Snooze(Exception):
    """Raise it to run again in ``seconds``; burns nothing."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        _check_seconds(seconds, "seconds")
        self.seconds = seconds


class Cancel(Exception):
    """Raise it to end the job ``failed`` at once, whatever attempts are left: retrying is useless."""


class Context:
    """The job as its handler sees it; safe to use from threads.

    ``progress`` and ``log`` return at once: they are sent in the background and refused by the server
    once the run is over or belongs to somebody else.
    """

    def __init__(
        self,
        *,
        job_id: str,
        job_type: str,
        queue: str,
        attempt: int,
        failures: int,
        fence: int,
        created_at: int,
        state: Any = None,
        tell: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        self.job_id = job_id
        """``<queue>:<ulid>``."""
        self.job_type = job_type
        self.queue = queue
        self.attempt = attempt
        """Number of this run: 1 at first; also counts runs that were lost or handed back."""
        self.failures = failures
        """How often the handler has failed before."""
        self.fence = fence
        """Number of this claim, larger than that of any earlier one: guards your own writes."""
        self.created_at = created_at
        """When the job was stored, ms since the epoch."""
        self.state = state
        """What the application's ``lifespan`` yielded in this process."""
        self._tell = tell
        self._stop: threading.Event | None = None
        self._stop_reason: str | None = None

    @classmethod
    def detached(cls, job_type: str = "test", queue: str = "default") -> "Context":
        """A context of no job, for calling a task directly."""
        return cls(
            job_id=f"{queue}:00000000000000000000000000",
            job_type=job_type,
            queue=queue,
            attempt=1,
            failures=0,
            fence=0,
            created_at=0,
        )

    @property
    def cancelled(self) -> bool:
        """Whether the run should stop: cancelled, timed out, stopped or its lease lost."""
        return self._stop_reason is not None

    @property
    def stop_reason(self) -> str | None:
        """Why to stop: ``cancelled``, ``timeout``, ``stop``, ``memory``, ``lease_lost``; None to go on."""
        return self._stop_reason

    def raise_if_cancelled(self) -> None:
        """For threads and long loops: gives up the run here when it should stop.

        Raises ``asyncio.CancelledError``. A function that returns instead has succeeded.
        """
        if self._stop_reason is not None:
            raise asyncio.CancelledError(self._stop_reason)

    def wait_cancelled(self, seconds: float) -> bool:
        """For threads: waits up to ``seconds`` for a wish to stop; answers whether there is one."""
        if self._stop is None:
            self._stop = threading.Event()
            if self._stop_reason is not None:
                self._stop.set()
        return self._stop.wait(seconds)

    def progress(self, fraction: float, message: str = "") -> None:
        """Notes how far the job is: ``fraction`` from 0 to 1 and a short text. Only the last one counts.

        Raises ``InvalidInput``.
        """
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"progress must be from 0 to 1, not {fraction!r}", field="fraction")
        if self._tell is not None:
            self._tell("progress", {"fraction": float(fraction), "message": _clean(message)})

    def log(self, line: str) -> None:
        """Adds a line to the job's log; the last 200 are kept, each cut at 4,000 characters."""
        if self._tell is not None:
            self._tell("log", {"line": _clean(line)})

    def _ask_to_stop(self, reason: str) -> None:
        """For the worker. The first reason stands."""
        if self._stop_reason is None:
            self._stop_reason = reason
            if self._stop is not None:
                self._stop.set()


def _clean(text: object) -> str:
    """Text that any reader can show: no lone surrogates, cut at 4,000 characters."""
    return str(text)[:4000].encode(errors="replace").decode()


__all__ = ["Cancel", "Context", "Retry", "Snooze"]
