"""What a worker sends: claims, signs of life, and how runs went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from taskq.calls.base import Arg, Call, check_word, check_worker, make, optional_int, text_of, words
from taskq.codec import MAX_BYTES
from taskq.errors import BrokenKey, InvalidInput
from taskq.fingerprint import signature
from taskq.keys import QueueKeys
from taskq.model import Beat, Claimed, ClaimReply, Reconciled

PROTOCOL = 1
"""Version of the worker's side. A queue may ask for a higher one (``min_protocol`` in its config)."""

MAX_CRASHES = 3
"""Crashes that fail a job. After its first a job is a suspect and runs in a process of its own, so the
others are its own doing; a neighbour of a culprit has one at most of each such meeting."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed: retry after ``delay_ms`` unless failures reach ``max_attempts`` (0: no retry).

    ``error`` is JSON text.
    """

    ulid: str
    fence: str
    error: bytes
    delay_ms: int
    max_attempts: int


class Success(NamedTuple):
    """A run that succeeded. ``result`` is JSON text, ``result_ttl_ms`` None keeps it as retention says.

    A tuple, like all that a worker makes for every job.
    """

    ulid: str
    fence: str
    result: bytes
    result_ttl_ms: int | None = None
    keep_payload: bool = False


def claim(
    keys: QueueKeys,
    worker: str,
    call: int,
    most: int,
    job_types: Sequence[str],
    *,
    lease_ms: int,
    upper: float | None = None,
    max_bytes: int = MAX_BYTES,
    alone: bool = False,
    now: float | None = None,
) -> Call[ClaimReply]:
    """Takes up to ``most`` jobs of ``job_types``; ``most = 0`` only looks. With ``alone`` a suspect comes
    by itself.

    ``call`` numbers this worker's claims, from 1 up. Send it again with the same number until an answer
    arrives; only then use the next. Raises ``BrokenKey`` when parsed: nothing was taken then.
    """
    fixed = (
        check_worker(worker),
        call,
        most,
        "" if upper is None else repr(upper),
        lease_ms,
        max_bytes,
        PROTOCOL,
        1 if alone else 0,
    )
    return make("claim", keys, now, fixed, job_types, _parse_claim)


def _parse_claim(reply: Any) -> ClaimReply:
    status = text_of(reply[0])
    if status == "BROKEN_KEY":
        raise BrokenKey(f"the key {text_of(reply[1])!r} has the wrong type: run `taskq doctor`")
    if status != "OK":
        return ClaimReply(status)
    _, now, head, due, repeated, jobs = reply
    return ClaimReply(
        "OK",
        float(now),
        float(head) if head else None,
        float(due) if due else None,
        bool(repeated),
        _parse_jobs(jobs),
    )


def _parse_jobs(jobs: Any) -> tuple[Claimed, ...]:
    try:
        return tuple([_parse_claimed(job) for job in jobs])
    except ValueError:
        # A job whose numbers were spoilt in Redis must not keep its neighbours from their worker.
        return tuple([parse_claimed(job) for job in jobs])


def parse_claimed(job: Any) -> Claimed:
    """A claimed job; a number that was spoilt in Redis counts as not set."""
    return _parse_claimed([*job[:4], *(_number(value) for value in job[4:])])


def _number(value: bytes) -> bytes:
    return value if value.lstrip(b"-").isdigit() else b"0" if value else b""


def _parse_claimed(v: Any) -> Claimed:
    return Claimed(
        v[0].decode(),
        v[1].decode(),
        v[2].decode(),
        v[3],
        int(v[4]),
        int(v[5]),
        int(v[6]),
        int(v[7]),
        optional_int(v[8]),
        int(v[9]) if v[9] else None,
        int(v[10]),
        int(v[11]),
        int(v[12]) if v[12] else None,
        v[13].decode(errors="replace") if len(v) > 13 and v[13] else None,
    )


def finish(
    keys: QueueKeys, worker: str, successes: Sequence[Success], *, now: float | None = None
) -> Call[list[str]]:
    """Reports successes; one word per item (see ``finish.lua``)."""
    items: list[Arg] = []
    for s in successes:
        ttl = "" if s.result_ttl_ms is None else s.result_ttl_ms
        items += (s.ulid, s.fence, s.result, ttl, 1 if s.keep_payload else 0)
    return make("finish", keys, now, (check_worker(worker),), items, words)


