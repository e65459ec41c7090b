"""What must hold however often it happens: stops at random moments, starts and kills.

A few in the daily suite; ``make chaos`` does the 300 stops and the 500 kills.
"""

import contextlib
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import psutil
import pytest

from support.faults import GRACE, LEASE, Place, Process, last, until
from taskq import calls
from taskq.states import State

pytestmark = pytest.mark.beside

LIMIT = GRACE + 2 + 1.5
"""Grace, two seconds, and what a machine that is busy with other tests adds."""


def _many(times: int, at_once: int, one: Callable[[int, random.Random], None]) -> None:
    """Calls ``one(n, dice)`` for each n, several at a time; raises what the first that failed raised."""
    numbers = iter(range(times))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def some() -> None:
        while not failures:
            with lock:
                n = next(numbers, None)
            if n is None:
                return
            try:
                one(n, random.Random(n))
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=some) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _some_jobs(place: Place, dice: random.Random) -> None:
    for kind in ("work", "work", "work_thread"):
        place.submit(kind, [{"seconds": dice.random() ** 2} for _ in range(3)])


def _held_by_the_dead(place: Place) -> list[str]:
    """Lists of claimed jobs whose process is no more: they wait for a lease."""
    names = place.admin.scan_iter(place.queue.prefix + "processing:*", count=1000)
    workers = [name.decode().rsplit("processing:", 1)[1] for name in names]
    return [worker for worker in workers if not psutil.pid_exists(int(worker.split(":")[1]))]


def _stops(place: Place, times: int) -> None:
    took: list[float] = []

    def one(n: int, dice: random.Random) -> None:
        _some_jobs(place, dice)
        worker = place.worker("-c", "10", ready=False)
        last(dice.uniform(0, 3))
        began = time.monotonic()
        worker.popen.send_signal(signal.SIGTERM)
        if n % 4 == 0:
            last(dice.uniform(0, GRACE))
            worker.popen.send_signal(signal.SIGTERM)
        # A signal that comes before the command has begun to run ends it as it ends any command.
        code = worker.popen.wait(LIMIT + 10)
        took.append(time.monotonic() - began)
        assert code == 0 or (code == -signal.SIGTERM and not worker.text()), worker.text()
        assert not _held_by_the_dead(place), worker.text()

    _many(times, 3, one)
    place.worker("-c", "20")
    v = place.verdict(60)
    assert max(took) < LIMIT, sorted(took)[-5:]
    jobs = place.jobs(list(place.tried())).values()
    assert not [job for job in jobs if job and (job.crashes or job.lost)]
    took.sort()
    place.note(
        f"{times} SIGTERMs: {v.figures()} ended_after p50={took[len(took) // 2]:.1f}s max={took[-1]:.1f}s"
    )


@pytest.mark.beside(seconds=45)
def test_f42_stops_at_random_moments(place: Place) -> None:
    """F42: no job waits for a lease, nothing is charged, each ends within grace + 2 s."""
    _stops(place, 21)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=500)
def test_f42_three_hundred_stops_at_random_moments(place: Place) -> None:
    """F42 in full."""
    _stops(place, 300)


def _lasting(place: Place) -> "Counter[str]":
    """Bytes of the keys that have no TTL, by kind of key.

    Without dead letters, which are kept for what they are: three workers were killed around them.
    """
    dead = set(place.admin.zrange(place.queue.state(State.FAILED), 0, -1))
    theirs = {place.queue.state(State.FAILED).encode(), f"{place.queue.prefix}errors".encode()}
    names = [
        name
        for name in place.admin.scan_iter("*", count=1000)
        if name not in theirs and name.rpartition(b":")[2] not in dead
    ]
    pipe = place.admin.pipeline(transaction=False)
    for name in names:
        pipe.ttl(name)
        pipe.memory_usage(name, samples=0)
    answers = pipe.execute()
    out: Counter[str] = Counter()
    for name, ttl, size in zip(names, answers[::2], answers[1::2], strict=True):
        # Sums of counters come with the first minute that is over, and have a bound of their own.
        if ttl == -1 and size and not name.endswith(b":counters"):
            out[re.sub(r":[0-9A-Z]{26}$", ":*", name.decode())] += size
    return out


def _an_hour_later(place: Place) -> None:
    """What is kept for an hour after a worker's death is over, also of those that are only found dead now;
    so are the records that the dead left, and a janitor has looked."""
    for record in place.admin.scan_iter(place.keys.worker("*"), count=1000):
        place.admin.pexpire(record, 1)
    assert place.process("janitor", "--once").popen.wait(60) == 0
    (seconds, _) = place.admin.time()
    for hours in (1, 2):
        later = (seconds + hours * 3601) * 1000.0
        while place.client.store.run(calls.reap(place.queue, lease_ms=3000, now=later)).more:
            pass


KEPT = 500


def _settle(place: Place) -> None:
    """As many ended jobs as are kept, nothing else to do, nobody there."""
    worker = place.worker("-c", "20")
    left = ("queued", "running", "retrying", "scheduled")
    # After hundreds of kills it is some minutes of work, part of it one job to a process.
    until(lambda: not sum(place.counts()[state] for state in left), 300, "what was left is done")
    for _ in range(2):
        place.wait_ended(place.submit("work", KEPT), 60)
    place.verdict(60, trimmed=True)
    until(lambda: not place.admin.exists(place.queue.stubs(State.SUCCEEDED)), 20, "forgotten")
    assert worker.stop() == 0
    until(lambda: place.counts()["succeeded"] <= KEPT, 20, "trimmed")
    _an_hour_later(place)


def _kills(place: Place, times: int) -> None:
    store = place.client.store
    store.run(calls.configure(place.queue, {"succeeded_max": KEPT, "dedup_seconds": 1}))
    # The events of a listener are a stream that is cut at a length of its own.
    store.run(calls.listen(place.queue, 1))
    place.admin.delete(place.queue.events)
    # Digests are counted where a job is trimmed while its submission may still be repeated, which is for a
    # second: here, if the machine is quick. The count is there from the start, and is none in the end.
    totals = f"{place.queue.prefix}totals"
    place.admin.hset(totals, "digests", 0)
    _settle(place)
    before = _lasting(place)

    def one(n: int, dice: random.Random) -> None:
        _some_jobs(place, dice)
        worker = place.worker("-c", "10", ready=False)
        last(dice.uniform(0, 2))
        _kill(place, worker)

    _many(times, 3, one)
    last(LEASE)
    _settle(place)
    after = _lasting(place)
    assert place.admin.hget(totals, "digests") == b"0"
    assert set(after) == set(before), set(after) ^ set(before)
    grown = after.total() / before.total()
    assert abs(grown - 1) < 0.05, f"{grown:.3f} {after - before}"
    place.note(f"{times} starts and kills: {len(after)} kinds of keys, size x {grown:.3f}")


def _kill(place: Place, worker: Process) -> None:
    """Also children that are born while the others are killed."""
    place.kill(worker)
    for process in psutil.process_iter(["pid", "environ"]):
        environ = process.info["environ"] or {}
        if environ.get("FAULT_LEDGER") != str(place.ledger.path):
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() == 1:
                place.disturb(process.pid)


@pytest.mark.beside(seconds=60)
def test_f20_starts_and_kills_leave_nothing(place: Place) -> None:
    """F20: what is left after them is what was there before, and as large."""
    _kills(place, 21)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=700)
def test_f20_five_hundred_starts_and_kills_leave_nothing(place: Place) -> None:
    """F20 in full."""
    _kills(place, 500)
