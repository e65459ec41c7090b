"""What a worker process tells of its own work."""

from pathlib import Path

import pytest

from support import probe
from support.workers import site, until
from taskq.embedded import EmbeddedServer
from taskq.registry import COUNTED


@pytest.mark.parametrize("jobs", [20])
def test_claims_and_reports_are_told_with_the_record(tmp_path: Path, jobs: int) -> None:
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        place.worker("-c", "4")
        handles = [probe.echo.enqueue_sync(i) for i in range(jobs)]
        for handle in handles:
            handle.result_sync(10)
        redis = place.app.sync_client().store.redis
        (worker,) = redis.zrange("taskq:workers", 0, -1)

        def counted() -> dict[str, int]:
            record = redis.hgetall(f"taskq:worker:{worker.decode()}")
            return {name: int(record.get(name.encode(), -1)) for name in COUNTED}

        until(lambda: counted()["reported_jobs"] == jobs, 15, "all are told")
        told = counted()
        assert told["claimed_jobs"] == jobs
        assert 5 <= told["claims"] <= jobs, "four at a time"
        assert 1 <= told["reports"] <= jobs
        assert (told["redis_errors"], told["abandoned_slots"]) == (0, 0)
