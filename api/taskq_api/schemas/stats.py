"""Statistics of queues."""

from pydantic import BaseModel, Field

from taskq_api.schemas.fields import Timestamp


class Latency(BaseModel):
    """Percentiles in milliseconds, from a histogram of half octaves: right to within a fifth."""

    count: int = Field(description="runs in it")
    p50: float = Field(description="half were no longer than this")
    p95: float = Field(description="95 % were no longer than this")
    p99: float = Field(description="99 % were no longer than this")


class TypeStatistics(BaseModel):
    """What happened to the jobs of one type."""

    job_type: str = Field(description="the type; `other` sums those beyond the room of a minute")
    counts: dict[str, int] = Field(
        description="succeeded, failed, cancelled: jobs that ended; raised, retrying, crashes, lost: runs"
    )
    wait_ms: Latency | None = Field(description="from eligible to started")
    run_ms: Latency | None = Field(description="from started to reported")


class Point(BaseModel):
    """A step of the series."""

    at: Timestamp = Field(description="its beginning")
    minutes: int = Field(description="its length: 1, or 10 for what is older than two hours")
    counts: dict[str, int] = Field(description="over all types")


class Statistics(BaseModel):
    """A stretch of a queue's past, and what waits now."""

    queue: str = Field(description="the queue")
    since: Timestamp = Field(description="beginning of the stretch")
    now: Timestamp = Field(description="its end, by Redis's clock")
    waiting: int = Field(description="jobs in line now")
    oldest_waiting: float = Field(description="seconds that the oldest head of a line has waited")
    running: int = Field(description="jobs that run now")
    counts: dict[str, int] = Field(
        description="over all types; besides those of a type: enqueued, retried (by people), "
        "leases_expired, fenced_out, reconciled, trimmed, quarantined"
    )
    per_minute: dict[str, float] = Field(description="the same as rates")
    wait_ms: Latency | None = Field(description="from eligible to started")
    run_ms: Latency | None = Field(description="from started to reported")
    types: list[TypeStatistics] = Field(description="by type")
    series: list[Point] = Field(description="over time, oldest first")


class StatisticsList(BaseModel):
    """Statistics of queues."""

    queues: list[Statistics] = Field(description="by name")
    left_out: int = Field(description="queues that are not in this answer; name them")
