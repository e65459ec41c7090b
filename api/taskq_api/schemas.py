"""Bodies as the OpenAPI document shows them. Requests are validated with these models; answers are made
by ``taskq_api.render`` and only described here."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import models_json_schema

from taskq.calls import MAX_ITEMS, SETTINGS, TEN_YEARS_MS
from taskq.ordering import PRIORITY_MAX, PRIORITY_MIN
from taskq.states import State
from taskq.submission import SubmitOptions

SECONDS_MAX = TEN_YEARS_MS // 1000
NAME = r"^[A-Za-z_][A-Za-z0-9._-]{0,127}$"
QUEUE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
JOB_ID = "default:01K2J7Q0V4T8Z3M6N9R1S5X7YB"

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def _point_in_time(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be RFC 3339 with an offset, such as 2030-01-31T08:00:00Z")
    return datetime.fromisoformat(value.upper())


Seconds = Annotated[float | None, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]
Timestamp = Annotated[str | None, Field(json_schema_extra={"format": "date-time"})]


class JobRequest(BaseModel):
    """A job to store. Unknown fields are refused; null is the same as leaving a field out (not so in
    ``payload``)."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "job_type": "print",
                    "priority": 10,
                    "payload": {"message": "Hello from scheduler"},
                }
            ]
        },
    )

    job_type: str = Field(
        description="name of the task that a worker runs; a job whose type no worker serves waits",
        json_schema_extra={"pattern": NAME},
    )
    payload: Any = Field(
        default_factory=dict,
        description="any JSON, up to 1 MiB and 200 levels deep with the body around it; integers stay "
        "exact at any size up to 4,300 digits. Default {}",
    )
    priority: int | None = Field(
        default=None,
        ge=PRIORITY_MIN,
        le=PRIORITY_MAX,
        description=f"{PRIORITY_MIN} to {PRIORITY_MAX}, higher is sooner. A waiting job gains on others "
        "by ageing, so none waits for ever. Default 0",
    )
    queue: str | None = Field(
        default=None,
        description='queue to stand in. Default "default"',
        json_schema_extra={"pattern": QUEUE},
    )
    delay: Seconds = Field(
        default=None, description="seconds from now until it may run. Default 0; not with run_at"
    )
    run_at: Annotated[datetime | None, BeforeValidator(_point_in_time)] = Field(
        default=None,
        description="point in time from which it may run, RFC 3339 with an offset; one in the past is "
        "now. Not with delay",
        examples=["2030-01-31T08:00:00+01:00"],
    )
    expires: Annotated[float | None, Field(gt=0, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        default=None,
        description="seconds from now after which it no longer starts and ends failed. Default never",
    )
    max_attempts: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="runs after which a failing job ends failed. Default: the task's own (5)",
    )
    timeout: Seconds = Field(
        default=None,
        description="seconds that a run may take; 0: no limit. Default: the task's (3600)",
    )
    result_ttl: Seconds = Field(
        default=None,
        description="seconds that the result is kept. Default: as the queue's retention says",
    )
    keep_payload: bool | None = Field(
        default=None, description="keep the payload after success. Default false"
    )
    unique_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="while a job with this key waits or runs in the queue, another is refused (409 "
        "unique_held). No braces or control characters",
    )

    def options(self, idempotency_key: str | None) -> SubmitOptions:
        """Everything but type and payload, as the library takes it."""
        return SubmitOptions(
            queue=self.queue,
            priority=self.priority,
            delay=self.delay,
            run_at=self.run_at,
            expires=self.expires,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            result_ttl=self.result_ttl,
            keep_payload=self.keep_payload,
            unique_key=self.unique_key,
            idempotency_key=idempotency_key,
        )


class BatchItem(JobRequest):
    """A job of a batch."""

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="as the header Idempotency-Key of a single submission",
    )


