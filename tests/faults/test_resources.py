"""What leaks: references, connections, keys, locks; and types that only some workers know."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from support.faults import LEASE, RECOVERY, Place, last, until
from taskq import calls
from taskq.errors import UniqueHeld
from taskq.ids import split_id
from taskq.states import State

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=20)
def test_f70_garbage_is_collected_all_the_time(place: Place) -> None:
    """F70: gc.collect() every 10 ms: no task that only the loop refers to vanishes; leases are renewed."""
    place.worker("-c", "100", FAULT_GC="1")
    place.submit("work", [{"seconds": LEASE + 1}] * 100)
    v = place.verdict(40)
    assert (v.ok, v.duplicated) == (100, 0)


@pytest.mark.beside(seconds=20)
def test_f71_connections_are_bounded(place: Place) -> None:
    """F71: 60 clients at most; two workers, an API under 300 parallel requests, connections killed again and
    again: bounded, back to what it was, and the workers go on."""
    place.admin.config_set("maxclients", 60)
    place.workers(2, "-c", "10")
    api = place.api()
    api.post("work")
    idle = _clients(place)
    peak = [idle]
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            peak.append(_clients(place))
            last(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda _: api.post("work")[0], range(300)))
    for _ in range(20):
        place.admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        last(0.05)
    stop.set()
    watcher.join()
    assert set(answers) <= {201, 503}, Counter(answers)
    assert Counter(answers)[201] > 250
    until(lambda: not place.counts().get("queued"), 20, "all jobs were taken")
    until(lambda: _clients(place) <= idle + 5, 20, f"back to {idle} connections")
    place.note(f"connections: {idle} idle, {max(peak)} at most, {_clients(place)} after")
    assert max(peak) <= 55


def _clients(place: Place) -> int:
    try:
        return int(place.admin.info("clients")["connected_clients"])
    except Exception:
        return 0


@pytest.mark.beside(seconds=25)
def test_f73_keys_are_bounded(place: Place) -> None:
    """F73 (short): 6,000 jobs, a tenth of them dead letters, 100 of each kept: keys and memory are level."""
    limits = {"succeeded_max": 100, "failed_max": 100, "dedup_seconds": 1, "dedup_max": 1000}
    place.client.store.run(calls.configure(place.queue, limits))
    place.worker("-c", "100")
    sizes = []
    for _ in range(6):
        ids = place.submit("work", 900) + place.submit("hopeless", 100)
        place.wait_ended(ids, 40)
        until(lambda: place.counts()["failed"] <= 101, 20, "dead letters are trimmed")
        until(lambda: place.counts()["succeeded"] <= 120, 20, "successes are trimmed")
        # Besides those kept: their histories, and a stub for each key within dedup_max, as of the last trim.
        until(lambda: place.admin.dbsize() < 1500, 20, "stubs are trimmed")
        sizes.append((place.admin.dbsize(), place.admin.info("memory")["used_memory"]))
    assert sizes[-1][1] < sizes[0][1] * 1.3, sizes
    until(lambda: not place.findings(), 10, "doctor finds nothing")
    place.note(f"keys {[k for k, _ in sizes]}, MB {[round(m / 1e6, 1) for _, m in sizes]}")


def _failures(place: Place, n: int) -> None:
    """So many runs that raise, all ended and trimmed when it returns."""
    for at in range(0, n, 1000):
        place.submit("deep_failure", min(1000, n - at))
        until(
            lambda: not sum(place.counts()[s] for s in ("queued", "running")), 60, "all have ended"
        )


@pytest.mark.beside(seconds=40)
def test_f74_memory_of_a_worker(place: Place) -> None:
    """F74 (short): 6,000 failures under thirty frames with locals of 100 kB, beside 20,000 delayed jobs: the
    process that ran them grows by less than 1,000 bytes a job, and not at all for the backlog."""
    _memory(place, 6_000)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=300)
def test_f74_memory_after_sixty_thousand_failures(place: Place) -> None:
    """F74: the same for ten times as many."""
    _memory(place, 60_000)


def _memory(place: Place, n: int) -> None:
    place.client.store.run(calls.configure(place.queue, {"failed_max": 1000}))
    worker = place.worker("-c", "50", "--processes", "1")
    (child,) = worker.children()
    tree = [psutil.Process(pid) for pid in (child, worker.pid)]
    _failures(place, 2000)
    warm = [p.memory_info().rss for p in tree]
    place.submit("work", 20_000, delay=3600)
    backlog = [p.memory_info().rss for p in tree]
    _failures(place, n)
    after = [p.memory_info().rss for p in tree]
    assert worker.children() == [child]
    slopes = [(b - a) / n for a, b in zip(backlog, after, strict=True)]
    grown = [b - a for a, b in zip(warm, backlog, strict=True)]
    place.note(
        f"{n} failures: child {slopes[0]:+.0f} bytes a job, supervisor {slopes[1]:+.0f}; "
        f"for a backlog of 20,000 {grown[0] / 1e6:+.1f} MB"
    )
    assert max(slopes) < 1000, slopes
    assert max(grown) < 2_000_000, grown


@pytest.mark.beside(seconds=30)
def test_f75_a_unique_key_is_given_back(place: Place) -> None:
    """F75: the key is held while the job lives, and free at once after each way to end."""
    worker = place.worker("-c", "10")
    place.submit("hopeless", 1)

    def again(job_type: str = "work") -> str:
        key, spec = _unique(place, job_type)
        (outcome,) = place.client.store.run(calls.enqueue(place.queue, [spec]))
        assert outcome.outcome in ("QUEUED", "SCHEDULED"), (key, outcome)
        _, second = _unique(place, "work")
        (held,) = place.client.store.run(calls.enqueue(place.queue, [second]))
        if held.outcome == "QUEUED":
            # The first had ended already; the second must not be in the way, if it has not ended, too.
            place.client.store.run(calls.cancel(place.queue, [second.id]))
        return f"default:{spec.id}"

    for job_type in ("work", "hopeless"):
        place.wait_ended([again(job_type)], 10)
        _free(place)
    slow = again("told")
    until(lambda: place.ledger.starts(slow), 10, "it runs")
    with pytest.raises(UniqueHeld):
        place.app.submit_sync("work", {"seconds": 0}, unique_key="k")
    place.disturb(*worker.tree())
    worker.kill()
    place.worker("-c", "10")
    until(lambda: len(place.ledger.starts(slow)) == 2, RECOVERY + 10, "it runs again")
    with pytest.raises(UniqueHeld):
        place.app.submit_sync("work", {"seconds": 0}, unique_key="k")
    place.client.cancel(slow)
    place.wait_ended([slow], 10)
    _free(place)
    delayed = place.app.submit_sync("work", {}, unique_key="k", delay=60)
    place.client.cancel(delayed.id)
    _free(place)
    place.app.submit_sync("work", {}, unique_key="k", delay=60)
    place.client.store.run(calls.purge(place.queue, ["scheduled"]))
    _free(place)
    brief = place.app.submit_sync("work", {}, unique_key="k", delay=60, expires=0.5)
    place.wait_ended([brief.id], 10)
    _free(place)
    lost = place.app.submit_sync("work", {}, unique_key="k", delay=60)
    place.admin.delete(place.queue.job(split_id(lost.id)[1]))
    _free(place)
    spoilt = place.app.submit_sync("work", {}, unique_key="k", delay=0.5)
    place.admin.hset(place.queue.job(split_id(spoilt.id)[1]), "payload", b"\xff")
    place.wait_ended([spoilt.id], 10)
    _free(place)


def _unique(place: Place, job_type: str) -> "tuple[str, calls.JobSpec]":
    _, spec = place.app.spec(job_type, b"{}", _with_key())
    return "k", spec


def _with_key() -> "object":
    from taskq.app import SubmitOptions

    return SubmitOptions(unique_key="k")


def _free(place: Place) -> None:
    """The key can be taken now, and is given back at once."""
    job = place.app.submit_sync("work", {}, unique_key="k", delay=60)
    assert place.client.cancel(job.id) == State.CANCELLED


@pytest.mark.beside(seconds=20)
def test_f87_old_workers_leave_new_tasks_alone(place: Place) -> None:
    """F87: jobs of a type that only new workers know wait beside old ones, unburnt, and run once later."""
    place.worker("-c", "20")
    new = place.submit("added_later", 200)
    place.submit("work", 50)
    until(lambda: len(place.ledger.ends()) >= 50, 20, "the old worker does what it knows")
    last(1.0)
    jobs = place.jobs(new)
    assert {(j.state, j.attempts) for j in jobs.values() if j} == {("queued", 0)}
    started = time.monotonic()
    place.worker("-c", "20", FAULT_NEW_TASKS="1")
    v = place.verdict(20)
    assert (v.ok, v.duplicated) == (250, 0)
    assert Counter(run.job_id for run in place.ledger.starts(*new)) == dict.fromkeys(new, 1)
    place.note(
        f"{v.figures()} done {time.monotonic() - started:.1f} s after the new worker's start"
    )
