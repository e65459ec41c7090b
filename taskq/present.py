"""Values as JSON shows them: the one conversion behind ``--json`` and the REST API.

Times are RFC 3339 in UTC with milliseconds, durations are seconds, payloads and results are the JSON
that was stored (integers exact).
"""

import functools
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from taskq import codec
from taskq.apikeys import ApiKey
from taskq.audit import Entry
from taskq.calls import SETTINGS
from taskq.errors import InvalidInput
from taskq.inspector import oldest_head, serving, unserved
from taskq.model import Job, QueueInfo
from taskq.registry import WorkerInfo
from taskq.states import State
from taskq.stats import Latency, Statistics, TypeStatistics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTIONS = tuple(f".{ms:03d}Z" for ms in range(1000))
_TIMES = frozenset({"at", "run_at"})
_ENDS = frozenset({"succeeded", "failed", "cancelled", "expired"})
"""Events that say by themselves that the job ended."""


def rfc3339(ms: float | None) -> str | None:
    """``1750000000000`` -> ``"2025-06-15T15:06:40.000Z"``; None for no time, or one past year 9999."""
    return None if ms is None else _moment(ms)


@functools.lru_cache(maxsize=4096)
def _moment(ms: float) -> str | None:
    """Remembered, as a list that is asked for again shows mostly what it did before."""
    try:
        whole, rest = divmod(int(ms), 1000)
        return _second(whole) + _FRACTIONS[rest]
    except (ValueError, OverflowError):
        return None


@functools.lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Without its fraction; the rows of a list have many in common."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def decoded(data: bytes | None) -> Any:
    """Stored JSON as a value. What every reader would not understand alike (a foreign hand wrote it)
    comes as text."""
    if data is None:
        return None
    try:
        return codec.loads(data, max_bytes=len(data))
    except InvalidInput:
        return data.decode(errors="replace")


def job_to_dict(job: Job, *, full: bool = True) -> dict[str, Any]:
    """A job. ``full = False`` is the row of a list: no payload, result, error, progress, history, log."""
    out: dict[str, Any] = {
        "id": job.id,
        "queue": job.queue,
        "job_type": job.job_type,
        "state": job.state,
        "priority": job.priority,
        "attempts": job.attempts,
        "failures": job.failures,
        "crashes": job.crashes,
        "lost": job.lost,
        "created_at": rfc3339(job.created_at),
        "eligible_at": rfc3339(job.eligible_at),
        "started_at": rfc3339(job.started_at),
        "finished_at": rfc3339(job.finished_at),
        "worker": job.worker,
        "reason": job.reason,
        "cancel_requested": job.cancel_requested,
        "fence": job.fence,
        "fingerprint": job.fingerprint,
    }
    if full:
        out |= {
            "payload": decoded(job.payload),
            "result": decoded(job.result),
            "error": job.error,
            "progress": _line(job.progress) if isinstance(job.progress, dict) else job.progress,
            "max_attempts": job.max_attempts,
            "timeout": None if job.timeout_ms is None else job.timeout_ms / 1000,
            "unique_key": job.unique_key,
            "expires_at": rfc3339(job.expires_at),
            "stub": job.stub,
            "history": timeline(job),
            "log": log_lines(job),
        }
    return out


def _time(value: Any) -> float | None:
    """A time in ms; None for what cannot be one: a foreign hand may have written anything."""
    return value if type(value) in (int, float) and math.isfinite(value) else None


def _line(line: dict[str, Any]) -> dict[str, Any]:
    """What was told of a job, with its times as text."""
    return {
        name: rfc3339(_time(value)) if name in _TIMES else value for name, value in line.items()
    }


def log_lines(job: Job) -> list[dict[str, Any]]:
    """What the job's handler told: ``at`` (RFC 3339) and ``line``."""
    return [_log_line(line) for line in job.log]


def _log_line(line: Any) -> dict[str, Any]:
    known = line if isinstance(line, dict) else {}
    text = known.get("line", line)
    return {
        "at": rfc3339(_time(known.get("at"))),
        "line": text if isinstance(text, str) else json.dumps(text, ensure_ascii=False),
    }


def queue_to_dict(info: QueueInfo, workers: Sequence[WorkerInfo]) -> dict[str, Any]:
    """A queue: its counts by state, its waiting lines, who serves it and what is set."""
    counts = dict(info.counts)
    holders, quarantined = counts.pop("workers", 0), counts.pop("quarantined", 0)
    lonely = set(unserved(info, workers))
    oldest = oldest_head(info)
    return {
        "name": info.name,
        "paused": info.settings.get("paused") == "1",
        "paused_types": info.settings.get("paused_types", "").split(),
        "strict_types": info.settings.get("strict_types") == "1",
        "counts": counts,
        "head_since": rfc3339(oldest),
        "head_age": _age(oldest, info.now),
        "workers": len(serving(info.name, workers)),
        "holders": holders,
        "quarantined": quarantined,
        "types": [
            {
                "job_type": line.job_type,
                "waiting": line.waiting,
                "head_since": rfc3339(line.head_since),
                "head_age": _age(line.head_since, info.now),
                "served": line.job_type not in lonely,
            }
            for line in info.types
        ],
        "settings": {name: int(info.settings[name]) for name in SETTINGS if name in info.settings},
    }


def _age(since: int | None, now: float) -> float | None:
    """In seconds; 0 for what a clock that was set back has put into the future."""
    return None if since is None else round(max(0, now - since) / 1000, 3)


