"""What an exception means for its job, by itself: the words that a report is made of.

``judge`` looks at the exception alone, so that a job's own process can do it and send the verdict;
``policy`` adds what the task says about retries. Both the worker and ``taskq.testing`` decide by these.
"""

import asyncio
import json
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from taskq.context import Cancel, Retry, Snooze
from taskq.errors import InvalidInput
from taskq.model import Claimed
from taskq.retry import Backoff
from taskq.tasks import Task

MAX_TEXT = 8_000
MAX_MESSAGE = 2_000
LONGEST_SECONDS = 315_360_000
"""Ten years: what a job may put itself off by."""


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


def policy(
    claimed: Claimed, task: Task[Any, Any] | None, *, retry: bool = True, after: float | None = None
) -> tuple[int, int]:
    """(delay_ms, max_attempts) of a failure: the delay that the task's back-off gives, or ``after`` seconds;
    ``max_attempts`` 0 is for good."""
    backoff = task.defaults.backoff if task is not None else Backoff()
    attempts = claimed.max_attempts
    if attempts is None:
        attempts = task.defaults.max_attempts if task is not None else 1
    delay_ms = backoff.delay_ms(claimed.failures + 1) if after is None else round(after * 1000)
    return delay_ms, attempts if retry else 0


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
