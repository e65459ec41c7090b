"""Storing jobs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from taskq import tracing
from taskq.calls.base import TEN_YEARS_MS, Arg, Call, make, text_of
from taskq.codec import MAX_BYTES
from taskq.errors import InvalidInput, PayloadTooLarge
from taskq.ids import check_job_type, check_key
from taskq.keys import QueueKeys
from taskq.model import Enqueued, JobSpec
from taskq.ordering import PRIORITY_MAX, PRIORITY_MIN
from taskq.states import State

MAX_ITEMS = 1000
"""Most jobs in one submission call."""
_LATEST_MS = 4_417_804_800_000  # 2109-12-30
_TEN_YEARS = "at most ten years"


def check_spec(spec: JobSpec, max_bytes: int = MAX_BYTES) -> None:
    """Refuses what must not be stored. Raises ``InvalidInput`` naming the field."""
    check_job_type(spec.job_type)
    check_priority(spec.priority)
    if len(spec.payload) > max_bytes:
        raise PayloadTooLarge(
            f"payload is {len(spec.payload)} bytes, the limit is {max_bytes}", field="payload"
        )
    if spec.unique is not None:
        check_key(spec.unique, "unique_key")
    if spec.traceparent is not None and tracing.parse(spec.traceparent) is None:
        raise InvalidInput("traceparent is none of version 00", field="traceparent")
    if spec.delay_ms is not None and spec.run_at_ms is not None:
        raise InvalidInput("give delay or run_at, not both", field="delay")
    for field, value, low, high, wanted in (
        ("delay", spec.delay_ms, 0, TEN_YEARS_MS, _TEN_YEARS),
        ("run_at", spec.run_at_ms, 0, _LATEST_MS, "a time before 2110"),
        ("expires", spec.expires_ms, 1, TEN_YEARS_MS, "more than 0, and at most ten years"),
        ("max_attempts", spec.max_attempts, 1, 1_000_000, "a whole number from 1 to 1000000"),
        ("timeout", spec.timeout_ms, 0, TEN_YEARS_MS, _TEN_YEARS),
        ("result_ttl", spec.result_ttl_ms, 0, TEN_YEARS_MS, _TEN_YEARS),
    ):
        number: object = value
        if number is not None and (type(number) is not int or not low <= number <= high):
            raise InvalidInput(f"{field} must be {wanted}", field=field)


def check_priority(priority: object) -> int:
    """An integer from -100 to 100; higher is sooner. Raises ``InvalidInput``."""
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not PRIORITY_MIN <= priority <= PRIORITY_MAX
    ):
        raise InvalidInput(
            f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX} (higher is sooner), "
            f"not {priority!r}",
            field="priority",
        )
    return priority


_OPTIONS = (
    "delay_ms",
    "run_at_ms",
    "expires_ms",
    "expires_at_ms",
    "unique",
    "digest",
    "max_attempts",
    "timeout_ms",
    "result_ttl_ms",
    "keep_payload",
    "retried_from",
    "traceparent",
    "check",
)


def _options(spec: JobSpec) -> str:
    options = {
        name: value
        for name in _OPTIONS
        if (value := getattr(spec, name)) is not None and value is not False
    }
    return json.dumps(options, separators=(",", ":")) if options else ""


def enqueue(
    keys: QueueKeys, specs: Sequence[JobSpec], *, now: float | None = None
) -> Call[list[Enqueued]]:
    """Stores up to 1,000 jobs of one queue; ``spec.id`` is the ULID alone. One outcome per job."""
    if not 1 <= len(specs) <= MAX_ITEMS:
        raise InvalidInput(f"1 to {MAX_ITEMS} jobs a call, not {len(specs)}", field="jobs")
    items: list[Arg] = []
    for spec in specs:
        items += (spec.id, spec.job_type, spec.payload, spec.priority, _options(spec))

    def again() -> Call[list[Enqueued]]:
        # A repeat may meet jobs that have come and gone since: it must look at their stubs too.
        return enqueue(keys, [replace(spec, check=True) for spec in specs], now=now)

    return make("enqueue", keys, now, (), items, _parse_enqueued, again)


def _parse_enqueued(reply: Any) -> list[Enqueued]:
    out = []
    for item in reply:
        if isinstance(item, list):
            word, detail = text_of(item[0]), text_of(item[1])
            out.append(
                Enqueued(word, State(detail)) if word == "EXISTS" else Enqueued(word, holder=detail)
            )
        else:
            word = text_of(item)
            state = State(word.lower()) if word in ("QUEUED", "SCHEDULED") else None
            out.append(Enqueued(word, state))
    return out
