"""What keeps queues in order by itself."""

from collections.abc import Sequence
from typing import Any, Literal

from taskq.calls.base import Arg, Call, check_word, check_worker, make, text_of
from taskq.calls.worker import MAX_CRASHES
from taskq.errors import InvalidInput
from taskq.keys import QueueKeys
from taskq.model import Reaped

MAX_LOST = 10
"""Leases that may run out over a job. From the third on it is a suspect too."""


def reap(
    keys: QueueKeys,
    *,
    lease_ms: int,
    limit: int = 200,
    since_ms: int = 0,
    targets: Sequence[tuple[str, Literal["crashes", "lost", "none"], str]] = (),
    max_crashes: int = MAX_CRASHES,
    max_lost: int = MAX_LOST,
    now: float | None = None,
) -> Call[Reaped]:
    """Takes back the jobs of expired leases, or of ``targets`` (worker, counter, reason in our words).

    ``since_ms``: since when this caller has been trying, by the server's clock: leases that ran out while
    nobody could reach the server are set anew. 0: what ran out is taken, whyever it did.
    """

    def parse(reply: Any) -> Reaped:
        return Reaped(text_of(reply[0]), bool(reply[1]), *(int(n) for n in reply[2:]))

    items: list[Arg] = []
    for worker, counter, reason in targets:
        if counter not in ("crashes", "lost", "none"):
            raise InvalidInput(f"no counter {counter!r}", field="counter")
        items += (check_worker(worker), counter, check_word(reason, "reason"))
    fixed = (limit, lease_ms, since_ms, max_crashes, max_lost)
    return make("reap", keys, now, fixed, items, parse)


def promote(keys: QueueKeys, limit: int = 1000, *, now: float | None = None) -> Call[int]:
    """Moves due jobs to their lines; answers how many."""
    return make("promote", keys, now, (limit,), (), lambda reply: int(reply[0]))


def expire(
    keys: QueueKeys, limit: int = 200, *, now: float | None = None
) -> Call[tuple[int, int, bool]]:
    """Ends what expired: (jobs ended, results dropped, more)."""
    return make("expire", keys, now, (limit,), (), lambda r: (int(r[0]), int(r[1]), bool(r[2])))


def trim(
    keys: QueueKeys, limit: int = 500, squeeze: int = 0, *, now: float | None = None
) -> Call[tuple[int, int, bool]]:
    """Applies retention: (jobs dropped, stubs dropped, more). ``squeeze`` 1 to 4 drops early."""
    return make(
        "trim", keys, now, (limit, squeeze), (), lambda r: (int(r[0]), int(r[1]), bool(r[2]))
    )


def rollup(keys: QueueKeys, *, now: float | None = None) -> Call[int]:
    """Sums finished minutes of statistics into ten-minute hashes; answers how many were written."""
    return make("rollup", keys, now, (), (), int)
