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


def test_usage_counts_the_whole_tree(place: Site) -> None:
    worker = place.worker("-c", "2")
    child = worker.children()[0]
    job = probe.isolated.enqueue_sync(place.gate())
    pid = until(lambda: [s.pid for s in place.ledger.starts()], 20, "it runs")[0]
    assert pid in {use.pid for use in usage_of(child)}
    place.open_gate()
    job.result_sync(20)
    assert usage_of(2**22) == []