class BatchRequest(BaseModel):
    """Jobs to store, each for itself: one that is refused does not keep the others out."""

    model_config = ConfigDict(extra="forbid", strict=True)

    jobs: list[BatchItem] = Field(
        min_length=1, max_length=MAX_ITEMS, description=f"1 to {MAX_ITEMS} jobs"
    )


class BatchEnvelope(BaseModel):
    """The same with unchecked jobs: each is looked at by itself."""

    model_config = ConfigDict(extra="forbid", strict=True)

    jobs: list[Any] = Field(min_length=1, max_length=MAX_ITEMS)


class Event(BaseModel):
    """A line of a job's history."""

    model_config = ConfigDict(extra="allow")

    at: Timestamp = Field(description="when, RFC 3339 in UTC")
    event: str = Field(
        description="created, started, failed, crashed, lost, retried, succeeded, .."
    )


class LogLine(BaseModel):
    """A line that the running job told."""

    model_config = ConfigDict(extra="allow")

    at: Timestamp = Field(default=None, description="when, RFC 3339 in UTC")
    message: str = Field(default="", description="the text")


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


class Job(JobRow):
    """All that is kept of a job."""

    payload: Any = Field(description="as submitted; null once dropped (see keep_payload)")
    payload_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    result: Any = Field(description="what the handler returned")
    result_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    error: dict[str, Any] | None = Field(description="what its last failed run left")
    progress: dict[str, Any] | None = Field(description="how far it is, as its handler says")
    max_attempts: int | None = Field(description="null: the task's own")
    timeout: float | None = Field(description="seconds; 0: none; null: the task's own")
    unique_key: str | None = Field(description="key that keeps others out while it lives")
    fence: int | None = Field(description="number of its last run, never used twice")
    expires_at: Timestamp = Field(description="when it no longer starts")
    retried_from: str | None = Field(description="job that this one was made from")
    stub: bool = Field(description="only its state and times are still kept")
    history: list[Event] = Field(description="its life, oldest first; at most 50 unusual events")
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


