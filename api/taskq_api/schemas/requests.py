"""What clients send to have jobs stored."""

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from taskq.calls import MAX_ITEMS
from taskq.ordering import PRIORITY_MAX, PRIORITY_MIN
from taskq.submission import SubmitOptions
from taskq_api.schemas.fields import KEY, NAME, QUEUE, SECONDS_MAX, Seconds

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def point_in_time(value: Any) -> Any:
    """A time as JSON says it. Raises ``ValueError`` for one without an offset."""
    if value is None:
        return None
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be RFC 3339 with an offset, such as 2030-01-31T08:00:00Z")
    return datetime.fromisoformat(value.upper())


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
    run_at: Annotated[datetime | None, BeforeValidator(point_in_time)] = Field(
        default=None,
        description="point in time from which it may run, RFC 3339 with an offset; one in the past is "
        "now. Default now; not with delay",
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
        json_schema_extra={"pattern": KEY},
        description="while a job with this key waits or runs in the queue, another is refused (409 "
        "unique_held). No braces or control characters. Default none",
    )

    durable: bool = Field(
        default=False,
        description="answer only when the job is on disk. Needs a server with `appendfsync always`; "
        "else 503 durable_unsupported, and nothing is stored. Default false",
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
            durable=self.durable,
        )


class BatchItem(JobRequest):
    """A job of a batch."""

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        json_schema_extra={"pattern": KEY},
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