def worker_to_dict(worker: WorkerInfo, lease_ends: int | None = None) -> dict[str, Any]:
    """A worker process as it tells about itself, and when its lease would run out (ms)."""
    return {
        "id": worker.id,
        "kind": worker.kind,
        "label": worker.label or None,
        "host": worker.host,
        "pid": worker.pid or None,
        "supervisor_pid": worker.supervisor_pid or None,
        "version": worker.version,
        "state": worker.state,
        "started_at": rfc3339(worker.started_at),
        "seen_at": rfc3339(worker.seen_at),
        "queues": list(worker.queues),
        "job_types": list(worker.types),
        "slots": worker.slots,
        "busy": worker.busy,
        "memory_bytes": worker.memory_bytes or None,
        "lease_expires_at": rfc3339(lease_ends),
    }


def statistics_to_dict(statistics: Statistics) -> dict[str, Any]:
    """A stretch of a queue's past; latencies in ms."""
    return {
        "queue": statistics.queue,
        "since": rfc3339(statistics.since),
        "now": rfc3339(statistics.now),
        "counts": statistics.counts,
        "per_minute": statistics.per_minute,
        "wait_ms": latency_to_dict(statistics.wait),
        "run_ms": latency_to_dict(statistics.run),
        "types": [_type_statistics(of_type) for of_type in statistics.types],
        "series": [
            {"at": rfc3339(point.at), "minutes": point.minutes, "counts": point.counts}
            for point in statistics.series
        ],
    }


def _type_statistics(of_type: TypeStatistics) -> dict[str, Any]:
    return {
        "job_type": of_type.job_type,
        "counts": of_type.counts,
        "wait_ms": latency_to_dict(of_type.wait),
        "run_ms": latency_to_dict(of_type.run),
    }


def latency_to_dict(latency: Latency | None) -> dict[str, float] | None:
    """Percentiles in ms."""
    if latency is None:
        return None
    return {"count": latency.count, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99}


def timeline(job: Job) -> list[dict[str, Any]]:
    """What became of a job, oldest first: ``at`` (RFC 3339), ``event``, and what is known besides.

    An ordinary job has only the times of its hash; what left the ordinary path stands in its history.
    """
    events: list[tuple[float, int, dict[str, Any]]] = []

    def add(ms: float | None, event: str, rank: int, **details: Any) -> None:
        if ms is not None:
            known = {name: value for name, value in details.items() if value is not None}
            events.append((ms, rank, {"at": rfc3339(ms), "event": event, **known}))

    add(job.created_at, "created", 0)
    if job.eligible_at != job.created_at:
        add(job.eligible_at, "due", 1)
    add(job.started_at, "started", 2, attempt=job.attempts, worker=job.worker)
    told = False
    for line in job.history:
        at, event = _told(line)
        if at == job.finished_at:
            event = _as_it_ended(job, event)
            told = told or event["event"] in _ENDS
        events.append((at, 3, event))
    if not told:
        add(job.finished_at, job.state.value, 4, reason=reason(job))
    if job.finished_at is None:
        add(job.expires_at, "expires", 5)
    # What happened within one millisecond comes in the order in which it can happen.
    return [event for _, _, event in sorted(events, key=lambda known: known[:2])]


def reason(job: Job) -> str | None:
    """Why a job ended so, where that says more than its state."""
    return None if job.reason == job.state.value else job.reason


def was_stopped(error: Any) -> bool:
    """Whether this error only says that a run was stopped because its job was cancelled."""
    return isinstance(error, dict) and error.get("type") == "Cancelled"


def _as_it_ended(job: Job, event: dict[str, Any]) -> dict[str, Any]:
    """A run that ended because its job was cancelled did not fail: it is how the job was cancelled."""
    if job.state is not State.CANCELLED or event["event"] != "failed":
        return event
    known = {name: value for name, value in event.items() if name != "failures"}
    if was_stopped(known.get("error")):
        del known["error"]
    return {**known, "event": "cancelled"}


def _told(line: Any) -> tuple[float, dict[str, Any]]:
    """(ms, event) of a line of history. One that a foreign hand wrote comes first, with what it says."""
    known: dict[str, Any] = _line(line) if isinstance(line, dict) else {"message": json.dumps(line)}
    at = _time(line.get("at")) if isinstance(line, dict) else None
    event = known.pop("event", None)
    known.pop("at", None)
    error = known.get("error")
    if isinstance(error, dict):
        # Only the last one keeps its traceback, in the job's `error`.
        known["error"] = {name: value for name, value in error.items() if name != "traceback"}
    shown = {"at": rfc3339(at), "event": event if isinstance(event, str) else "unreadable", **known}
    return -math.inf if at is None else at, shown


def key_to_dict(key: ApiKey) -> dict[str, Any]:
    """An API key; null for a list means all of them. Its secret is not known to anybody but its user."""
    return {
        "id": key.id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "queues": None if key.queues is None else sorted(key.queues),
        "job_types": None if key.job_types is None else sorted(key.job_types),
        "rate": None if key.rate is None else str(key.rate),
        "created_at": rfc3339(key.created_at),
        "expires_at": rfc3339(key.expires_at),
        "used_at": rfc3339(key.used_at),
    }


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    """A line of the audit trail."""
    return {
        "id": entry.id,
        "at": rfc3339(entry.at),
        "who": entry.who,
        "name": entry.name,
        "what": entry.what,
        "target": entry.target,
        "parameters": entry.parameters,
        "outcome": entry.outcome,
    }
