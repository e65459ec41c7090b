"""Operating queues and workers: purges, wishes, findings."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from taskq_api.schemas.fields import NAME
from taskq_api.schemas.queues import Worker


class PurgeRequest(BaseModel):
    """What to take out of a queue. Waiting jobs are cancelled with the reason `purged`; ended ones are
    deleted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"what": "waiting"}]}
    )

    what: Literal[
        "waiting", "queued", "scheduled", "retrying", "succeeded", "failed", "cancelled"
    ] = Field(
        default="waiting",
        description="a state, or waiting for queued, scheduled and retrying. Default waiting",
    )
    job_type: str | None = Field(
        default=None,
        description="only this type. Default: all",
        json_schema_extra={"pattern": NAME},
    )
    limit: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=10_000, description="entries to look at, at most, 1 to 10000. Default 10000"
    )
    cursor: str | None = Field(
        default=None, max_length=2000, description="next_cursor of the answer before"
    )


class Purged(BaseModel):
    """What a purge has done."""

    removed: int = Field(description="jobs taken out now")
    more: bool = Field(description="there may be more: send the same with next_cursor")
    next_cursor: str | None = Field(description="give it as cursor to go on; null at the end")


class RetryFailedRequest(BaseModel):
    """Which failed jobs to put back in line: all of the queue where nothing is named."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{}]})

    job_type: str | None = Field(
        default=None,
        description="only this type. Default: all",
        json_schema_extra={"pattern": NAME},
    )
    per_second: Annotated[int | None, Field(ge=1, le=100_000)] = Field(
        default=None, description="jobs a second at most. Default: as fast as it goes"
    )


class Asked(BaseModel):
    """The processes that were asked: all of the same `taskq worker`."""

    workers: list[Worker] = Field(description="as they stood before they heard it")


class Finding(BaseModel):
    """Something that is wrong, may become so, or is good to know."""

    severity: Literal["error", "warning", "info"] = Field(description="how bad it is")
    queue: str = Field(description="the queue; '' for the server and what all queues share")
    subject: str = Field(description="key, job or worker that it is about")
    message: str = Field(description="what is wrong")
    advice: str = Field(description="what to do about it; '' for nothing")
    fix: str = Field(description="what `taskq doctor --fix` would do about it; '' for nothing")
    fixed: bool = Field(description="always false: this only looks")


class Findings(BaseModel):
    """What a page of the consistency check found. No finding and no cursor: all is well."""

    findings: list[Finding] = Field(description="worst first")
    looked_at: int = Field(description="keys that were looked at for this page")
    next_cursor: str | None = Field(description="give it as `cursor` to go on; null at the end")
