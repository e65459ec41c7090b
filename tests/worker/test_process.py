"""Jobs in a process of their own: isolation, hard ends, and who is blamed for a crash."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import probe
from support.workers import Site, site, until
from taskq import JobCancelled, JobFailed, JobHandle
from taskq.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("process")
    with EmbeddedServer() as server, site(server, folder) as place:
        place.worker("-c", "20")
        yield place


def failure(job: JobHandle[object], seconds: float = 20) -> dict[str, str]:
    with pytest.raises(JobFailed) as caught:
        job.result_sync(seconds)
    return caught.value.error


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_result_log_and_resources(place: Site) -> None:
    value = {"a": 130775545883395173, "b": [], "c": "é\u0000😀"}
    job = probe.isolated.enqueue_sync(None, value)
    x, pid, state = job.result_sync(20)
    assert (x, state) == (value, {"greeting": "hello"})
    assert pid not in place.workers[0].children()
    assert [line["line"] for line in job.info_sync().log] == ["from its own process"]
    assert probe.isolated_async.enqueue_sync([1, 2]).result_sync(20) == [1, 2]


def test_timeout_kills_the_whole_tree(place: Site) -> None:
    """Also a call that never gives the interpreter back, and what it started."""
    children = place.workers[0].children()
    job = probe.isolated_slow.enqueue_sync(True)
    assert failure(job)["type"] == "Timeout"
    pid = next(start.pid for start in place.ledger.starts() if start.job_id == job.id)
    grandchild = int(next(words[1] for words in place.ledger.lines() if words[0] == "CHILD"))
    until(lambda: not alive(pid) and not alive(grandchild), 2, "nothing of it runs any more")
    assert place.workers[0].children() == children


def test_cancel_kills_at_once(place: Site) -> None:
    job = probe.isolated.enqueue_sync(place.gate("never"))
    until(lambda: any(s.job_id == job.id for s in place.ledger.starts()), 20, "it runs")
    job.cancel_sync()
    with pytest.raises(JobCancelled):
        job.result_sync(3)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("kill", "signal 9"), ("exit 0", "exit 0"), ("exit 3", "exit 3"), ("segfault", "signal 11")],
)
def test_crash_of_its_own_process_costs_nobody_else(place: Site, how: str, reason: str) -> None:
    children = place.workers[0].children()
    job = probe.isolated_dies.enqueue_sync(how)
    error = failure(job)
    assert error["type"] == "WorkerCrashed"
    assert error["message"].startswith(reason)
    info = job.info_sync()
    assert (info.crashes, info.failures, info.attempts) == (3, 0, 3)
    assert [event["event"] for event in info.history] == ["crashed"] * 3
    assert place.workers[0].children() == children


@pytest.mark.parametrize("how", ["sys.exit", "raise"])
def test_raising_there_is_a_failure(place: Site, how: str) -> None:
    job = probe.isolated_dies.enqueue_sync(how)
    failure(job)
    info = job.info_sync()
    assert (info.crashes, info.failures) == (0, 3)


def test_memory_cap_names_itself(place: Site) -> None:
    job = probe.isolated_hog.enqueue_sync()
    assert "150 MiB of memory" in failure(job)["message"]


@pytest.mark.parametrize("how", ["kill", "exit 0"])
def test_poison_is_found_and_neighbours_go_free(tmp_path: Path, how: str) -> None:
    """A job that takes its worker down is failed after three crashes; the others lose at most one try."""
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        place.worker("-c", "10")
        beside = [probe.gated.enqueue_sync(place.gate()) for _ in range(9)]
        until(lambda: len(place.ledger.starts()) == 9, 20, "nine run")
        poison = probe.dies.enqueue_sync(how)
        assert failure(poison, 30)["message"].startswith("signal 9" if how == "kill" else "exit 0")
        place.open_gate()
        for job in beside:
            assert job.result_sync(30) == "done"
            assert job.info_sync().crashes == 1
        starts = Counter(start.job_id for start in place.ledger.starts())
        assert starts[poison.id] == 3
        assert not place.findings()


def test_coroutine_that_swallows_its_cancellation(tmp_path: Path) -> None:
    """Its process is given up for it, the jobs beside it get their grace, and the failure has its reason."""
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        worker = place.worker("-c", "5", TASKQ_GRACE_SECONDS="3")
        beside = probe.gated.enqueue_sync(place.gate())
        stubborn = probe.swallows.enqueue_sync()
        error = failure(stubborn, 30)
        assert error["type"] == "Timeout"
        place.open_gate()
        assert beside.result_sync(30) == "done"
        info = beside.info_sync()
        assert (info.crashes, info.lost, info.failures) == (0, 0, 0)
        assert probe.echo.enqueue_sync(1).result_sync(20) == 1, worker.log.read_text()


def test_nothing_outlives_a_supervisor_and_a_child_that_are_killed(tmp_path: Path) -> None:
    """kill -9 of those two alone: the fork server and the runs below it end by themselves, so that no second
    start overlaps with a first."""
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        worker = place.worker("-c", "5")
        for _ in range(3):
            probe.isolated.enqueue_sync(place.gate("never"))
        until(lambda: len(place.ledger.starts()) == 3, 20, "they run")
        below = [p.pid for p in psutil.Process(worker.pid).children(recursive=True)]
        for pid in (worker.pid, *worker.children()):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(alive(pid) for pid in below), 5, "nothing of it runs any more")
