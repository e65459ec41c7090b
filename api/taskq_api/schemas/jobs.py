"""Jobs, as they are answered."""

from typing import Any

from pydantic import BaseModel, Field

from taskq.states import State
from taskq_api.schemas.fields import JOB_ID, Timestamp
from taskq_api.schemas.status import Problem


class Event(BaseModel):
    """A line of a job's history; members beside the first two where they are known."""

    at: Timestamp = Field(description="when, RFC 3339 in UTC")
    event: str = Field(
        description="created, due, started, failed, crashed, lost, released, snoozed, edited, cancel "
        "asked, retried, expires, or how it ended"
    )
    worker: str | None = Field(default=None, description="whose run it was")
    attempt: int | None = Field(default=None, description="which run started, from 1")
    reason: str | None = Field(default=None, description="why, in a word of ours")
    error: Any = Field(
        default=None,
        description="what the failed run left, without its traceback (the last is in the job's error)",
    )
    failures: int | None = Field(default=None, description="failed runs until then")
    crashes: int | None = Field(default=None, description="runs whose process had died until then")
    lost: int | None = Field(default=None, description="runs that had lost their lease until then")
    retry_in_ms: int | None = Field(default=None, description="back-off before the next run")
    delay_ms: int | None = Field(default=None, description="for how long it was put off")
    priority: int | None = Field(default=None, description="the new one")
    run_at: Timestamp = Field(default=None, description="the new time, RFC 3339 in UTC")
    message: str | None = Field(
        default=None, description="of a line that is not readable: its text (then at is null)"
    )


class LogLine(BaseModel):
    """A line that the running job told."""

    at: Timestamp = Field(description="when, RFC 3339 in UTC, by the worker's clock")
    line: str = Field(description="the text")


class Progress(BaseModel):
    """How far a job is, as its handler says."""

    fraction: float = Field(description="0 to 1")
    message: str = Field(description="a short text")
    at: Timestamp = Field(description="when, RFC 3339 in UTC, by the worker's clock")


class JobRow(BaseModel):
    """A job in a list."""

    id: str = Field(description="<queue>:<ULID>", examples=[JOB_ID])
    queue: str = Field(description="queue it stands in")
    job_type: str = Field(description="name of its task")
    state: State = Field(description="what it is now")
    priority: int = Field(description="-100 to 100, higher is sooner")
    attempts: int = Field(description="times a worker took it; only ever up")
    failures: int = Field(description="runs that raised or timed out; compared with max_attempts")
    crashes: int = Field(description="runs whose process died")
    lost: int = Field(description="runs whose worker lost its lease")
    created_at: Timestamp = Field(
        description="when it was stored. In the answer to a submission by the API's clock, which may "
        "differ by a little from the stored one (Redis's)"
    )
    eligible_at: Timestamp = Field(description="from when it may run; its rank counts from here")
    started_at: Timestamp = Field(description="start of its last run")
    finished_at: Timestamp = Field(description="when it ended")
    worker: str | None = Field(description="worker that has, or last had, it")
    reason: str | None = Field(description="why it was cancelled or ended, where that has a name")
    cancel_requested: bool = Field(description="it runs and was asked to stop")
    fence: int | None = Field(description="number of its last run, never used twice")
    fingerprint: str | None = Field(
        description="kind of its last failure, see /errors; null where none is known"
    )


class Job(JobRow):
    """All that is kept of a job."""

    payload: Any = Field(
        default=None,
        description="as submitted; null once dropped (see keep_payload). Left out, as is the result, "
        "where the key has not the scope `payload`",
    )
    payload_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    result: Any = Field(default=None, description="what the handler returned")
    result_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    error: dict[str, Any] | None = Field(description="what its last failed run left")
    progress: Progress | None = Field(description="how far it is, as its handler says")
    max_attempts: int | None = Field(description="null: the task's own")
    timeout: float | None = Field(description="seconds; 0: none; null: the task's own")
    unique_key: str | None = Field(description="key that keeps others out while it lives")
    expires_at: Timestamp = Field(description="when it no longer starts")
    stub: bool = Field(description="only its state and times are still kept")
    history: list[Event] = Field(
        description="its life, oldest first, and what is to come; at most the last 50 unusual events"
    )
    log: list[LogLine] = Field(description="its last 200 log lines")


class JobList(BaseModel):
    """A page of jobs. An empty page with a cursor is no end: the filter matched nothing so far."""

    jobs: list[JobRow] = Field(description="without payloads")
    looked_at: int = Field(description="entries that were looked at for this page (at most 1,000)")
    next_cursor: str | None = Field(description="give it as `cursor` to go on; null at the end")


class Result(BaseModel):
    """How a job ended, or (with 202) that it has not."""

    id: str = Field(description="the job")
    state: State = Field(description="what it is now")
    result: Any = Field(default=None, description="what the handler returned")
    result_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    error: dict[str, Any] | None = Field(default=None, description="of a failed job")
    reason: str | None = Field(default=None, description="of a cancelled job")
    finished_at: Timestamp = Field(default=None, description="when it ended")


class BatchOutcome(BaseModel):
    """What became of one job of a batch."""

    status: int = Field(description="201 stored, 200 known already, else the status of its problem")
    id: str | None = Field(default=None, description="the job, where it is stored")
    state: State | None = Field(default=None, description="its state")
    problem: Problem | None = Field(default=None, description="where it was refused")


class BatchAnswer(BaseModel):
    """What became of each job of a batch, in the order given."""

    created: int = Field(description="jobs stored now")
    known: int = Field(description="jobs that were stored before (idempotency keys)")
    refused: int = Field(description="jobs that were not stored")
    items: list[BatchOutcome] = Field(description="one per job")
