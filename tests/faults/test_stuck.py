"""Work that stands still beside a system that looks well."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.faults import RECOVERY, Place, half_open, last, until
from taskq import calls

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=20)
def test_f20_janitors_die_at_any_moment(place: Place) -> None:
    """F20: kill -9 of janitors, in their rounds: nothing they hold outlives them."""
    rng = random.Random(3)
    worker = place.worker("-c", "5")
    gate = str(place.folder / "gate")
    place.submit("work", [{"gate": gate}] * 5)
    place.wait_started(5)
    janitors = [place.process("janitor", "--every", "0.05") for _ in range(6)]
    began = place.admin.hget(place.queue.ticks, "tick:reap")
    until(lambda: place.admin.hget(place.queue.ticks, "tick:reap") != began, 20, "they tick")
    for janitor in janitors:
        last(rng.uniform(0, 0.2))
        janitor.kill()
    place.worker("-c", "5")
    place.kill(worker)
    (place.folder / "gate").touch()
    v = place.verdict(30)
    assert max(v.recovery) < RECOVERY
    assert v.duplicated == 5
    place.note(v.figures())


@pytest.mark.beside(seconds=20)
def test_f21_recovery_does_not_wait_for_a_start(place: Place) -> None:
    """F21: B runs already when A is killed, and nothing is started after."""
    first, _ = place.workers(2, "-c", "10")
    gate = str(place.folder / "gate")
    place.submit("work", [{"gate": gate}] * 20)
    place.wait_started(20)
    place.kill(first)
    (place.folder / "gate").touch()
    v = place.verdict(30)
    assert v.duplicated == 10
    assert max(v.recovery) < RECOVERY
    place.note(v.figures())


@pytest.mark.beside(seconds=20)
def test_f21_a_worker_of_other_queues_recovers_too(place: Place) -> None:
    """F21: only a worker of another queue is left: the jobs are back in line, to be seen."""
    first = place.worker("-c", "10")
    ids = place.submit("work", [{"seconds": 60}] * 10)
    place.wait_started(10)
    other = place.worker("-q", "elsewhere")
    place.kill(first)
    until(lambda: place.counts()["queued"] == 10, RECOVERY, "they are back in line")
    other.stop()
    place.worker("-c", "10")
    place.client.store.run(calls.cancel(place.queue, [i.split(":")[1] for i in ids]))
    place.verdict(30)


@pytest.mark.beside(seconds=20)
def test_f21_the_first_worker_after_a_night(place: Place) -> None:
    """F21: nobody was up when the lease ran out; the first that starts picks the jobs up at once."""
    ids = place.submit("work", 10)
    place.client.store.run(calls.claim(place.queue, "yesterday", 1, 10, ["work"], lease_ms=1))
    worker = place.worker("-c", "10")
    began = time.monotonic()
    place.wait_ended(ids, 10)
    assert time.monotonic() - began < 5, worker.text()
    assert not place.verdict(5).duplicated


def _steady(place: Place, seconds: float) -> list[str]:
    ids: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ids += place.submit("work", [{"seconds": 0.01}])
        last(0.02)
    return ids


def _late(place: Place, ids: list[str], limit: float) -> list[str]:
    """Those that first started later than ``limit`` after they were stored."""
    jobs = place.jobs(ids)
    first: dict[str, float] = {}
    for line in place.ledger.starts(*ids):
        first.setdefault(line.job_id, line.at)
    return [
        i
        for i in ids
        if (job := jobs[i]) and job.created_at and first[i] - job.created_at / 1000 > limit
    ]


@pytest.mark.parametrize("how", ["kill", "half-open", "stop"])
@pytest.mark.beside(seconds=25)
def test_f22_a_dead_worker_does_not_poison_later_jobs(place: Place, how: str) -> None:
    """F22: one of two is gone (killed, cut off, stopped) while jobs keep coming: they are in time."""
    relay = place.relay()
    place.worker("-c", "10")
    other = place.worker("-c", "10", TASKQ_REDIS_URL=relay.url)
    before = _steady(place, 0.5)
    with ThreadPoolExecutor(1) as pool:
        feeding = pool.submit(_steady, place, 5.0)
        if how == "kill":
            place.kill(other)
            after = feeding.result()
        elif how == "stop":
            place.freeze(other)
            after = feeding.result()
            other.signal(signal.SIGCONT)
        else:
            place.disturb(*other.tree())
            with half_open(place, relay):
                after = feeding.result()
    v = place.verdict(30)
    # Only what it held can be late: at most its slots, and one claim that was answered into the void.
    assert len(_late(place, before + after, 1.5)) <= 20
    place.note(f"{how}: {v.figures()}")


@pytest.mark.beside(seconds=10)
def test_f07_nonsense_among_what_is_due(place: Place) -> None:
    """F07: garbage and an id without a job among due jobs: all others run, and the two are set aside."""
    ids = place.submit("work", 50, delay=0.5)
    due = (time.time() + 0.4) * 1000
    place.admin.zadd(place.queue.prefix + "scheduled", {b"\x80\x04junk": due, "0" * 26: due})
    place.worker("-c", "10")
    place.wait_ended(ids, 10)
    until(lambda: place.admin.hlen(place.queue.quarantine) == 2, 5, "two are set aside")
    assert {place.state(i) for i in ids} == {"succeeded"}
