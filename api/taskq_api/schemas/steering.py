"""Steering jobs: edits, positions, failures by kind, bulk actions."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from taskq.ordering import PRIORITY_MAX, PRIORITY_MIN
from taskq.selection import MAX_IDS
from taskq.states import State
from taskq_api.schemas.fields import JOB_ID, JOB_ID_FORM, NAME, QUEUE, Seconds, Timestamp
from taskq_api.schemas.jobs import JobRow
from taskq_api.schemas.requests import point_in_time

Priority = Annotated[int | None, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
Moment = Annotated[datetime | None, BeforeValidator(point_in_time)]
Fence = Annotated[int | None, Field(ge=0)]
FINGERPRINT = r"^([0-9a-f]{16}|unknown)$"


class JobChanges(BaseModel):
    """What to change of a waiting job; what is not named stays. All else of a job cannot be changed:
    cancel it and submit another."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"priority": 50}, {"delay": 0}]},
    )

    priority: Priority = Field(
        default=None,
        description=f"{PRIORITY_MIN} to {PRIORITY_MAX}, higher is sooner. Its place in line moves by the "
        "difference. Default: as it is",
    )
    run_at: Moment = Field(
        default=None,
        description="point in time from which it may run, RFC 3339 with an offset; one in the past is "
        "now, also for a job that waits for its back-off to end. Not with delay. Default: as it is",
        examples=["2030-01-31T08:00:00+01:00"],
    )
    delay: Seconds = Field(
        default=None, description="the same as seconds from now. Not with run_at. Default: as it is"
    )
    fence: Fence = Field(
        default=None,
        description="the fence that the job had when it was looked at (0: none): if it has run since, it "
        "is left alone (409 wrong_state). Default: edit it all the same",
    )


class WaitReason(BaseModel):
    """One thing that keeps a job waiting."""

    code: Literal[
        "ended", "running", "delayed", "backoff", "blocked", "misplaced", "paused", "paused_type",
        "no_worker", "next", "workers_busy",
    ] = Field(description="stable word to compare with")  # fmt: skip
    message: str = Field(description="what it means, and what to do about it")
    until: Timestamp = Field(description="when it ends by itself, where that is known")


class Position(BaseModel):
    """Where a job stands, what keeps it there, and when it is likely to start."""

    id: str = Field(description="the job", examples=[JOB_ID])
    state: State = Field(description="what it is now")
    job_type: str = Field(description="name of its task")
    reason: str = Field(description="code of the first of reasons", examples=["no_worker"])
    reasons: list[WaitReason] = Field(
        description="all that keeps it, what comes first in time first"
    )
    rank: int | None = Field(
        description="place over all lines of the queue, from 1; null while it stands in none"
    )
    ahead: int | None = Field(
        description="jobs before it that workers run: types that are paused, or that nobody runs, do "
        "not hold it up"
    )
    priority: int = Field(description="-100 to 100, higher is sooner")
    effective_priority: float | None = Field(
        description="with the points that waiting has earned; null while it stands in no line"
    )
    eligible_at: Timestamp = Field(description="from when it may run")
    estimated_start: Timestamp = Field(
        description="when it is likely to start; null where that cannot be known"
    )
    estimate: str = Field(description="what the estimate rests on, or why there is none")
    per_minute: float = Field(description="runs of the queue that ended, a minute, of late")
    workers: int = Field(description="live worker processes that run its type in this queue")
    free_slots: int = Field(description="slots of theirs that were free when they last told")


class ErrorGroup(BaseModel):
    """Failures of one kind in one queue: one job type, one exception, one place, one message but for what
    varies in it."""

    fingerprint: str = Field(description="names the kind", examples=["3f5a0c9b1d2e4f60"])
    queue: str = Field(description="the queue")
    job_type: str = Field(description="name of the task that failed")
    signature: str = Field(
        description="what they have in common",
        examples=["ValueError: no user <n> at mail.py:send_mail"],
    )
    count: int = Field(description="runs that failed so since the group was made")
    failed: int = Field(description="those of them that were their job's last")
    first_seen: Timestamp = Field(description="when the first of them failed")
    last_seen: Timestamp = Field(description="when the latest failed")
    sample: str = Field(description="job of the latest; it may be gone by now", examples=[JOB_ID])
    error: dict[str, Any] | None = Field(description="of the latest call, without its traceback")


class ErrorList(BaseModel):
    """Failures by kind. The latest 200 kinds of a queue are kept, for 30 days from the last of each."""

    errors: list[ErrorGroup] = Field(description="queue by queue, the latest first")
    next_cursor: str | None = Field(description="give it as `cursor` to go on; null at the end")


