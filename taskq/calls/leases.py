"""What stands behind a lease over HTTP: its record, what it holds, and whose time is over."""

from collections.abc import Sequence
from typing import Any, Literal

from taskq.calls.base import Call, check_worker, make, text_of
from taskq.calls.worker import parse_claimed
from taskq.errors import BrokenKey
from taskq.keys import QueueKeys
from taskq.model import HeldReply, HeldRun, LeaseRecord, OverdueRun


def lease(
    keys: QueueKeys,
    record: LeaseRecord,
    *,
    key: str = "",
    request: str = "",
    keep_ms: int,
    now: float | None = None,
) -> Call[LeaseRecord | None]:
    """Opens a lease, or answers the one that the same ``key`` has opened; None for another request.

    ``key`` and ``request`` are digests. Raises ``BrokenKey`` when parsed.
    """

    def parse(reply: Any) -> LeaseRecord | None:
        if _status(reply) == "CONFLICT":
            return None
        name, lease_id, worker, claim = (text_of(part) for part in reply[1:])
        return LeaseRecord(
            name, lease_id, worker, record.owner, record.label, record.lease_ms, claim
        )

    fixed = (
        record.name,
        record.lease,
        check_worker(record.worker),
        record.owner,
        record.label,
        record.lease_ms,
        key,
        request,
        keep_ms,
    )
    return make("lease", keys, now, fixed, (), parse)


def settle(
    keys: QueueKeys,
    name: str,
    word: Literal["answered", "closed"],
    *,
    look_at: float,
    keep_ms: int,
    now: float | None = None,
) -> Call[str]:
    """Says what becomes of a lease's claim; answers the word that stands (``GONE``: no such record).

    ``look_at`` is when its first run may be past its time, ms by Redis's clock.
    """
    return make("settle", keys, now, (name, word, repr(float(look_at)), keep_ms), (), _status)


def overdue(
    keys: QueueKeys, *, timeout_ms: int, limit: int = 20, now: float | None = None
) -> Call[tuple[bool, list[OverdueRun]]]:
    """Runs of leases that are past their time, to be failed by the caller: (more, runs).

    ``timeout_ms`` is for jobs that have none of their own.
    """

    def parse(reply: Any) -> tuple[bool, list[OverdueRun]]:
        _status(reply)
        return bool(reply[1]), [_parse_overdue(row) for row in reply[2]]

    return make("overdue", keys, now, (limit, timeout_ms), (), parse)


def held(
    keys: QueueKeys, worker: str, *, full: bool = False, now: float | None = None
) -> Call[HeldReply]:
    """What a worker holds, at most 250 runs; ``full`` with their payloads."""

    def parse(reply: Any) -> HeldReply:
        status = _status(reply)
        if status != "OK":
            return HeldReply(status)
        _, at, until, runs = reply
        return HeldReply(
            "OK",
            float(at),
            float(until) if until else None,
            tuple(_parse_held(run) for run in runs),
        )

    return make("held", keys, now, (check_worker(worker), 1 if full else 0), (), parse)


def _status(reply: Any) -> str:
    status = text_of(reply[0])
    if status == "BROKEN_KEY":
        raise BrokenKey(f"the key {text_of(reply[1])!r} has the wrong type: run `taskq doctor`")
    return status


def _parse_overdue(row: Sequence[bytes]) -> OverdueRun:
    worker, ulid, fence, failures, max_attempts = (text_of(part) for part in row)
    return OverdueRun(worker, ulid, fence, _int(failures) or 0, _int(max_attempts))


def _int(text: str) -> int | None:
    """A number of a hash that people can write; None for what is none."""
    return int(text) if text.isdecimal() else None


def _parse_held(row: Any) -> HeldRun:
    started_at = _int(text_of(row[13]))
    return HeldRun(parse_claimed(row[:13]), started_at, row[14] == 1)
