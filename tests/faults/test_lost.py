"""Jobs whose worker is gone."""

import random
from typing import Any

import pytest

from support.faults import LEASE, QUEUE, RECOVERY, Place, last, until
from taskq import calls
from taskq.ids import join_id, split_id
from taskq.states import State

pytestmark = pytest.mark.beside


def _killing(place: Place, jobs: int, workers: int, kills: int, every: float) -> None:
    rng = random.Random(1)
    fleet = place.workers(workers, "-c", "10")
    ids = place.submit("work", [{"seconds": 0.05}] * jobs)
    # Enough to do until the last kill.
    for _ in range(kills):
        ids += place.submit("work", [{"seconds": 0.5}] * 20)
        last(every * rng.uniform(0.5, 1.5))
        victim = fleet.pop(rng.randrange(len(fleet)))
        # One of the others must serve: the bound below is on recovery, not on how fast a host starts Python.
        until(
            lambda: any(place.is_ready(worker) for worker in fleet), 60, "another worker is ready"
        )
        place.kill(victim)
        fleet.append(place.worker("-c", "10", ready=False))
    v = place.verdict(60)
    place.note(v.figures())
    assert v.duplicated <= 10 * kills
    assert max(v.recovery, default=0) < RECOVERY + 5


@pytest.mark.beside(seconds=30)
def test_f01_workers_die_one_after_the_other(place: Place) -> None:
    """F01: kill -9 of a worker again and again, at any moment, under load."""
    _killing(place, 600, 3, 5, 0.7)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=120)
def test_f01_sixty_kills(place: Place) -> None:
    """F01 in full: 4 workers, 60 kills."""
    _killing(place, 2000, 4, 60, 1.0)


@pytest.mark.beside(seconds=15)
def test_f01_claimed_but_not_started(place: Place) -> None:
    """F01: the claim is answered into a process that is gone: nothing of it was written anywhere else."""
    ids = place.submit("work", 10)
    _claim_for_nobody(place, "nobody", 10, round(LEASE * 1000))
    place.worker("-c", "10")
    v = place.verdict(30)
    assert not v.duplicated
    assert {job.lost for job in place.jobs(ids).values() if job} == {1}


def _claim_for_nobody(place: Place, worker: str, most: int, lease_ms: int) -> list[str]:
    """A worker that claims and is never heard of again."""
    reply = place.client.store.run(
        calls.claim(place.queue, worker, 1, most, ["work"], lease_ms=lease_ms)
    )
    return [join_id(QUEUE, job.ulid) for job in reply.jobs]


@pytest.mark.beside(seconds=20)
def test_f03_two_thousand_leases_at_once(place: Place) -> None:
    """F03: 20 dead workers with 100 jobs each, 200 of them undecodable and first in line."""
    ids = place.submit("work", 2000)
    held = [job for n in range(20) for job in _claim_for_nobody(place, f"dead:{n}", 100, 1000)]
    assert sorted(held) == sorted(ids)
    spoilt = held[:200]
    for job in spoilt:
        place.admin.hset(place.queue.job(split_id(job)[1]), "payload", b"\xff\xfe")
    place.process("janitor")
    ready = place.queue.ready("work")
    until(lambda: place.admin.zcard(ready) == 2000, RECOVERY + 5, "all are claimable")
    place.worker("-c", "200")
    v = place.verdict(40)
    jobs = place.jobs(ids)
    assert v.states == {State.SUCCEEDED: 1800, State.FAILED: 200}
    for job in spoilt:
        dead: Any = jobs[job]
        assert (dead.state, dead.error["type"]) == (State.FAILED, "InvalidPayload"), dead
    place.note(v.figures())


@pytest.mark.beside(seconds=15)
def test_f05_leases_are_gone(place: Place) -> None:
    """F05: the leases key is lost; the list of a dead worker is found by its holder, after one grace."""
    first = place.worker("-c", "20")
    gate = str(place.folder / "gate")
    ids = place.submit("work", [{"gate": gate}] * 20)
    place.wait_started(20)
    place.kill(first)
    place.admin.delete(place.queue.leases)
    (place.folder / "gate").touch()
    place.worker("-c", "20")
    v = place.verdict(2 * RECOVERY)
    assert v.duplicated == 20
    assert {job.lost for job in place.jobs(ids).values() if job} == {1}
    place.note(v.figures())


@pytest.mark.beside(seconds=15)
def test_f05_leases_of_the_living_are_gone(place: Place) -> None:
    """F05: the same under a worker that lives: it goes on, and no job runs twice."""
    place.worker("-c", "20")
    place.submit("work", [{"seconds": 2 * LEASE}] * 20)
    place.wait_started(20)
    place.admin.delete(place.queue.leases)
    v = place.verdict(3 * RECOVERY)
    assert not v.duplicated


@pytest.mark.beside(seconds=15)
def test_f05_bodies_are_gone(place: Place) -> None:
    """F05: entries of a dead worker's list without a job are set aside and stop nobody."""
    ids = place.submit("work", 10)
    _claim_for_nobody(place, "nobody", 10, 1000)
    for job in ids[:5]:
        place.admin.delete(place.queue.job(split_id(job)[1]))
    place.worker("-c", "10")
    place.wait_ended(ids[5:], RECOVERY + 10)
    assert {place.state(job) for job in ids[5:]} == {"succeeded"}
    aside = {name.decode() for name in place.admin.hkeys(place.queue.quarantine)}
    assert aside == {split_id(job)[1] for job in ids[:5]}
    assert not place.admin.exists(place.queue.processing("nobody"))
    assert place.admin.zscore(place.queue.leases, "nobody") is None


@pytest.mark.beside(seconds=15)
def test_f05_the_list_is_gone(place: Place) -> None:
    """F05: a lease over a list that was deleted goes; doctor names the jobs, and none runs twice."""
    ids = place.submit("work", 3)
    _claim_for_nobody(place, "nobody", 3, 1000)
    place.admin.delete(place.queue.processing("nobody"))
    place.worker("-c", "10")
    until(
        lambda: place.admin.zscore(place.queue.leases, "nobody") is None,
        RECOVERY,
        "the lease is cleaned up",
    )
    findings = place.findings()
    assert all(any(split_id(job)[1] in found for found in findings) for job in ids), findings
    assert not place.ledger.starts()
