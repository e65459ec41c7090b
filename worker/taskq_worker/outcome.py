"""What an exception means for its job: one function from how a run ended to exactly one outcome."""

import asyncio
import json
import traceback
from typing import Any

from taskq.context import Cancel, Retry, Snooze
from taskq.errors import InvalidInput
from taskq.retry import Backoff
from taskq.tasks import Task
from taskq_worker.runs import Dropped, Failed, Outcome, Released, Run, Snoozed

MAX_TEXT = 8_000
MAX_MESSAGE = 2_000


def of_exception(run: Run, task: Task[Any, Any] | None, error: BaseException) -> Outcome:
    """The outcome of a run that raised. Never raises itself, whatever the exception does."""
    reason = run.context.stop_reason
    if reason == "lease_lost":
        return Dropped()
    if reason == "stop" and _is_cancellation(error):
        return Released("stop")
    if reason == "timeout":
        return failed(run, task, "Timeout", "ran longer than its timeout allows", None)
    if reason == "cancelled" and _is_cancellation(error):
        return failed(run, task, "Cancelled", "stopped because it was cancelled", None, retry=False)
    if isinstance(error, Snooze):
        return Snoozed(max(0, round(error.seconds * 1000)))
    if isinstance(error, Cancel):
        return failed(run, task, "Cancel", _text(error), error, retry=False)
    after = getattr(error, "after", None) if isinstance(error, Retry) else None
    if after is None:
        after = getattr(error, "retry_after_seconds", None)
    retry = getattr(error, "retryable", True) is not False and not isinstance(error, InvalidInput)
    return failed(run, task, _kind(error), _text(error), error, retry=retry, after=after)


def failed(
    run: Run,
    task: Task[Any, Any] | None,
    kind: str,
    message: str,
    error: BaseException | None,
    *,
    retry: bool = True,
    after: float | None = None,
) -> Failed:
    """A failure, with the delay that the task's back-off gives, or ``after`` seconds."""
    backoff = task.defaults.backoff if task is not None else Backoff()
    attempts = run.claimed.max_attempts
    if attempts is None:
        attempts = task.defaults.max_attempts if task is not None else 1
    delay_ms = backoff.delay_ms(run.claimed.failures + 1)
    if isinstance(after, (int, float)) and 0 <= after < 1e9:
        delay_ms = round(after * 1000)
    return Failed(error_json(kind, message, error), delay_ms, attempts if retry else 0)


def error_json(kind: str, message: str, error: BaseException | None) -> bytes:
    """What is kept of an error: type, message, traceback, each cut; always JSON."""
    fields = {"type": _clean(kind, 200), "message": _clean(message, MAX_MESSAGE)}
    if error is not None and (trace := _traceback(error)):
        fields["traceback"] = trace
    code = getattr(error, "code", None)
    if isinstance(code, str):
        fields["code"] = _clean(code, 100)
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace")


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
        text = "".join(lines)
    except Exception:
        return ""
    # The end tells most; the middle of a long one goes.
    return _clean(text if len(text) <= MAX_TEXT else "...\n" + text[-MAX_TEXT:], MAX_TEXT + 10)


def _kind(error: BaseException) -> str:
    return type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__}, whose text cannot be had>"


def _clean(text: str, most: int) -> str:
    return text[:most].encode(errors="replace").decode().replace("\x00", "\\x00")


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)
