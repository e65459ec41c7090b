"""A result comes back as the type that the task's hint says."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from support import probe
from support.workers import site
from taskq.embedded import EmbeddedServer


def test_results_have_the_hinted_type(tmp_path: Path) -> None:
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        place.worker("-c", "5")
        order = probe.Order(id=UUID(int=7), at=datetime(2026, 1, 2, tzinfo=UTC), lines=[1, 2])
        job = probe.returns_a_model.enqueue_sync(order)
        assert job.result_sync(20) == order
        assert place.app.job(job.id).result_sync(20) == {
            "id": str(order.id),
            "at": "2026-01-02T00:00:00Z",
            "lines": [1, 2],
        }
        assert probe.returns_something_else.enqueue_sync().result_sync(20) == "no number"
