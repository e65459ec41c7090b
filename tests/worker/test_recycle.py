"""Processes that are replaced while they work: by count of jobs, by memory."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import probe
from support.workers import Site, site, until
from taskq import JobFailed
from taskq.embedded import EmbeddedServer
from taskq_worker.memory import container_share, usage_of


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        yield place


def test_max_jobs_replaces_without_losing_or_delaying(place: Site) -> None:
    worker = place.worker("-c", "5", "--max-jobs", "20")
    first = worker.children()
    jobs = [probe.gated.enqueue_sync() for _ in range(100)]
    for job in jobs:
        assert job.result_sync(30) == "done"
    starts = Counter(start.job_id for start in place.ledger.starts())
    assert set(starts.values()) == {1}
    assert len({start.pid for start in place.ledger.starts()}) > 2
    until(lambda: worker.children() and worker.children() != first, 10, "it was replaced")
    assert not place.findings()


def test_job_that_outgrows_max_memory_is_found(place: Site) -> None:
    """It is not handed back for ever: what still runs after the grace has crashed, and is a suspect then."""
    place.worker("-c", "5", "--max-memory", "200", "--grace", "1")
    hog = probe.grows.enqueue_sync(250)
    with pytest.raises(JobFailed) as caught:
        hog.result_sync(60)
    assert "--max-memory" in caught.value.error["message"]
    assert probe.echo.enqueue_sync(1).result_sync(20) == 1


def test_container_share_reads_both_kinds_of_cgroups(tmp_path: Path) -> None:
    assert container_share(tmp_path) is None
    (tmp_path / "memory.current").write_text("95\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert container_share(tmp_path) is None
    (tmp_path / "memory.max").write_text("100\n")
    assert container_share(tmp_path) == 0.95
    old = tmp_path / "old" / "memory"
    old.mkdir(parents=True)
    (old / "memory.usage_in_bytes").write_text("50\n")
    (old / "memory.limit_in_bytes").write_text("100\n")
    assert container_share(tmp_path / "old") == 0.5
    (old / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert container_share(tmp_path / "old") is None


def test_pages_of_files_do_not_fill_the_container(tmp_path: Path) -> None:
    """The kernel drops them: a job that reads a large file is no reason to end anybody."""
    (tmp_path / "memory.current").write_text("95\n")
    (tmp_path / "memory.max").write_text("100\n")
    stat = tmp_path / "memory.stat"
    stat.write_text("anon 15\nfile 80\ninactive_file 60\nactive_file 10\n")
    assert container_share(tmp_path) == 0.25
    old = tmp_path / "old" / "memory"
    old.mkdir(parents=True)
    (old / "memory.usage_in_bytes").write_text("90\n")
    (old / "memory.limit_in_bytes").write_text("100\n")
    (old / "memory.stat").write_text(
        "inactive_file 5\ntotal_inactive_file 40\ntotal_active_file 20\n"
    )
    assert container_share(tmp_path / "old") == 0.3


def test_service_of_systemd_has_its_limit_below_the_root(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.write_text("0::/system.slice/taskq-worker@mail.service\n")
    assert container_share(tmp_path, proc) is None
    own = tmp_path / "system.slice" / "taskq-worker@mail.service"
    own.mkdir(parents=True)
    (own / "memory.current").write_text("3\n")
    (own / "memory.max").write_text("4\n")
    assert container_share(tmp_path, proc) == 0.75
    old = tmp_path / "memory" / "docker" / "1f"
    old.mkdir(parents=True)
    proc.write_text("5:cpu,cpuacct:/x\n4:memory:/docker/1f\n0::/\n")
    (old / "memory.usage_in_bytes").write_text("1\n")
    (old / "memory.limit_in_bytes").write_text("4\n")
    assert container_share(tmp_path, proc) == 0.25


def test_usage_counts_the_whole_tree(place: Site) -> None:
    worker = place.worker("-c", "2")
    child = worker.children()[0]
    job = probe.isolated.enqueue_sync(place.gate())
    pid = until(lambda: [s.pid for s in place.ledger.starts()], 20, "it runs")[0]
    assert pid in {use.pid for use in usage_of(child)}
    place.open_gate()
    job.result_sync(20)
    assert usage_of(2**22) == []


def test_long_jobs_end_although_their_process_was_replaced(place: Site) -> None:
    worker = place.worker("-c", "5", "--max-jobs", "10", "--grace", "1")
    long = probe.gated.enqueue_sync(place.gate())
    for _ in range(3):
        for job in [probe.echo.enqueue_sync(i) for i in range(15)]:
            job.result_sync(20)
    place.open_gate()
    assert long.result_sync(20) == "done"
    assert long.info_sync().attempts == 1
    until(lambda: len(worker.children()) == 1, 10, "one process is left")


def test_a_child_given_up_for_a_stubborn_run_is_replaced_by_one(place: Site) -> None:
    worker = place.worker("-c", "5", "--grace", "1")
    for _ in range(2):
        with pytest.raises(JobFailed):
            probe.swallows.enqueue_sync().result_sync(30)
    assert probe.echo.enqueue_sync(1).result_sync(20) == 1
    until(lambda: len(worker.children()) == 1, 10, "one process is left")


def test_what_a_job_starts_answers_signals(place: Site) -> None:
    place.worker("-c", "2")
    assert probe.terminates_a_child.enqueue_sync().result_sync(20) == -15


def test_exceptions_that_misbehave_end_only_their_job(place: Site) -> None:
    worker = place.worker("-c", "5")
    children = worker.children()
    for kind in ("recursive", "property", "exits"):
        with pytest.raises(JobFailed):
            probe.misbehaves.enqueue_sync(kind).result_sync(20)
    assert worker.children() == children
