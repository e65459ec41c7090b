"""Leases over HTTP: what one is made of, and how long its runs may take. No connection.

A lease is one worker id, used for one claim in one queue. Its id is a secret that only the client is told;
keys, histories and lists of workers show the worker id, which is made of the label and the secret's digest.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable

from taskq.calls import Failure
from taskq.model import Claimed, HeldRun, LeaseRecord, OverdueRun
from taskq.retry import Backoff
from taskq.tasks import DEFAULT_MAX_ATTEMPTS, DEFAULT_TIMEOUT_SECONDS

DEFAULT_TIMEOUT_MS = round(DEFAULT_TIMEOUT_SECONDS * 1000)
"""Of a run whose job says nothing: what its task says is known to Python workers only."""
LOOK_MS = 3_600_000
"""A lease's runs are looked at this often at least."""
KEEP_MS = 600_000
"""A lease is remembered so long after it ran out: until then what comes late is told what became of it.
Shorter than a dead worker is remembered, so that no id comes back to life."""
SECRET_BYTES = 20


def make(queue: str, owner: str, label: str, lease_ms: int) -> LeaseRecord:
    """A new lease that nobody can guess."""
    lease = f"{queue}:{secrets.token_hex(SECRET_BYTES)}"
    name = name_of(lease)
    return LeaseRecord(name, lease, f"{label or 'lease'}:http:{name}", owner, label, lease_ms)


def name_of(lease: str) -> str:
    """The digest of a lease's id (128 bits), under which its record stands."""
    return hashlib.sha256(lease.encode()).hexdigest()[:32]


def timeout_ms(job: Claimed) -> int:
    """How long a run may take; 0: no limit."""
    return DEFAULT_TIMEOUT_MS if job.timeout_ms is None else job.timeout_ms


def deadline(job: Claimed, started_at: float) -> float | None:
    """When a run has to be over, ms; None for no limit."""
    allowed = timeout_ms(job)
    return started_at + allowed if allowed > 0 else None


def is_overdue(run: HeldRun, now: float) -> bool:
    ends_at = deadline(run.job, now if run.started_at is None else run.started_at)
    return ends_at is not None and ends_at <= now


def look_at(jobs: Iterable[Claimed], now: float) -> float:
    """When the first of jobs claimed at ``now`` may be past its time, an hour later at the latest."""
    ends = (deadline(job, now) for job in jobs)
    return min((now + LOOK_MS, *(at for at in ends if at is not None)))


def attempts(max_attempts: int | None) -> int:
    return DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts


def back_off_ms(failures: int) -> int:
    """Delay before the run that follows a failure, after ``failures`` earlier ones."""
    return Backoff().delay_ms(failures + 1)


def timeouts(runs: Iterable[OverdueRun]) -> dict[str, list[Failure]]:
    """By worker: each run as a failure under a reason of its own, which follows the retry policy."""
    out: dict[str, list[Failure]] = {}
    for run in runs:
        failure = Failure(
            run.ulid, run.fence, TIMEOUT, back_off_ms(run.failures), attempts(run.max_attempts)
        )
        out.setdefault(run.worker, []).append(failure)
    return out


TIMEOUT = json.dumps({"type": "Timeout", "message": "ran longer than its timeout allows"}).encode()
"""The error of a run that was past its time: the same as under a Python worker."""
