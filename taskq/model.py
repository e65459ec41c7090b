"""Frozen values that carry data between the layers; no behaviour, no connection."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from taskq.states import State


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as it is asked for; checked by ``calls.enqueue`` before anything is sent.

    ``payload`` is JSON text. Times ending in ``_ms`` are milliseconds; ``run_at_ms`` and
    ``expires_at_ms`` count from the Unix epoch, the others from the moment of storing.
    ``check`` marks a submission that may be a repeat of an older one; ``durable`` one whose answer must mean
    that it is on disk. Neither is stored.
    """

    id: str
    job_type: str
    payload: bytes = b"{}"
    priority: int = 0
    delay_ms: int | None = None
    run_at_ms: int | None = None
    expires_ms: int | None = None
    expires_at_ms: int | None = None
    unique: str | None = None
    digest: str | None = None
    max_attempts: int | None = None
    timeout_ms: int | None = None
    result_ttl_ms: int | None = None
    keep_payload: bool = False
    retried_from: str | None = None
    traceparent: str | None = None
    """Trace context of the submission (W3C), where there is one."""
    check: bool = False
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one submission. ``outcome`` is the script's word; ``state`` the job's state now."""

    outcome: str
    state: State | None = None
    holder: str | None = None

    @property
    def created(self) -> bool:
        return self.outcome in ("QUEUED", "SCHEDULED")

    @property
    def known(self) -> bool:
        """Stored now or by an earlier try."""
        return self.created or self.outcome == "EXISTS"


class Claimed(NamedTuple):
    """One job in a worker's hands. ``fence`` names this run and no other, ever.

    A tuple, since a worker makes one for every job: a frozen dataclass costs five times as much to make.
    """

    ulid: str
    fence: str
    job_type: str
    payload: bytes
    attempts: int
    failures: int
    crashes: int
    lost: int
    max_attempts: int | None
    timeout_ms: int | None
    created_at: int
    priority: int
    result_ttl_ms: int | None
    traceparent: str | None = None

    @property
    def suspect(self) -> bool:
        """It was there when a process died, or was lost again and again."""
        return self.crashes > 0 or self.lost >= 3


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Answer to a claim: ``status`` is ``OK``, ``LOST``, ``STALE`` or ``TOO_OLD``.

    ``now`` is the server's clock in ms; ``next_score`` the head of what was left, ``next_due`` when the
    next delayed job is due (ms), None where there is none.
    """

    status: str
    now: float = 0.0
    next_score: float | None = None
    next_due: float | None = None
    repeated: bool = False
    jobs: tuple[Claimed, ...] = ()


class LeaseRecord(NamedTuple):
    """The record of a lease over HTTP. ``name`` is the digest of its id, which only the client is told."""

    name: str
    lease: str
    worker: str
    owner: str
    label: str
    lease_ms: int
    claim: str = ""
    """What became of its claim: ``answered``, ``closed`` (handed back), or '' while that is open."""


class HeldRun(NamedTuple):
    """A run as it stands in its worker's list; ``started_at`` in ms by Redis's clock."""

    job: Claimed
    started_at: int | None
    cancel: bool


@dataclass(frozen=True, slots=True)
class HeldReply:
    """What a worker holds: ``status`` is ``OK`` or ``LOST``; ``now`` and ``lease_until`` in ms."""

    status: str
    now: float = 0.0
    lease_until: float | None = None
    runs: tuple[HeldRun, ...] = ()


class OverdueRun(NamedTuple):
    """A run of a lease that is past its time."""

    worker: str
    ulid: str
    fence: str
    failures: int
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class Beat:
    """Answer to one worker's heartbeat: ``OK``, ``LOST`` or ``BROKEN``; the length of its list there, and
    the ulids that were asked to stop."""

    status: str
    length: int = 0
    cancel: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reaped:
    """Answer to a reap. ``more`` asks for another call."""

    status: str
    more: bool
    workers: int
    jobs: int
    ended: int


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Answer to a reconcile: how many ids went back in line, and which held ones are not the caller's."""

    status: str
    released: int = 0
    not_mine: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TypeDepth:
    """One waiting line: its type, depth, and since when (ms) its head is eligible."""

    job_type: str
    waiting: int
    head_since: int | None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One look at a queue. ``counts`` has every state and ``workers`` and ``quarantined``."""

    name: str
    now: float
    counts: dict[str, int]
    types: tuple[TypeDepth, ...]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """What a queue has counted since ever (``word``, ``word:type`` or ``word:type:bucket``), when the first
    delayed job is due, for how long ended jobs are recognised, and the last tick of each duty. All in ms."""

    now: float
    counters: dict[str, int]
    first_due: float | None
    dedup_window: float
    ticks: dict[str, float]


@dataclass(frozen=True)
class Job:
    """A stored job as people see it. Times are ms since the epoch; ``payload`` and ``result`` JSON text,
    None when not kept."""

    # Without slots, so that the rows of a list can be made at once and not field by field.

    id: str
    queue: str
    ulid: str
    job_type: str
    state: State
    priority: int = 0
    payload: bytes | None = None
    result: bytes | None = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    progress: dict[str, Any] | None = None
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    lost: int = 0
    max_attempts: int | None = None
    timeout_ms: int | None = None
    unique_key: str | None = None
    worker: str | None = None
    fence: int | None = None
    cancel_requested: bool = False
    created_at: int | None = None
    eligible_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    retried_from: str | None = None
    fingerprint: str | None = None
    stub: bool = False
    history: tuple[dict[str, Any], ...] = ()
    log: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one kind in a queue: ``count`` failed runs, of which ``failed`` were their job's last.

    Times are ms since the epoch; ``error`` and ``job_id`` are of the latest.
    """

    fingerprint: str
    queue: str
    job_type: str
    signature: str
    error: dict[str, Any] | None
    count: int
    failed: int
    first_at: int
    last_at: int
    job_id: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands at ``now`` (ms). ``score`` is its place in line, or when it is due (ms); None
    where it stands in neither. ``before`` counts by type those that come first."""

    now: float
    job: Job | None
    score: float | None
    before: dict[str, int]
    aging_ms: int
    paused: bool
    paused_types: tuple[str, ...]
