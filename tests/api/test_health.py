"""Health, readiness, and what clients see while Redis is away."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from taskq.embedded import EmbeddedServer

Check = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskq_api.deps.RETRY_SECONDS", 0.1)


async def test_says_that_it_lives_and_can_work(api: Any) -> None:
    answer = await api.http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert answer.json()["version"]
    answer = await api.http.get("/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    for path in ("/health", "/ready"):
        assert (await api.http.head(path)).status_code == 200
    assert (await api.http.get("/")).json()["docs"] == "/docs"
    assert await api.store.redis.keys("*ready*") == []


async def test_while_redis_is_away(run_api: Any, problem: Check) -> None:
    with EmbeddedServer() as server:
        async with run_api(server.url) as api:
            job = await api.submit()
            server.stop()
            assert (await api.http.get("/health")).status_code == 200
            reasons = problem(await api.http.get("/ready"), 503, "not_ready")["reasons"]
            assert reasons == ["Redis cannot be used now (connection)"]
            body = {"json": {"job_type": "echo"}}
            for method, path, options in (
                ("POST", "/jobs", body),
                ("POST", "/jobs/batch", {"json": {"jobs": [body["json"]]}}),
                ("GET", f"/jobs/{job['id']}", {}),
                ("GET", "/jobs", {}),
                ("GET", "/queues", {}),
                ("PATCH", "/queues/q", {"json": {"paused": True}}),
                ("POST", f"/jobs/{job['id']}/cancel", {}),
                ("GET", "/workers", {}),
            ):
                answer = await api.http.request(method, path, **options)
                shown = problem(answer, 503, "redis_unavailable")
                assert shown["reason"] == "connection"
                assert int(answer.headers["retry-after"]) > 0
                assert "sock" not in answer.text


async def test_with_memory_full(run_api: Any, problem: Check) -> None:
    """F08: refused with a time to come back, and nothing stored."""
    with EmbeddedServer() as server:
        async with run_api(server.url) as api:
            job = await api.submit()
            await api.store.redis.config_set("maxmemory", "1")
            answer = await api.http.post("/jobs", json={"job_type": "echo"})
            problem(answer, 503, "redis_out_of_memory")
            assert answer.headers["retry-after"]
            shown = problem(await api.http.get("/ready"), 503, "not_ready")
            assert shown["reasons"] == ["Redis does not take writes now (oom)"]
            await api.finish(job["id"], b"1")  # what frees memory goes on
            assert await api.jobs_stored() == 1


async def test_with_a_server_that_evicts(run_api: Any, problem: Check) -> None:
    """F44: also when it is set while the process runs."""
    with EmbeddedServer() as server:
        async with run_api(server.url) as api:
            await api.store.redis.config_set("maxmemory", "100mb")
            await api.store.redis.config_set("maxmemory-policy", "allkeys-lru")
            shown = problem(await api.http.get("/ready"), 503, "not_ready")
            assert "noeviction" in shown["detail"]


async def test_with_a_read_only_replica(run_api: Any, problem: Check) -> None:
    """F08: refused likewise."""
    with EmbeddedServer() as server:
        async with run_api(server.url) as api:
            await api.store.redis.replicaof("127.0.0.1", "1")
            problem(await api.http.get("/ready"), 503, "not_ready")
            answer = await api.http.post("/jobs", json={"job_type": "echo"})
            assert problem(answer, 503, "redis_unavailable")["reason"] == "readonly"


async def test_the_server_tells_its_memory_and_how_it_keeps_what_is_written(run_api: Any) -> None:
    with EmbeddedServer(persistent=True, appendfsync="always") as server:
        async with run_api(server.url) as api:
            await api.store.redis.config_set("maxmemory", 1 << 30)
            shown = (await api.http.get("/server")).json()
            assert (shown["append_only"], shown["append_fsync"]) == (True, "always")
            assert shown["append_only_ok"] is True
            assert shown["append_only_size"] >= 0
            assert (shown["memory_max"], shown["maxmemory_policy"]) == (1 << 30, "noeviction")
            assert 0 < shown["memory_used"] <= shown["memory_peak"]
            assert (shown["role"], shown["replicas"]) == ("master", 0)
            assert shown["clients"] >= 1
            assert shown["problems"] == []
            assert shown["flavour"] in ("redis", "valkey")


async def test_what_a_server_would_not_tell_is_null(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A managed one: no INFO, no CONFIG."""
    store = api.app.state.services.client.store
    refused = NoPermissionError("NOPERM this user has no permissions")

    async def pipeline(commands: Any) -> list[Any]:
        return [refused for _ in commands]

    monkeypatch.setattr(type(store), "pipeline", lambda _, commands: pipeline(commands))
    shown = (await api.http.get("/server")).json()
    assert shown["flavour"] == "unknown"
    assert "maxmemory" in shown["unknown"]
    assert {shown[name] for name in ("role", "uptime", "memory_used", "append_only")} == {None}