class ItemProblem(BaseModel):
    """Why a job of a batch was not stored."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="stable word")
    detail: str = Field(description="what was wrong")


class BatchOutcome(BaseModel):
    """What became of one job of a batch."""

    status: int = Field(description="201 stored, 200 known already, else the status of its problem")
    id: str | None = Field(default=None, description="the job, where it is stored")
    state: State | None = Field(default=None, description="its state")
    problem: ItemProblem | None = Field(default=None, description="where it was refused")


class BatchAnswer(BaseModel):
    """What became of each job of a batch, in the order given."""

    created: int = Field(description="jobs stored now")
    known: int = Field(description="jobs that were stored before (idempotency keys)")
    refused: int = Field(description="jobs that were not stored")
    items: list[BatchOutcome] = Field(description="one per job")


class Line(BaseModel):
    """Jobs of one type that wait in a queue."""

    job_type: str = Field(description="the type")
    waiting: int = Field(description="jobs in line")
    head_since: Timestamp = Field(description="since when the job that is next may run")
    head_age: float | None = Field(description="the same as an age, in seconds")
    served: bool = Field(description="a worker that was seen lately runs this type")


SETTING_TEXTS = {
    "aging_ms": "milliseconds of waiting that are worth one point of priority; 0 is FIFO. Default 10000",
    "max_depth": "most waiting jobs; 0: no limit. Default 0",
    "dedup_seconds": "seconds that an ended job stays recognisable. Default 600",
    "dedup_max": "most stubs kept for that",
    "succeeded_seconds": "seconds that succeeded jobs are kept",
    "succeeded_max": "most succeeded jobs kept",
    "succeeded_bytes": "most bytes of succeeded jobs kept",
    "failed_seconds": "seconds that failed jobs are kept",
    "failed_max": "most failed jobs kept",
    "failed_bytes": "most bytes of failed jobs kept",
    "cancelled_seconds": "seconds that cancelled jobs are kept",
    "cancelled_max": "most cancelled jobs kept",
    "cancelled_bytes": "most bytes of cancelled jobs kept",
}


def _setting_fields() -> dict[str, Any]:
    return {
        name: (
            Annotated[int | None, Field(ge=low, le=high)],
            Field(default=None, description=SETTING_TEXTS.get(name, name)),
        )
        for name, (low, high) in SETTINGS.items()
    }


QueueSettings = create_model(
    "QueueSettings",
    __doc__="Settings of a queue that differ from the defaults.",
    **_setting_fields(),
)


class _Pausing(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"paused": True}, {"paused_types": ["print"]}]},
    )

    paused: bool | None = Field(default=None, description="hand out no job of this queue")
    paused_types: Annotated[list[str], Field(max_length=1000)] | None = Field(
        default=None, description="hand out no job of these types"
    )


QueueChanges = create_model(
    "QueueChanges",
    __base__=_Pausing,
    __doc__="Settings to change; null clears one, what is not named stays.",
    **_setting_fields(),
)


class Queue(BaseModel):
    """One look at a queue."""

    name: str = Field(description="the queue")
    paused: bool = Field(description="none of its jobs is handed out")
    paused_types: list[str] = Field(description="types of which none is handed out")
    counts: dict[str, int] = Field(description="jobs by state")
    workers: int = Field(description="workers that hold a lease here")
    quarantined: int = Field(description="broken items that were set aside")
    types: list[Line] = Field(description="waiting lines")
    settings: QueueSettings = Field(description="what differs from the defaults")  # type: ignore[valid-type]  # made at run time


class QueueList(BaseModel):
    """Every queue."""

    queues: list[Queue] = Field(description="by name")


class Worker(BaseModel):
    """A worker process as it tells about itself."""

    id: str = Field(description="single use: new at each start")
    host: str = Field(description="machine")
    pid: int = Field(description="process")
    supervisor_pid: int = Field(description="its parent")
    version: str = Field(description="of taskq")
    state: Literal["running", "quiet", "stopping"] | str = Field(description="what it is doing")
    started_at: Timestamp = Field(description="start")
    seen_at: Timestamp = Field(description="last sign of life")
    queues: list[str] = Field(description="queues it serves")
    job_types: list[str] = Field(description="types it runs")
    slots: int = Field(description="jobs it runs at once, at most")
    busy: int = Field(description="jobs it runs now")


class WorkerList(BaseModel):
    """Workers that were seen lately."""

    workers: list[Worker] = Field(description="in the order of their last sight")


class JobType(BaseModel):
    """A job type as workers publish it."""

    job_type: str = Field(description="its name")
    published: Any = Field(
        description="what workers say about it, such as the schema of its payload"
    )


class JobTypeList(BaseModel):
    """Job types that workers have published."""

    job_types: list[JobType] = Field(description="by name")


class Health(BaseModel):
    """The process lives."""

    status: Literal["ok"] = Field(description="always ok")
    version: str = Field(description="of taskq")


class Ready(BaseModel):
    """Jobs can be taken now."""

    status: Literal["ready"] = Field(description="always ready")
    server: str = Field(description="kind and version of the Redis server")
    warnings: list[str] = Field(description="settings of the server that are worth a look")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="urn:taskq:error:<code>")
    title: str = Field(description="what the code stands for")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what was wrong with this request")
    code: str = Field(description="stable word to compare with", examples=["unique_held"])
    field: str | None = Field(default=None, description="the field or parameter that was refused")


_MODELS: list[type[BaseModel]] = [
    JobRequest,
    BatchRequest,
    Job,
    JobList,
    Result,
    BatchAnswer,
    Queue,
    QueueList,
    QueueChanges,
    WorkerList,
    JobTypeList,
    Health,
    Ready,
    Problem,
]


def components() -> dict[str, Any]:
    """Schemas of the OpenAPI document, by name."""
    _, document = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
