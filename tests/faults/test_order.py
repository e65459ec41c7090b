"""Low priority beside a flood, and order against prefetching."""

import threading
import time
from collections import Counter

import pytest

from support.faults import Place, last, until
from taskq import calls

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=20)
def test_f28_no_starvation(place: Place) -> None:
    """F28: more high-priority work than capacity for 8 s: a low job is overtaken only by what the formula
    allows, also after a retry and after a restart of the worker."""
    aging, priority = 200, 10
    place.client.store.run(calls.configure(place.queue, {"aging_ms": aging}))
    worker = place.worker("-c", "2")
    place.submit("work", [{"seconds": 0.02}] * 300, priority=priority)
    low = place.submit("work", 1, priority=0)
    low += place.submit("flaky", [{"times": 1}], priority=0)
    stop = threading.Event()
    fed: list[str] = []

    def feed() -> None:
        while not stop.is_set():
            fed.extend(place.submit("work", [{"seconds": 0.02}] * 6, priority=priority))
            last(0.05)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        until(lambda: len(place.ledger.starts(*low)) >= 1, 30, "a low job has started")
        worker.stop()
        worker = place.worker("-c", "2")
        until(lambda: len(place.ledger.starts(*low)) == 3, 40, "the low jobs have started")
    finally:
        stop.set()
        feeder.join()
    starts = place.ledger.starts()
    jobs = place.jobs([*low, *fed])
    overtaken = Counter[str]()
    for run in place.ledger.starts(*low):
        if run.attempt > 1:
            continue
        eligible = jobs[run.job_id].created_at  # type: ignore[union-attr]
        for other in starts:
            job = jobs.get(other.job_id)
            if job and job.priority == priority and job.created_at and other.at < run.at - 0.05:
                late = job.created_at - eligible  # type: ignore[operator]
                if late > priority * aging + 50:
                    overtaken[run.job_id] += 1
    assert not overtaken, "jobs that became eligible after the bound came first"
    page = 1
    while page:
        _, page = place.client.store.run(calls.purge(place.queue, ["queued"], page=page))
    until(lambda: not place.counts().get("running"), 10, "nothing runs")


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.beside(seconds=15)
def test_f29_prefetch_hides_nothing(place: Place, slots: int) -> None:
    """F29: a high job that comes late is the next to start, whatever waits."""
    place.worker("-c", str(slots))
    place.submit("work", [{"seconds": 0.4}] * (10 * slots))
    place.wait_started(slots + 1)
    submitted = time.time()
    (high,) = place.submit("work", 1, priority=100)
    place.verdict(30)
    (mine,) = place.ledger.starts(high)
    between = [run for run in place.ledger.starts() if submitted + 0.05 < run.at < mine.at]
    # Those that were claimed already when it came.
    assert len(between) <= slots
