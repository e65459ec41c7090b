"""Positions, failures by kind, bulk actions, job types and the server as JSON shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from taskq.bulk import Bulk, Preview
from taskq.doctor import Finding
from taskq.model import ErrorGroup
from taskq.position import Position
from taskq.present import latency_to_dict, rfc3339
from taskq.registry import WorkerInfo
from taskq.selection import BulkFilter
from taskq.server import ServerFacts, ServerReport
from taskq.stats import TypeStatistics


def position_to_dict(position: Position) -> dict[str, Any]:
    """Why a job waits."""
    reasons = [
        {"code": reason.code, "message": reason.message, "until": rfc3339(reason.until)}
        for reason in position.reasons
    ]
    return {
        "id": position.id,
        "state": position.state.value,
        "job_type": position.job_type,
        "reason": position.reason.code,
        "reasons": reasons,
        "rank": position.rank,
        "ahead": position.ahead,
        "priority": position.priority,
        "effective_priority": position.effective_priority,
        "eligible_at": rfc3339(position.eligible_at),
        "estimated_start": rfc3339(position.estimated_start),
        "estimate": position.estimate,
        "per_minute": position.per_minute,
        "workers": position.workers,
        "free_slots": position.free_slots,
    }


def error_group_to_dict(group: ErrorGroup) -> dict[str, Any]:
    """Failures of one kind."""
    return {
        "fingerprint": group.fingerprint,
        "queue": group.queue,
        "job_type": group.job_type,
        "signature": group.signature,
        "count": group.count,
        "failed": group.failed,
        "first_seen": rfc3339(group.first_at or None),
        "last_seen": rfc3339(group.last_at or None),
        "sample": group.job_id,
        "error": group.error,
    }


def bulk_to_dict(bulk: Bulk) -> dict[str, Any]:
    """A bulk action as it stands."""
    return {
        "id": bulk.id,
        "queue": bulk.queue,
        "action": bulk.action,
        "state": bulk.state,
        "filter": filter_to_dict(bulk.filter),
        "priority": bulk.priority,
        "per_second": bulk.per_second,
        "started_at": rfc3339(bulk.cutoff),
        "finished_at": rfc3339(bulk.finished_at),
        "looked_at": bulk.looked,
        "matched": bulk.matched,
        "done": bulk.done,
        "skipped": bulk.skipped,
        "error": bulk.error,
    }


def filter_to_dict(wanted: BulkFilter) -> dict[str, Any]:
    """Which jobs a bulk action is about; of ids how many."""
    return {
        "states": [state.value for state in wanted.states],
        "job_type": wanted.job_type or None,
        "fingerprint": wanted.fingerprint or None,
        "since": rfc3339(wanted.since),
        "before": rfc3339(wanted.before),
        "ids": len(wanted.ids),
    }


def preview_to_dict(preview: Preview) -> dict[str, Any]:
    """How many jobs a bulk action would be about."""
    return {
        "matched": preview.matched,
        "looked_at": preview.looked,
        "complete": preview.complete,
        "sample": list(preview.sample),
    }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Something that doctor found."""
    return asdict(finding)


def job_type_to_dict(
    name: str,
    published: Any,
    workers: Sequence[WorkerInfo],
    past: Mapping[tuple[str, str], TypeStatistics],
    problem: str | None,
) -> dict[str, Any]:
    """A job type as workers publish it, and who runs it."""
    about = published if isinstance(published, dict) else {}
    running = [w for w in workers if name in w.types and w.state not in ("quiet", "stopping")]
    seen = past.get((str(about.get("queue")), name))
    return {
        "job_type": name,
        "description": about.get("description") or None,
        "payload_schema": about.get("schema"),
        "schema_problem": problem,
        "queue": about.get("queue"),
        "max_attempts": about.get("max_attempts"),
        "timeout": about.get("timeout"),
        "workers": len(running),
        "queues": sorted({queue for worker in running for queue in worker.queues}),
        "wait_ms": latency_to_dict(seen.wait if seen else None),
        "run_ms": latency_to_dict(seen.run if seen else None),
        "published": published,
    }


def server_to_dict(namespace: str, report: ServerReport, facts: ServerFacts) -> dict[str, Any]:
    """A Redis server: what was judged of it, and what it tells about itself."""
    shown = asdict(facts)
    return {
        "namespace": namespace,
        "flavour": report.flavour,
        "version": report.version,
        "problems": list(report.problems),
        "warnings": list(report.warnings),
        "unknown": list(report.unknown),
        "uptime": shown.pop("uptime_seconds"),
        **shown,
    }
