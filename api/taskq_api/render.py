"""Answers as bytes: stored JSON goes out as it was stored, never through a parser and back."""

import json
import time
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from taskq import codec
from taskq.apikeys import Scope
from taskq.errors import InvalidInput
from taskq.ids import join_id
from taskq.model import Enqueued, Job, JobSpec
from taskq.present import job_to_dict, rfc3339
from taskq.states import State
from taskq_api.access import Access

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CLEAN_DEPTH = 200


def encode(value: Any) -> bytes:
    """``value`` as JSON. What JSON cannot say (a foreign hand wrote it to Redis) is shown as text."""
    try:
        return _ENCODER.encode(value).encode()
    except (ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        return _ENCODER.encode(_clean(value, _CLEAN_DEPTH)).encode()


def _clean(value: Any, depth: int) -> Any:
    if depth == 0:
        return "nested too deeply to be shown"
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, dict):
        return {_clean(str(k), depth): _clean(v, depth - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, depth - 1) for item in value]
    return value


def json_response(
    body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(body, status, headers, media_type="application/json")


def splice(fields: dict[str, Any], **stored: bytes | None) -> bytes:
    """An object of ``fields`` and of members whose values are stored JSON.

    One that is not JSON becomes null, with its text in a member ``<name>_raw``.
    """
    parts = [encode(fields)[:-1]]
    for name, data in stored.items():
        if data is None:
            parts.append(b',"%s":null' % name.encode())
        elif _is_json(data):
            parts.append(b',"%s":%s' % (name.encode(), data))
        else:
            text = encode(data.decode(errors="replace"))
            parts.append(b',"%s":null,"%s_raw":%s' % (name.encode(), name.encode(), text))
    return b"".join(parts) + b"}"


def _is_json(data: bytes) -> bool:
    try:
        codec.loads(data, max_bytes=len(data))
    except InvalidInput:
        return False
    return True


def job_body(job: Job, access: Access) -> bytes:
    """All that is kept of a job and that a key may see: without the scope ``payload`` neither payload nor
    result, without ``read`` (after a submission) only what it is now."""
    shown = replace(job, payload=None, result=None)
    if not access.may(Scope.READ):
        shown = replace(shown, error=None, progress=None, history=(), log=())
    fields = job_to_dict(shown)
    del fields["payload"], fields["result"]
    if not access.may(Scope.PAYLOAD):
        return encode(fields)
    return splice(fields, payload=job.payload, result=job.result)


def stored_job(queue: str, spec: JobSpec, outcome: Enqueued) -> Job:
    """The job that a submission has just stored, without asking for it; its payload is left out.

    Times are by this process's clock; the stored ones are by Redis's.
    """
    now = time.time_ns() // 1_000_000
    due = spec.run_at_ms if spec.delay_ms is None else now + spec.delay_ms
    return Job(
        id=join_id(queue, spec.id),
        queue=queue,
        ulid=spec.id,
        job_type=spec.job_type,
        state=outcome.state or State.QUEUED,
        priority=spec.priority,
        max_attempts=spec.max_attempts,
        timeout_ms=spec.timeout_ms,
        unique_key=spec.unique,
        created_at=now,
        eligible_at=now if due is None else max(due, now),
        expires_at=None if spec.expires_ms is None else now + spec.expires_ms,
    )


def stored_job_body(job: Job, payload: bytes) -> bytes:
    """``stored_job`` with its payload, which was made here and needs no look."""
    if _is_plain(job):
        created = rfc3339(job.created_at)
        text = _PLAIN % (job.id, job.queue, job.job_type, job.state, job.priority, *[created] * 3)
        return text.encode() + payload + b"}"
    fields = job_to_dict(job)
    del fields["payload"]
    return encode(fields)[:-1] + b',"payload":%s}' % payload


def _is_plain(job: Job) -> bool:
    """Whether all that ``_PLAIN`` takes for empty is empty in a job that was only just stored."""
    return (
        job.eligible_at == job.created_at
        and job.expires_at is None
        and job.max_attempts is None
        and job.timeout_ms is None
        and job.unique_key is None
    )


def _plain() -> str:
    """What most submissions are answered: only eight values in it are ever others, none of which JSON would
    escape. Its payload and the closing brace come last."""
    given = ("id", "queue", "job_type", "state", "priority", "created_at", "eligible_at")
    fields: dict[str, Any] = job_to_dict(Job("", "", "", "", State.QUEUED))
    assert tuple(name for name in fields if name in given) == given
    del fields["payload"]
    fields |= dict.fromkeys(given, "%s") | {"history": [{"at": "%s", "event": "created"}]}
    return encode(fields)[:-1].decode().replace('"priority":"%s"', '"priority":%s') + ',"payload":'


_PLAIN = _plain()


def result_body(job: Job, access: Access) -> bytes:
    """How an ended job ended; the result itself takes the scope ``payload``."""
    fields = {
        "id": job.id,
        "state": job.state.value,
        "error": job.error,
        "reason": job.reason,
        "finished_at": rfc3339(job.finished_at),
    }
    return splice(fields, result=job.result) if access.may(Scope.PAYLOAD) else encode(fields)
