"""Queues and their settings, workers and job types."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from taskq.calls import SETTINGS
from taskq_api.schemas.fields import NAME, Timestamp
from taskq_api.schemas.stats import Latency


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
    "dedup_max": "most ended jobs that stay recognisable. Default 1000000",
    "succeeded_seconds": "seconds that succeeded jobs are kept. Default 86400",
    "succeeded_max": "most succeeded jobs kept. Default 100000",
    "succeeded_bytes": "most bytes of succeeded jobs kept. Default 268435456",
    "failed_seconds": "seconds that failed jobs are kept. Default 2592000",
    "failed_max": "most failed jobs kept. Default 100000",
    "failed_bytes": "most bytes of failed jobs kept. Default 268435456",
    "cancelled_seconds": "seconds that cancelled jobs are kept. Default 86400",
    "cancelled_max": "most cancelled jobs kept. Default 10000",
    "cancelled_bytes": "most bytes of cancelled jobs kept. Default 67108864",
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

    paused: bool | None = Field(
        default=None, description="hand out no job of this queue. Default false"
    )
    paused_types: Annotated[list[str], Field(max_length=1000)] | None = Field(
        default=None,
        description="hand out no job of these types. Default: none",
        json_schema_extra={"items": {"type": "string", "pattern": NAME}},
    )
    strict_types: bool | None = Field(
        default=None,
        description="refuse submissions over REST of a job type that no worker has published (422 "
        "unknown_job_type); other API processes hear of a change within 5 seconds. Default false",
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
    strict_types: bool = Field(description="job types that no worker has published are refused")
    counts: dict[str, int] = Field(description="jobs by state")
    head_since: Timestamp = Field(
        description="since when the job that has waited longest at the head of a line may run"
    )
    head_age: float | None = Field(description="the same as an age, in seconds")
    workers: int = Field(description="live workers that serve this queue")
    holders: int = Field(description="workers that hold jobs of it")
    quarantined: int = Field(description="broken items that were set aside")
    types: list[Line] = Field(description="waiting lines")
    settings: QueueSettings = Field(description="what differs from the defaults")  # type: ignore[valid-type]  # made at run time


class QueueList(BaseModel):
    """Every queue."""

    queues: list[Queue] = Field(description="by name")


class Worker(BaseModel):
    """A worker as it tells about itself: a process of ``taskq worker``, or a lease over HTTP."""

    id: str = Field(description="single use: new at each start, and for each lease")
    kind: Literal["process", "http"] | str = Field(
        description="`process`, or `http` for a lease: its host, pid and version are not known"
    )
    label: str | None = Field(description="the name that a worker over HTTP gave itself")
    host: str = Field(description="machine; empty where it is not known")
    pid: int | None = Field(description="process")
    supervisor_pid: int | None = Field(description="its parent")
    version: str = Field(description="of taskq; empty where it is not known")
    state: Literal["running", "quiet", "stopping"] | str = Field(description="what it is doing")
    started_at: Timestamp = Field(description="start")
    seen_at: Timestamp = Field(description="last sign of life")
    queues: list[str] = Field(description="queues it serves")
    job_types: list[str] = Field(description="types it runs; `*`: whatever waits")
    slots: int = Field(description="jobs it runs at once, at most")
    busy: int = Field(description="jobs it runs now")
    memory_bytes: int | None = Field(
        description="resident memory of the process and of all below it; null: it is not known"
    )
    lease_expires_at: Timestamp = Field(
        description="when its lease would run out, were it not renewed: its jobs would go to others then; "
        "null: it runs nothing, or it is not known"
    )


class WorkerList(BaseModel):
    """Workers that were seen lately."""

    workers: list[Worker] = Field(description="in the order of their last sight")


class JobType(BaseModel):
    """A job type as workers publish it."""

    job_type: str = Field(description="its name")
    description: str | None = Field(description="what it does, in the words of its author")
    payload_schema: Any = Field(
        description="JSON Schema of its payload: a submission over REST that does not fit is refused "
        "(422 invalid_payload); null: any payload is taken"
    )
    schema_problem: str | None = Field(
        description="why payloads are not held against the schema; null: they are, or there is none"
    )
    queue: str | None = Field(description="where its author lets it stand by default")
    max_attempts: int | None = Field(description="runs after which it ends failed, by default")
    timeout: float | None = Field(description="seconds that a run may take by default; 0: no limit")
    workers: int = Field(description="live worker processes that run it; 0: its jobs wait")
    queues: list[str] = Field(description="queues in which they run it")
    wait_ms: Latency | None = Field(
        description="from eligible to start over the last 10 minutes in its own queue; null: no run"
    )
    run_ms: Latency | None = Field(description="how long its runs took, likewise")
    published: Any = Field(description="all that workers say about it")


class JobTypeList(BaseModel):
    """Job types that workers have published."""

    job_types: list[JobType] = Field(description="by name")
