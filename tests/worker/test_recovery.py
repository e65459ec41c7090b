"""What happens to running jobs when their process, their host or their connection is gone."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import probe
from support.proxy import Proxy
from support.workers import JANITOR_SECONDS, LEASE_SECONDS, Site, site, until
from taskq import JobHandle, lua
from taskq.embedded import EmbeddedServer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        yield place


def submit_gated(place: Site, n: int) -> list[JobHandle[str]]:
    jobs = place.app.enqueue_many_sync([probe.gated.spec(place.gate()) for _ in range(n)])
    until(lambda: len(place.ledger.starts()) == n, 15, f"{n} jobs run")
    return jobs


def finish_all(place: Site, jobs: list[JobHandle[str]], seconds: float = 20) -> None:
    place.open_gate()
    for job in jobs:
        assert job.result_sync(seconds) == "done"
    until(lambda: not place.findings(), 5, "doctor finds nothing")


def test_killed_child(place: Site) -> None:
    """kill -9 of a child with 50 running jobs: all start again, none is lost."""
    worker = place.worker("-c", "50", "--processes", "2")
    jobs = submit_gated(place, 50)
    holders = Counter(start.pid for start in place.ledger.starts())
    victim, held = holders.most_common(1)[0]
    killed_at = time.time()
    os.kill(victim, signal.SIGKILL)
    # In processes of their own now, sixteen at a time: one of them may have been the culprit.
    until(lambda: len(place.ledger.starts()) == 50 + held, 25, "its jobs start again")
    again = [start for start in place.ledger.starts() if start.attempt == 2]
    assert len(again) == held
    assert min(start.at for start in again) - killed_at < 3
    assert len(worker.children()) <= 2
    finish_all(place, jobs)
    assert {place.app.sync_client().job(job.id).crashes for job in jobs} <= {0, 1}


def test_jobs_of_a_killed_child_are_claimable_within_a_second(place: Site) -> None:
    place.worker("-c", "50")
    jobs = submit_gated(place, 50)
    client = place.app.sync_client()
    client.store.redis.hset("taskq:{default}:config", "paused", "1")
    victim = place.ledger.starts()[0].pid
    killed_at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    until(
        lambda: client.store.redis.zcard("taskq:{default}:ready:gated") == 50, 5, "all are in line"
    )
    assert time.monotonic() - killed_at < 1.0
    client.store.redis.hdel("taskq:{default}:config", "paused")
    finish_all(place, jobs)


def test_killed_host(place: Site) -> None:
    """Supervisor and children die together: the lease, a janitor's tick, and all run elsewhere."""
    first = place.worker("-c", "50")
    jobs = submit_gated(place, 50)
    place.worker("-c", "50")
    killed_at = time.time()
    first.signal_all(signal.SIGKILL)
    until(lambda: len(place.ledger.starts()) == 100, 20, "all start again")
    late = max(start.at for start in place.ledger.starts()) - killed_at
    assert late < LEASE_SECONDS + JANITOR_SECONDS + 2
    finish_all(place, jobs)
    assert {place.app.sync_client().job(job.id).lost for job in jobs} == {1}


def test_stopped_worker_group(place: Site) -> None:
    """SIGSTOP past the lease, then SIGCONT: its late results are refused, and it claims under a new id."""
    first = place.worker("-c", "10")
    jobs = submit_gated(place, 10)
    second = place.worker("-c", "10")
    first.signal_all(signal.SIGSTOP)
    until(lambda: len(place.ledger.starts()) == 20, 15, "all start again elsewhere")
    first.signal_all(signal.SIGCONT)
    finish_all(place, jobs)
    for job in jobs:
        info = place.app.sync_client().job(job.id)
        assert (info.state, info.attempts, info.lost) == ("succeeded", 2, 1)
    second.stop()
    assert probe.echo.enqueue_sync(5).result_sync(15) == 5, first.log.read_text()


def test_stopped_child_is_let_go(place: Site) -> None:
    place.worker("-c", "10", "--processes", "2")
    jobs = submit_gated(place, 10)
    victim, held = Counter(start.pid for start in place.ledger.starts()).most_common(1)[0]
    os.kill(victim, signal.SIGSTOP)
    until(lambda: len(place.ledger.starts()) == 10 + held, 25, "its jobs run elsewhere")
    finish_all(place, jobs)


def test_held_interpreter_costs_the_neighbours_nothing(place: Site) -> None:
    """A job that holds the GIL for longer than the lease keeps it, and so do the jobs beside it."""
    place.worker("-c", "10")
    jobs = submit_gated(place, 5)
    hog = probe.hold_gil.enqueue_sync(27)
    assert hog.result_sync(60) == "held"
    finish_all(place, jobs)
    assert Counter(start.job_id for start in place.ledger.starts()).most_common(1)[0][1] == 1


