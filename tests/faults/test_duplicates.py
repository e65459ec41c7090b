"""Jobs that might run twice."""

import random
import signal
import threading
import time
from collections import Counter

import pytest

from support.faults import LEASE, RECOVERY, Api, Place, flush_scripts, last, paused, until
from taskq import lua
from taskq.client import SyncClient
from taskq.states import State

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=15)
def test_f11_delay_longer_than_the_lease(place: Place) -> None:
    """F11: delays and back-offs longer than a lease; all workers are killed before anything is due."""
    delay = 2.5 * LEASE
    fleet = place.workers(2, "-c", "50")
    later = place.submit("work", 50, delay=delay)
    flaky = place.submit("flaky", [{"times": 1, "after": delay}] * 30)
    until(lambda: place.counts().get("retrying") == 30, 10, "the flaky ones wait")
    for worker in fleet:
        place.kill(worker)
    assert {place.state(i) for i in later} == {"scheduled"}
    place.workers(2, "-c", "50")
    ready = time.time()
    v = place.verdict(30)
    assert not v.duplicated
    starts = Counter(line.job_id for line in place.ledger.starts())
    assert starts == {**dict.fromkeys(later, 1), **dict.fromkeys(flaky, 2)}
    jobs = place.jobs(later)
    late = [
        line.at - max(ready, job.eligible_at / 1000)
        for line in place.ledger.starts(*later)
        if (job := jobs[line.job_id]) and job.eligible_at
    ]
    early = [
        line
        for line in place.ledger.starts(*later)
        if (job := jobs[line.job_id]) and line.at < (job.eligible_at or 0) / 1000 - 0.01
    ]
    assert not early
    assert max(late) < 2.0
    place.note(f"{v.figures()} latest_start_after_due={max(late):.2f}s")


@pytest.mark.beside(seconds=25)
def test_f12_run_longer_than_the_lease(place: Place) -> None:
    """F12: long runs keep their lease while a dead worker's long runs are taken over within R."""
    first, *_ = place.workers(2, "-c", "20")
    place.submit("work", [{"seconds": 2.5 * LEASE}] * 20)
    runs = place.wait_started(20)
    held = len({run.job_id for run in runs if run.pid in first.tree()})
    place.kill(first)
    v = place.verdict(40)
    assert v.duplicated == held
    assert max(v.recovery, default=0) < RECOVERY
    place.note(v.figures())


@pytest.mark.beside(seconds=30)
def test_f13_a_job_that_starves_the_heartbeat(place: Place) -> None:
    """F13: the GIL held, the loop busy, each longer than a lease: nothing beside it runs twice."""
    place.worker("-c", "8")
    place.submit("work", [{"seconds": 2 * LEASE}] * 2)
    place.submit("work_thread", [{"seconds": 2 * LEASE}] * 2)
    place.wait_started(4)
    for kind in ("spin", "hold_gil"):
        place.submit(kind, [{"seconds": 1.4 * LEASE}])
    v = place.verdict(90)
    assert not v.duplicated
    assert v.ok == 6


@pytest.mark.beside(seconds=25)
def test_f13_a_loop_that_sleeps_is_let_go(place: Place) -> None:
    """F13: time.sleep on the loop past a lease looks like a deadlock: the process is ended, all run again in
    processes of their own, and end well."""
    worker = place.worker("-c", "8")
    place.submit("work", [{"seconds": 1.2 * LEASE}] * 2)
    place.wait_started(2)
    place.disturb(*worker.children())
    place.submit("block_loop", [{"seconds": 1.8 * LEASE}])
    v = place.verdict(60)
    assert "process stood still" in worker.text()
    assert (v.ok, v.duplicated) == (3, 3)
    place.note(v.figures())


@pytest.mark.beside(seconds=20)
def test_f14_zombie_comes_back(place: Place) -> None:
    """F14: A is stopped past its lease, B does its jobs, A wakes: what A reports is refused."""
    first = place.worker("-c", "10")
    gate = str(place.folder / "gate")
    ids = place.submit("work", [{"gate": gate}] * 4)
    ids += place.submit("flaky", [{"times": 1, "after": 1.0}] * 3)
    gated = ids[:4]
    place.wait_started(7)
    place.freeze(first)
    second = place.worker("-c", "10")
    until(lambda: len(place.ledger.starts(*gated)) == 8, RECOVERY + 5, "B has what A held")
    # A ends its runs before B does.
    first.signal(signal.SIGCONT)
    until(
        lambda: "lease" in first.text() and "lost" in first.text(), 10, "A says its lease is lost"
    )
    (place.folder / "gate").touch()
    v = place.verdict(30)
    assert v.states == {State.SUCCEEDED: 7}
    assert {job.attempts for job in place.jobs(gated).values() if job} == {2}
    second.stop()
    place.submit("work", 3)
    v = place.verdict(20)
    place.note(v.figures())