def fail(
    keys: QueueKeys, worker: str, failures: Sequence[Failure], *, now: float | None = None
) -> Call[list[str]]:
    """Reports failures; one word per item (see ``fail.lua``)."""
    items: list[Arg] = []
    for f in failures:
        kind, brief = signature(f.error)
        items += (f.ulid, f.fence, f.error, f.delay_ms, f.max_attempts, kind, brief)
    return make("fail", keys, now, (check_worker(worker),), items, words)


def crash(
    keys: QueueKeys,
    worker: str,
    runs: Sequence[tuple[str, str, str]],
    *,
    max_crashes: int = MAX_CRASHES,
    now: float | None = None,
) -> Call[list[str]]:
    """Reports runs (ulid, fence, reason in our words) whose own process died; one word per item."""
    items = [x for ulid, fence, reason in runs for x in (ulid, fence, check_word(reason, "reason"))]
    return make("crash", keys, now, (check_worker(worker), max_crashes), items, words)


def release(
    keys: QueueKeys,
    worker: str,
    runs: Sequence[tuple[str, str]],
    reason: str,
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Hands runs (ulid, fence) back; one word per item. ``reason`` is a word of ours, never user text."""
    fixed = (check_worker(worker), check_word(reason, "reason"))
    return make("release", keys, now, fixed, [x for run in runs for x in run], words)


def snooze(
    keys: QueueKeys, worker: str, runs: Sequence[tuple[str, str, int]], *, now: float | None = None
) -> Call[list[str]]:
    """Puts runs (ulid, fence, delay_ms) off; one word per item."""
    fixed = (check_worker(worker),)
    return make("snooze", keys, now, fixed, [x for run in runs for x in run], words)


def heartbeat(
    keys: QueueKeys, workers: Sequence[tuple[str, int, int]], *, now: float | None = None
) -> Call[list[Beat]]:
    """Renews the leases of workers (id, lease_ms, jobs held); one answer each."""

    def parse(reply: Any) -> list[Beat]:
        return [
            Beat(text_of(r[0]), int(r[1]) if len(r) > 1 else 0, tuple(text_of(i) for i in r[2:]))
            for r in reply
        ]

    items = [
        x for worker, lease_ms, held in workers for x in (check_worker(worker), lease_ms, held)
    ]
    return make("heartbeat", keys, now, (), items, parse)


def reconcile(
    keys: QueueKeys,
    worker: str,
    answered: int,
    held: Sequence[tuple[str, str]],
    *,
    now: float | None = None,
) -> Call[Reconciled]:
    """Says which runs (ulid, fence) the worker holds; ``answered`` is its last answered claim."""

    def parse(reply: Any) -> Reconciled:
        status = text_of(reply[0])
        if status != "OK":
            return Reconciled(status)
        return Reconciled(status, int(reply[1]), tuple(text_of(i) for i in reply[2]))

    fixed = (check_worker(worker), answered)
    return make("reconcile", keys, now, fixed, [x for run in held for x in run], parse)


def progress(
    keys: QueueKeys,
    worker: str,
    items: Sequence[tuple[str, str, bytes]],
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Notes how far runs (ulid, fence, JSON) are; one word per item."""
    fixed = (check_worker(worker),)
    return make("progress", keys, now, fixed, [x for item in items for x in item], words)


def log(
    keys: QueueKeys,
    worker: str,
    items: Sequence[tuple[str, str, int, bytes]],
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Appends log lines (ulid, fence, seq, JSON); one word per item.

    ``seq`` numbers the lines of a run, from 1 up, gaps allowed: a line whose number was stored already is
    answered OK and not appended again.
    """
    for _, _, seq, _ in items:
        if type(seq) is not int or not 0 < seq < 1 << 53:
            raise InvalidInput(f"seq must be a whole number from 1 up, not {seq!r}", field="seq")
    fixed = (check_worker(worker),)
    return make("log", keys, now, fixed, [x for item in items for x in item], words)