@pytest.mark.parametrize("lost", [1, 3])
def test_lost_claim_reply_strands_nothing(tmp_path: Path, lost: int) -> None:
    sha = lua.load("claim").sha.encode()
    armed = threading.Event()
    left = [lost]

    def lose(request: bytes) -> bool:
        if armed.is_set() and sha in request and left[0] > 0:
            left[0] -= 1
            return True
        return False

    with EmbeddedServer(port=0) as server, site(server, tmp_path) as place:
        port = int(server.url.split(":")[2].split("/")[0])
        proxy = Proxy(port, lose)
        place.worker("-c", "20", TASKQ_REDIS_URL=proxy.url)
        armed.set()
        jobs = place.app.enqueue_many_sync([probe.gated.spec(place.gate()) for _ in range(20)])
        until(lambda: len(place.ledger.starts()) >= 20, 3 * LEASE_SECONDS, "all started")
        assert proxy.lost == lost
        finish_all(place, jobs)
        assert Counter(s.job_id for s in place.ledger.starts()) == {job.id: 1 for job in jobs}
        proxy.close()


def test_lost_finish_reply_is_repeated(tmp_path: Path) -> None:
    sha = lua.load("finish").sha.encode()
    left = [3]

    def lose(request: bytes) -> bool:
        if sha in request and left[0] > 0:
            left[0] -= 1
            return True
        return False

    with EmbeddedServer(port=0) as server, site(server, tmp_path) as place:
        port = int(server.url.split(":")[2].split("/")[0])
        proxy = Proxy(port, lose)
        place.worker("-c", "5", TASKQ_REDIS_URL=proxy.url)
        jobs = [probe.echo.enqueue_sync(i) for i in range(20)]
        assert [job.result_sync(15) for job in jobs] == list(range(20))
        assert {job.info_sync().attempts for job in jobs} == {1}
        until(lambda: not place.findings(), 5, "doctor finds nothing")
        proxy.close()


def test_graceful_stop(place: Site) -> None:
    """What ends within the grace ends; the rest is back in line at once, burning nothing."""
    worker = place.worker("-c", "30")
    short = place.app.enqueue_many_sync([probe.gated.spec(place.gate("short")) for _ in range(5)])
    long = place.app.enqueue_many_sync([probe.gated.spec(place.gate("long")) for _ in range(5)])
    stuck = [probe.gated_thread.enqueue_sync(place.gate("long"))]
    until(lambda: len(place.ledger.starts()) == 11, 10, "all run")
    worker.process.send_signal(signal.SIGTERM)
    place.open_gate("short")
    assert worker.process.wait(10) == 0
    for job in short:
        assert place.state(job.id) == "succeeded"
    for job in [*long, *stuck]:
        info = job.info_sync()
        assert (info.state, info.failures, info.crashes, info.lost) == ("queued", 0, 0, 0)
    assert not place.findings()


def test_second_signal_ends_at_once(place: Site) -> None:
    worker = place.worker("-c", "5", TASKQ_GRACE_SECONDS="60")
    jobs = submit_gated(place, 5)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in worker.log.read_text(), 5, "it stops")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(4) == 0
    assert {place.state(job.id) for job in jobs} == {"queued"}


def test_orphaned_child_hands_back_and_ends(place: Site) -> None:
    worker = place.worker("-c", "5")
    jobs = submit_gated(place, 5)
    child = worker.children()[0]
    os.kill(worker.pid, signal.SIGKILL)
    worker.process.wait(5)
    until(lambda: not Path(f"/proc/{child}").exists(), 5, "the child ends by itself")
    assert {place.state(job.id) for job in jobs} == {"queued"}


def test_redis_restart_with_append_only_file(tmp_path: Path) -> None:
    """Jobs and runs survive; the worker goes on by itself."""
    data = tmp_path / "data"
    data.mkdir()
    with (
        EmbeddedServer(data, persistent=True, appendfsync="always") as server,
        site(server, tmp_path) as place,
    ):
        place.worker("-c", "10")
        jobs = submit_gated(place, 10)
        server.kill()
        place.open_gate()
        until(lambda: len(place.ledger.ends()) == 10, 5, "the runs end while Redis is away")
        server.start()
        for job in jobs:
            assert job.result_sync(15) == "done"
        assert probe.echo.enqueue_sync(1).result_sync(10) == 1
        assert len(place.ledger.starts()) == 10
