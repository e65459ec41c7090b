"""What an exception means for its job: one function from how a run ended to exactly one outcome.

``judge`` looks at the exception alone, so that a job's own process can do it and send the verdict;
``of_verdict`` adds what the worker knows: why the run was stopped, and the task's retry policy.
"""

import asyncio
import json
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from taskq.context import Cancel, Retry, Snooze
from taskq.errors import InvalidInput
from taskq.retry import Backoff
from taskq.tasks import Task
from taskq_worker.runs import Crashed, Dropped, Failed, Outcome, Released, Run, Snoozed

MAX_TEXT = 8_000
MAX_MESSAGE = 2_000
LONGEST_SECONDS = 315_360_000
"""Ten years: what a job may put itself off by."""
OUTGROWN = "its process grew past --max-memory"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An exception in words that can be sent: ``error`` is JSON text, ``after`` seconds."""

    kind: Literal["failed", "snoozed", "cancelled"]
    error: str
    retry: bool = True
    after: float | None = None


class RemoteError(Exception):
    """A run in a process of its own ended with this verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.error)
        self.verdict = verdict


class ProcessDied(Exception):
    """A run's own process ended without a word; ``reason`` says how. Counts as a crash."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def judge(error: BaseException) -> Verdict:
    """What an exception asks for. Never raises itself, whatever the exception does."""
    if isinstance(error, RemoteError):
        return error.verdict
    try:
        return _judge(error)
    except BaseException:
        return Verdict(
            "failed", error_json(type(error).__name__, "its fields cannot be read", None)
        )


def _judge(error: BaseException) -> Verdict:
    text = error_json(type(error).__name__, _text(error), error)
    if isinstance(error, asyncio.CancelledError):
        return Verdict("cancelled", text)
    if isinstance(error, Snooze):
        seconds = float(error.seconds)
        if not 0 <= seconds <= LONGEST_SECONDS:
            return Verdict("failed", text)
        return Verdict("snoozed", text, after=seconds)
    if isinstance(error, Cancel):
        return Verdict("failed", text, retry=False)
    after = error.after if isinstance(error, Retry) else getattr(error, "retry_after_seconds", None)
    if not isinstance(after, (int, float)) or not 0 <= after <= LONGEST_SECONDS:
        after = None
    retry = getattr(error, "retryable", True) is not False and not isinstance(error, InvalidInput)
    return Verdict("failed", text, retry=retry, after=after)


def of_exception(run: Run, task: Task[Any, Any] | None, error: BaseException) -> Outcome:
    """The outcome of a run that raised."""
    if isinstance(error, ProcessDied):
        return _of_death(run, task, error.reason)
    verdict = judge(error)
    reason = run.context.stop_reason
    if reason == "lease_lost":
        return Dropped()
    if reason == "timeout":
        return timed_out(run, task)
    if verdict.kind == "cancelled" and reason == "stop":
        return Released("stop")
    if verdict.kind == "cancelled" and reason == "memory":
        return Crashed(OUTGROWN)
    if verdict.kind == "cancelled" and reason == "cancelled":
        return cancelled(run, task)
    if verdict.kind == "snoozed":
        return Snoozed(round((verdict.after or 0) * 1000))
    return failed(run, task, verdict.error, retry=verdict.retry, after=verdict.after)


def _of_death(run: Run, task: Task[Any, Any] | None, reason: str) -> Outcome:
    """We may have ended that process ourselves, and then know why."""
    match run.context.stop_reason:
        case "lease_lost":
            return Dropped()
        case "timeout":
            return timed_out(run, task)
        case "cancelled":
            return cancelled(run, task)
        case "stop":
            return Released("stop")
        case "memory":
            return Crashed(OUTGROWN)
        case _:
            return Crashed(reason)


def timed_out(run: Run, task: Task[Any, Any] | None) -> Failed:
    """Follows the retry policy, under a reason of its own."""
    return failed(run, task, error_json("Timeout", "ran longer than its timeout allows", None))


def cancelled(run: Run, task: Task[Any, Any] | None) -> Failed:
    """The wish stands in the job, so the server makes this a cancellation."""
    text = error_json("Cancelled", "stopped because it was cancelled", None)
    return failed(run, task, text, retry=False)


def failed(
    run: Run,
    task: Task[Any, Any] | None,
    error: str,
    *,
    retry: bool = True,
    after: float | None = None,
) -> Failed:
    """A failure, with the delay that the task's back-off gives, or ``after`` seconds."""
    backoff = task.defaults.backoff if task is not None else Backoff()
    attempts = run.claimed.max_attempts
    if attempts is None:
        attempts = task.defaults.max_attempts if task is not None else 1
    delay_ms = backoff.delay_ms(run.claimed.failures + 1) if after is None else round(after * 1000)
    return Failed(error.encode(), delay_ms, attempts if retry else 0)


def error_json(kind: str, message: str, error: BaseException | None) -> str:
    """What is kept of an error: type, message, traceback, each cut; always JSON."""
    fields = {"type": _clean(kind, 200), "message": _clean(message, MAX_MESSAGE)}
    if error is not None and (trace := _traceback(error)):
        fields["traceback"] = trace
    code = getattr(error, "code", None)
    if isinstance(code, str):
        fields["code"] = _clean(code, 100)
    return json.dumps(fields, ensure_ascii=False)


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
        text = "".join(lines)
    except BaseException:
        return ""
    # The end tells most; the middle of a long one goes.
    return _clean(text if len(text) <= MAX_TEXT else "...\n" + text[-MAX_TEXT:], MAX_TEXT + 10)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return f"<{type(error).__name__}, whose text cannot be had>"


def _clean(text: str, most: int) -> str:
    return text[:most].encode(errors="replace").decode().replace("\x00", "\\x00")
