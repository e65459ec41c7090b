"""Failing again and again, and failing all at once; very much due at once."""

import time
from collections import Counter

import pytest

from support.faults import Place, until
from taskq import calls
from taskq.ids import split_id
from taskq.states import State

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=35)
def test_f31_backoff_never_overflows(place: Place) -> None:
    """F31 (short): 25 runs with a factor of 1e30, past what a float holds: exactly 25 STARTs."""
    _hopeless(place, 25, 60)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=1600)
def test_f31_fifteen_hundred_runs(place: Place) -> None:
    """F31 in full."""
    _hopeless(place, 1501, 1800)


def _hopeless(place: Place, runs: int, seconds: float) -> None:
    place.worker("-c", "10")
    ids = place.submit("hopeless_often", 3, max_attempts=runs)
    v = place.verdict(seconds)
    assert v.states == {State.FAILED: 3}
    assert Counter(run.job_id for run in place.ledger.starts()) == dict.fromkeys(ids, runs)


@pytest.mark.beside(seconds=25)
def test_f33_retries_are_spread(place: Place) -> None:
    """F33: 1,000 jobs fail within a second: their second runs are spread over the back-off."""
    place.worker("-c", "200")
    ids = place.submit("storm", [{"times": 1}] * 1000)
    v = place.verdict(40)
    assert v.ok == 1000
    # When they were due: when they started depends on what else this machine does.
    dues = [job.eligible_at or 0 for job in place.jobs(ids).values() if job]
    buckets = Counter(due // 100 for due in dues)
    assert max(buckets.values()) <= 50, buckets.most_common(3)
    place.note(f"largest share of 100 ms: {max(buckets.values()) / 10:.1f} %")


def _slow_commands(place: Place, ms: int) -> list[tuple[float, bytes]]:
    return [
        (entry["duration"] / 1000, entry["command"][:60])
        for entry in place.admin.slowlog_get(100)
        if entry["duration"] > ms * 1000 and not entry["command"].startswith(b"DEBUG")
    ]


@pytest.mark.beside(seconds=30)
def test_f40_very_many_due_at_once(place: Place) -> None:
    """F40: 8,001 jobs of one due second, 8,001 in the list of one dead worker, 10,000 cancelled in one go."""
    # Wall time beside other tests: only what stops everybody is caught here.
    _very_many(place, 250)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=60)
def test_f40_no_command_above_50_ms(place: Place) -> None:
    """F40 as it is written, for a quiet machine: no command takes more than 50 ms."""
    _very_many(place, 50)


def _very_many(place: Place, limit_ms: int) -> None:
    place.admin.config_set("slowlog-log-slower-than", 20_000)
    held = place.submit("work", 8001)
    numbers = range(1, 10)
    claimed = 0
    for call in numbers:
        reply = place.client.store.run(
            calls.claim(place.queue, "hoarder", call, 1000, ["work"], lease_ms=1000)
        )
        claimed += len(reply.jobs)
    assert claimed == 8001
    due = round(time.time() * 1000) + 2000
    from datetime import UTC, datetime

    later = place.submit("work", 8001, run_at=datetime.fromtimestamp(due / 1000, UTC))
    cancelled = place.submit("told", 10_000)
    janitor = place.process("janitor", "--every", "0.2")
    ready = place.queue.ready("work")
    until(lambda: place.admin.zcard(ready) == 16_002, 30, f"all are claimable {janitor.text()}")
    ulids = [split_id(i)[1] for i in cancelled]
    for at in range(0, len(ulids), 250):
        place.client.store.run(calls.cancel(place.queue, ulids[at : at + 250]))
    page = 1
    while page:
        _, page = place.client.store.run(calls.purge(place.queue, ["queued"], limit=250, page=page))
    v = place.verdict(60)
    assert v.states == {State.CANCELLED: len(held) + len(later) + len(cancelled)}
    slow = _slow_commands(place, limit_ms)
    place.note(f"{v.figures()} slowest={max(_slow_commands(place, 20), default=(0, b''))}")
    assert not slow


@pytest.mark.beside(seconds=10)
def test_f40_one_batch_through_the_api(place: Place) -> None:
    """F40: the largest batches that the API takes, ten at a time."""
    api = place.api()
    body = {"jobs": [{"job_type": "work", "payload": {}} for _ in range(1000)]}
    for _ in range(10):
        status, answer, _ = api.send("POST", "/jobs/batch", body)
        assert status == 200, answer
    assert place.counts()["queued"] == 10_000
