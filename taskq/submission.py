"""From what a submission says to the job that is stored: options, their checks, ids and digests.

Python, REST and the command line all make their jobs here.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypedDict

from taskq import codec
from taskq.calls import delay_to_ms
from taskq.errors import InvalidInput
from taskq.ids import check_job_type, check_key, check_queue, deterministic_ulid
from taskq.model import JobSpec
from taskq.tasks import TaskOptions


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What a submission may say apart from the task's arguments.

    Seconds: ``delay`` from now, ``expires`` (how long it may wait), ``timeout`` (0: none), ``result_ttl``.
    ``run_at`` needs a time zone. ``unique_key``: while a job with it lives, another is refused
    (``UniqueHeld``). ``idempotency_key``: the same key and body again is the same job. ``durable``: answered
    when the job is on disk; ``DurableUnsupported`` where the server cannot promise that.
    """

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    expires: float | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    result_ttl: float | None = None
    keep_payload: bool | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None
    durable: bool = False


class SubmitKwargs(TypedDict, total=False):
    """``SubmitOptions`` as keyword arguments."""

    queue: str
    priority: int
    delay: float
    run_at: datetime
    expires: float
    max_attempts: int
    timeout: float
    result_ttl: float
    keep_payload: bool
    unique_key: str
    idempotency_key: str
    durable: bool


_NAMES = frozenset(field.name for field in fields(SubmitOptions))


def submit_options(options: SubmitKwargs) -> SubmitOptions:
    """``SubmitOptions`` of keyword arguments. Raises ``InvalidInput`` for one that is unknown."""
    unknown = options.keys() - _NAMES
    if unknown:
        raise InvalidInput(f"no submission option {min(unknown)!r}", field="options")
    return SubmitOptions(**options)


def run_at_ms(when: datetime) -> int:
    """A point in time as ms since the epoch. Raises ``InvalidInput`` when it has no time zone."""
    given: object = when
    if not isinstance(given, datetime):
        raise InvalidInput(f"run_at must be a datetime, not {given!r}", field="run_at")
    if when.utcoffset() is None:
        raise InvalidInput("run_at needs a time zone offset, such as +00:00", field="run_at")
    return round(when.timestamp() * 1000)


def _ms(seconds: float | None, field: str) -> int | None:
    return None if seconds is None else delay_to_ms(seconds, field)


def make_spec(
    ulid: Callable[[], str],
    job_type: str,
    payload: bytes,
    options: SubmitOptions,
    defaults: TaskOptions | None = None,
    *,
    key_owner: str = "",
) -> tuple[str, JobSpec]:
    """(queue, job) of one submission; ``defaults`` are the task's, where it is known here.

    An idempotency key, together with ``key_owner`` and the queue, becomes the id, and the digest of the
    body tells a repeat from another use of the key. Raises ``InvalidInput``.
    """
    check_job_type(job_type)
    base = _NO_DEFAULTS if defaults is None else defaults
    queue = check_queue(base.queue if options.queue is None else options.queue)
    delay = _ms(options.delay, "delay")
    # Also one before 1970 is no more than past.
    run_at = None if options.run_at is None else max(0, run_at_ms(options.run_at))
    expires = _ms(options.expires, "expires")
    timeout = _ms(options.timeout, "timeout")
    result_ttl = _ms(options.result_ttl, "result_ttl")
    key = options.idempotency_key
    if key is None:
        job_id, digest = ulid(), None
    else:
        check_key(key, "idempotency_key")
        job_id = deterministic_ulid(key_owner, queue, key)
        digest = _digest(
            payload,
            job_type=job_type,
            priority=options.priority,
            delay_ms=delay,
            run_at_ms=run_at,
            expires_ms=expires,
            unique=options.unique_key,
            max_attempts=options.max_attempts,
            timeout_ms=timeout,
            result_ttl_ms=result_ttl,
            keep_payload=options.keep_payload,
        )
    return queue, JobSpec(
        id=job_id,
        job_type=job_type,
        payload=payload,
        priority=base.priority if options.priority is None else options.priority,
        delay_ms=delay,
        run_at_ms=run_at,
        expires_ms=_ms(base.expires, "expires") if expires is None else expires,
        unique=options.unique_key,
        digest=digest,
        max_attempts=options.max_attempts,
        timeout_ms=timeout,
        result_ttl_ms=result_ttl,
        keep_payload=bool(options.keep_payload),
        check=key is not None,
        durable=options.durable,
    )


_NO_DEFAULTS = TaskOptions()
_SAME_AS_NOTHING = {"priority": 0, "delay_ms": 0, "keep_payload": False}
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr)


def _digest(payload: bytes, **asked: object) -> str:
    """Fingerprint of what was asked for, the same from every version and front end.

    What says nothing is left out, so that an option of a later version changes no digest; and of the
    task's own defaults nothing goes in, so that a repeat may meet a submitter whose code has others.
    """
    said = {
        name: value
        for name, value in asked.items()
        if value is not None and value != _SAME_AS_NOTHING.get(name)
    }
    return codec.digest(_SORTED.encode(said).encode(), payload)