class ErrorJobs(BaseModel):
    """One kind of failure, and a page of the jobs whose last failure is of it. An empty page with a
    cursor is no end: no job of the kind was met so far."""

    errors: list[ErrorGroup] = Field(description="the kind, once for each queue that has it")
    jobs: list[JobRow] = Field(description="failed and retrying ones, without payloads")
    looked_at: int = Field(description="entries that were looked at for this page (at most 1,000)")
    next_cursor: str | None = Field(description="give it as `cursor` to go on; null at the end")


class BulkFilter(BaseModel):
    """Which jobs: those that fit all that is named."""

    model_config = ConfigDict(extra="forbid", strict=True)

    queue: str | None = Field(
        default=None,
        description="the queue; needed unless ids are given",
        json_schema_extra={"pattern": QUEUE},
    )
    state: State | None = Field(
        default=None,
        strict=False,
        description="only this state. Default: all that the action is for",
    )
    job_type: str | None = Field(
        default=None,
        description="only this type. Default: all",
        json_schema_extra={"pattern": NAME},
    )
    fingerprint: Annotated[str | None, Field(pattern=FINGERPRINT)] = Field(
        default=None,
        description="only failures of this kind; `unknown`: those without one. Default: all",
    )
    since: Moment = Field(
        default=None,
        description="only what ended (what still lives: was submitted) at this time or later, RFC 3339 "
        "with an offset. Default: from the beginning",
    )
    before: Moment = Field(
        default=None, description="only what ended (or was submitted) earlier. Default: until now"
    )
    ids: Annotated[list[str] | None, Field(min_length=1, max_length=MAX_IDS)] = Field(
        default=None,
        description=f"only these jobs, all of one queue: 1 to {MAX_IDS}. Default: all",
        json_schema_extra={"items": {"type": "string", "pattern": JOB_ID_FORM}},
    )


class _Action(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"action": "retry", "filter": {"queue": "default", "state": "failed"}}]
        },
    )

    action: Literal["cancel", "retry", "delete", "edit"] = Field(
        description="cancel (waiting and running jobs), retry (failed), delete (ended), edit (the "
        "priority of waiting ones)"
    )
    filter: BulkFilter = Field(description="which jobs")


class BulkPreviewRequest(_Action):
    """A bulk action to be counted and not done."""


class BulkRequest(_Action):
    """A bulk action. It is about the jobs of this moment: what ends or comes later is left alone."""

    priority: Priority = Field(default=None, description="with edit: the new priority, -100 to 100")
    per_second: Annotated[int | None, Field(ge=1, le=100_000)] = Field(
        default=None, description="jobs a second at most. Default: as fast as it goes"
    )


class BulkPreview(BaseModel):
    """How many jobs it would be about. Counting looks at 10,000 entries at most."""

    matched: int = Field(description="jobs that fit: all where complete, else of those looked at")
    looked_at: int = Field(description="entries that were looked at")
    complete: bool = Field(description="matched is the whole number")
    sample: list[str] = Field(description="ids of the first ten")


class BulkStored(BaseModel):
    """The filter of a bulk action, with what it left open filled in."""

    states: list[State] = Field(description="in this order")
    job_type: str | None = Field(description="null: all")
    fingerprint: str | None = Field(description="null: all")
    since: Timestamp = Field(description="null: from the beginning")
    before: Timestamp = Field(description="null: until it was started")
    ids: int = Field(description="how many ids were given; 0: none")


class Bulk(BaseModel):
    """A bulk action as it stands."""

    id: str = Field(description="<queue>:<ULID>", examples=[JOB_ID])
    queue: str = Field(description="the queue")
    action: str = Field(description="cancel, retry, delete or edit")
    state: Literal["running", "done", "stopped", "failed"] = Field(description="how it stands")
    filter: BulkStored = Field(description="which jobs")
    priority: int | None = Field(description="with edit: the new priority")
    per_second: int | None = Field(description="jobs a second at most; null: no limit")
    started_at: Timestamp = Field(description="it is about the jobs of this moment")
    finished_at: Timestamp = Field(description="when it ended")
    looked_at: int = Field(description="entries looked at so far")
    matched: int = Field(description="jobs that fit so far")
    done: int = Field(
        description="jobs changed so far. The page at which its process died counts only what was left"
    )
    skipped: int = Field(
        description="jobs that fit but had moved on, or whose unique key another job holds"
    )
    error: str | None = Field(description="of one that failed: why")


class BulkList(BaseModel):
    """Bulk actions of a queue."""

    bulks: list[Bulk] = Field(description="those under way, then the last 100 that ended")