@pytest.mark.beside(seconds=15)
def test_f14_zombie_wakes_when_all_is_done(place: Place) -> None:
    """F14: A wakes after B has finished its jobs; the outcome that was recorded stays."""
    first = place.worker("-c", "10")
    ids = place.submit("work", [{"seconds": 1}] * 5)
    place.wait_started(5)
    place.freeze(first)
    place.worker("-c", "10")
    before = place.wait_ended(ids, RECOVERY + 10)
    first.signal(signal.SIGCONT)
    until(lambda: "lost" in first.text(), 10, "A says so")
    v = place.verdict(20)
    after = place.jobs(ids)
    assert {i: (j.result, j.fence) for i, j in after.items() if j} == {
        i: (j.result, j.fence) for i, j in before.items() if j
    }
    assert v.duplicated == 5


def _loses(names: tuple[str, ...], share: float, seed: int) -> "tuple[object, list[int]]":
    shas = [lua.load(name).sha.encode() for name in names]
    rng = random.Random(seed)
    lost = [0]
    lock = threading.Lock()

    def loses(request: bytes) -> bool:
        if any(sha in request for sha in shas):
            with lock:
                if rng.random() < share:
                    lost[0] += 1
                    return True
        return False

    return loses, lost


@pytest.mark.beside(seconds=15)
def test_f15_lost_replies(place: Place) -> None:
    """F15: replies are lost again and again: one job a key, one failure a run."""
    loses, lost = _loses(("enqueue", "claim", "finish", "fail"), 0.2, 1)
    relay = place.relay(loses)  # type: ignore[arg-type]
    place.worker("-c", "20", TASKQ_REDIS_URL=relay.url)
    client = SyncClient.from_url(relay.url, "taskq")
    ids = []
    for _ in range(60):
        ids += place.submit("work", 1, client=client, tries=3)
        ids += place.submit("flaky", [{"times": 1}], client=client, tries=3)
    v = place.verdict(60)
    client.close()
    assert lost[0] > 20, "replies were lost"
    assert v.states == {State.SUCCEEDED: 120}
    jobs = place.jobs(ids)
    assert {jobs[i].failures for i in ids[1::2] if jobs[i]} == {1}
    starts = Counter(line.job_id for line in place.ledger.starts())
    assert {starts[i] for i in ids[::2]} == {1}
    assert {starts[i] for i in ids[1::2]} == {2}
    place.note(f"{v.figures()} replies_lost={lost[0]}")


@pytest.mark.beside(seconds=20)
def test_f15_lost_replies_behind_the_api(place: Place) -> None:
    """F15: the API's own replies from Redis are lost: each Idempotency-Key is one job, and is there."""
    loses, lost = _loses(("enqueue",), 0.3, 2)
    relay = place.relay(loses)  # type: ignore[arg-type]
    process = place.process("api", "--port", "0", "--redis-url", relay.url)
    api = Api(process, until(process.url, 60, "the API listens"))
    ids = set()
    for n in range(60):
        for _ in range(3):
            status, body, _ = api.send(
                "POST", "/jobs", {"job_type": "work", "payload": {}}, Idempotency_Key=f"k{n}"
            )
            if status in (200, 201):
                ids.add(body["id"])
                assert api.send("GET", f"/jobs/{body['id']}")[0] == 200
    assert lost[0] > 5
    assert len(ids) == 60
    assert place.counts()["queued"] == 60


@pytest.mark.beside(seconds=25)
def test_f17_many_promoters(place: Place) -> None:
    """F17: 3,000 jobs due at once, three promoters; the server pauses, one is stopped, one is killed."""
    fleet = place.workers(3, "-c", "50")
    place.submit("work", 3000, delay=3.0)
    with paused(place, 4.0):
        place.freeze(fleet[0])
    flush_scripts(place)
    until(lambda: len(place.ledger.starts()) > 300, 20, "they run")
    place.kill(fleet[1])
    last(LEASE)
    fleet[0].signal(signal.SIGCONT)
    v = place.verdict(60)
    assert v.ok == 3000
    place.note(v.figures())
