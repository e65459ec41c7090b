"""``durable`` over REST: 201 when it is on disk, 503 with a code of its own where that cannot be promised."""

from pathlib import Path
from typing import Any

from taskq.embedded import EmbeddedServer


async def test_refused_where_it_cannot_be_promised(api: Any) -> None:
    """Nothing is stored, of a batch neither."""
    answer = await api.http.post("/jobs", json={"job_type": "echo", "durable": True})
    assert answer.status_code == 503
    assert answer.json()["code"] == "durable_unsupported"
    assert "appendfsync always" in answer.json()["detail"]
    jobs = [{"job_type": "echo"}, {"job_type": "echo", "durable": True}]
    answer = await api.http.post("/jobs/batch", json={"jobs": jobs})
    assert (answer.status_code, answer.json()["code"]) == (503, "durable_unsupported")
    assert await api.jobs_stored() == 0


async def test_answered_by_a_server_that_syncs(tmp_path: Path, run_api: Any) -> None:
    with EmbeddedServer(tmp_path, persistent=True, appendfsync="always") as server:
        async with run_api(server.url) as api:
            job = await api.submit(durable=True)
            server.kill()
            server.start()
            found = await api.http.get(f"/jobs/{job['id']}")
            assert found.json()["state"] == "queued"
