"""How a run ended: one function from that to exactly one outcome.

``taskq.verdict`` says what the exception means by itself; here comes what the worker knows: why the run was
stopped. A run that was stopped because its job was cancelled is handed back: the wish stands in the job, so
that the server makes a cancellation of it, and nothing is counted as a failure.
"""

import json
from typing import Any

from taskq.tasks import Task
from taskq.verdict import error_json, judge, policy
from taskq_worker.runs import Crashed, Dropped, Failed, Outcome, Released, Run, Snoozed

OUTGROWN = "its process grew past --max-memory"


class ProcessDied(Exception):
    """A run's own process ended without a word; ``reason`` says how. Counts as a crash."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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
    if verdict.kind == "cancelled" and reason in ("stop", "cancelled"):
        return Released(reason)
    if verdict.kind == "cancelled" and reason == "memory":
        return Crashed(OUTGROWN)
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
        case "stop" | "cancelled" as asked:
            return Released(asked)
        case "memory":
            return Crashed(OUTGROWN)
        case _:
            return Crashed(reason)


def timed_out(run: Run, task: Task[Any, Any] | None) -> Failed:
    """Follows the retry policy, under a reason of its own."""
    return failed(run, task, error_json("Timeout", "ran longer than its timeout allows", None))


def failed(
    run: Run,
    task: Task[Any, Any] | None,
    error: str,
    *,
    retry: bool = True,
    after: float | None = None,
) -> Failed:
    """A failure, with the delay that the task's back-off gives, or ``after`` seconds."""
    delay_ms, max_attempts = policy(run.claimed, task, retry=retry, after=after)
    return Failed(error.encode(), delay_ms, max_attempts)


def told(outcome: Outcome) -> tuple[str, str, str]:
    """(word, type of the error, its message) of an outcome; the latter two '' where it is none."""
    word = type(outcome).__name__.lower()
    if isinstance(outcome, Failed):
        error = json.loads(outcome.error)
        return word, error["type"], error["message"]
    if isinstance(outcome, Crashed):
        return word, "WorkerCrashed", outcome.reason
    return word, "", ""
