"""A cluster of one node that holds all slots: nothing that is done to a queue leaves its slot."""

from pathlib import Path

import pytest
import redis

from support import probe
from support.workers import site, until
from taskq import JobFailed
from taskq.embedded import EmbeddedServer


def _whole(client: "redis.Redis") -> bool:
    return b"cluster_state:ok" in bytes(client.execute_command("CLUSTER", "INFO"))


def test_f53_a_cluster_of_one_node(tmp_path: Path) -> None:
    """F53: submissions, runs, failures, retries, cancels, waits and repair touch one slot each."""
    with EmbeddedServer(config={"cluster-enabled": "yes"}) as server:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            until(lambda: _whole(client), 20, "the cluster serves its slots")
        with site(server, tmp_path) as place:
            worker = place.worker("-c", "5", "-q", "default,other")
            assert probe.echo.enqueue_sync([1]).result_sync(20) == [1]
            assert probe.echo.options(queue="other").enqueue_sync(2).result_sync(20) == 2
            assert (
                probe.echo.options(delay=0.2, unique_key="k").enqueue_sync(3).result_sync(20) == 3
            )
            failing = probe.fail.options(idempotency_key="k").enqueue_sync()
            with pytest.raises(JobFailed):
                failing.result_sync(20)
            failing.retry_sync()
            until(lambda: place.state(failing.id) == "failed", 20, "it has failed again")
            held = probe.gated.enqueue_sync(place.gate("never"))
            until(lambda: place.state(held.id) == "running", 10, "it runs")
            assert held.cancel_sync() == "running"
            until(lambda: place.state(held.id) == "cancelled", 10, "it was stopped")
            waiting = place.app.submit_sync("nobody_knows", {}, delay=60)
            assert waiting.cancel_sync() == "cancelled"
            assert not place.findings()
            assert worker.stop() == 0
            for word in ("CROSSSLOT", "MOVED", "CLUSTERDOWN", "Traceback"):
                assert word not in worker.log.read_text()
