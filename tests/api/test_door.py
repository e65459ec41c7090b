"""Wrong keys, rates, foreign pages: what the door does about those who try."""

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from taskq.errors import ConfigError, Unavailable
from taskq.settings import load_settings
from taskq_api import auth, keyring, tries
from taskq_api.app import create_app
from taskq_api.docs import api_routes
from taskq_api.tries import FailedTries, peer_of

Check = Callable[..., dict[str, Any]]


def client_at(api: Any, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=api.app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")


class TestGuessing:
    async def test_is_slowed_down(self, api: Any, problem: Check) -> None:
        await api.key("read")
        statuses = []
        for i in range(tries.TRIES + 5):
            headers = {"authorization": f"Bearer tq_x_{i}"}
            answer = await api.http.get("/queues", headers=headers)
            statuses.append(answer.status_code)
        assert statuses == [401] * tries.TRIES + [429] * 5
        problem(answer, 429, "too_many_failures")
        assert 1 <= int(answer.headers["retry-after"]) <= tries.PAUSE_SECONDS

    async def test_a_right_guess_is_answered_like_a_wrong_one(
        self, run_api: Any, problem: Check
    ) -> None:
        """Of a key that somebody chose; nobody guesses one that was made here, and so it goes in."""
        async with run_api(api_keys="sesame") as api:
            made = await api.key("read")
            for i in range(tries.TRIES + 1):
                await api.http.get("/queues", headers={"authorization": f"Bearer {i}"})
            guess = await api.http.get("/queues", headers={"authorization": "Bearer sesame"})
            problem(guess, 429, "too_many_failures")
            assert (await api.http.get("/queues", headers=made)).status_code == 200

    async def test_shuts_out_nobody_else(self, api: Any) -> None:
        """Neither from elsewhere, nor, behind one proxy, a client that has been right before."""
        known, fresh = await api.key("read"), await api.key("read")
        assert (await api.http.get("/queues", headers=known)).status_code == 200
        for i in range(tries.TRIES * 2):
            await api.http.get("/queues", headers={"authorization": f"Bearer {i}"})
        assert (await api.http.get("/queues", headers=known)).status_code == 200
        async with client_at(api, "192.0.2.7") as elsewhere:
            assert (await elsewhere.get("/queues", headers=fresh)).status_code == 200

    async def test_no_key_at_all_is_no_guess(self, api: Any, problem: Check) -> None:
        await api.key("read")
        for _ in range(tries.TRIES * 2):
            problem(await api.http.get("/queues"), 401, "unauthorized")

    def test_is_counted_in_bounded_memory(self) -> None:
        failed = FailedTries(max_peers=100)
        for i in range(1_000):
            failed.note(f"192.0.2.{i}")
        assert len(failed._empty_at) == 100

    def test_is_forgiven_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = time.monotonic()
        monkeypatch.setattr(tries.time, "monotonic", lambda: now)
        failed = FailedTries()
        for _ in range(tries.TRIES):
            assert failed.wait_for("a") == 0
            failed.note("a")
        assert failed.wait_for("a") == pytest.approx(tries.PAUSE_SECONDS)
        now += tries.PAUSE_SECONDS
        assert failed.wait_for("a") == 0

    @pytest.mark.parametrize(
        ("client", "peer"),
        [
            (("192.0.2.1", 5), "192.0.2.1"),
            (("::ffff:192.0.2.1", 5), "192.0.2.1"),
            (("2001:db8::1", 5), "2001:db8::/64"),
            (("2001:db8::ffff:1", 9), "2001:db8::/64"),
            (("fe80::1%eth0", 9), "fe80::/64"),
            (("testclient", 9), "testclient"),
            (None, ""),
        ],
    )
    def test_is_counted_by_who_can_change_addresses(self, client: Any, peer: str) -> None:
        assert peer_of(client) == peer


async def test_every_comparison_of_a_key_is_whole_and_of_digests(
    run_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that depends on a secret is compared but by ``compare_digest`` of two SHA-256: as many times
    for a wrong token as for a right one, known id or not."""
    compared: list[tuple[bytes, bytes]] = []

    def comparing(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return hmac.compare_digest(a, b)

    class Noting:
        compare_digest = staticmethod(comparing)

    monkeypatch.setattr(keyring, "hmac", Noting)
    async with run_api(api_keys="one,two") as api:
        right = (await api.key("read"))["authorization"].removeprefix("Bearer ")
        key_id = right.split("_")[1]
        counts = set()
        for token in (right, f"tq_{key_id}_{'0' * 48}", f"tq_nobody_{'0' * 48}", "x" * 500, ""):
            compared.clear()
            await api.http.get("/queues", headers={"authorization": f"Bearer {token}"})
            counts.add(len(compared))
            assert all(len(a) == len(b) == hashlib.sha256().digest_size for a, b in compared)
        assert counts == {3}


class TestRates:
    async def test_hold_for_a_key_alone(self, api: Any, problem: Check) -> None:
        slow, other = await api.key("read", rate="3/h"), await api.key("read")
        for _ in range(3):
            assert (await api.http.get("/queues", headers=slow)).status_code == 200
        answer = await api.http.get("/queues", headers=slow)
        problem(answer, 429, "rate_limited")
        assert 1100 < int(answer.headers["retry-after"]) <= 1200
        assert (await api.http.get("/queues", headers=other)).status_code == 200

    async def test_hold_over_all_processes(self, run_api: Any) -> None:
        async with run_api() as one, run_api() as two:
            headers = await one.key("read", rate="4/h")
            await two.app.state.services.ring.read()
            statuses = [
                (await api.http.get("/queues", headers=headers)).status_code
                for _ in range(3)
                for api in (one, two)
            ]
        assert statuses == [200] * 4 + [429] * 2

    async def test_a_flood_does_not_reach_redis(self, api: Any) -> None:
        headers = await api.key("read", rate="1/h")
        assert (await api.http.get("/queues", headers=headers)).status_code == 200
        asked = 0
        run = api.store.run

        async def counting(*args: Any, **more: Any) -> Any:
            nonlocal asked
            asked += 1
            return await run(*args, **more)

        api.app.state.services.ring._store.run = counting
        for _ in range(20):
            assert (await api.http.get("/queues", headers=headers)).status_code == 429
        assert asked <= 1

    async def test_are_kept_by_each_process_while_redis_is_away(self, api: Any) -> None:
        headers = await api.key("read", rate="2/h")

        async def away(*args: Any, **more: Any) -> Any:
            raise Unavailable("gone", reason="connection")

        ring = api.app.state.services.ring
        access, _ = ring.find(
            token := headers["authorization"].removeprefix("Bearer ").encode(),
            hashlib.sha256(token).digest(),
        )
        assert access is not None
        ring._store.run = away
        waits = [await ring.wait_for(access) for _ in range(3)]
        assert waits[:2] == [0, 0]
        assert waits[2] > 1700

    async def test_cost_nothing_where_there_is_none(self, api: Any) -> None:
        headers = await api.key("read")
        await api.http.get("/queues", headers=headers)
        assert await api.store.redis.keys("taskq:rate:*") == []


MUTATING = [
    (method, route.path)
    for route in api_routes(create_app(load_settings()).routers)
    for method in sorted(route.methods)
    if method not in ("GET", "HEAD")
]


@pytest.mark.parametrize(("method", "path"), MUTATING)
async def test_no_foreign_page_changes_anything(
    api: Any, problem: Check, method: str, path: str
) -> None:
    """Of an open API: by its Origin, by a name that was pointed here, or by a form's content type."""
    path = path.replace("{job_id}", (await api.submit())["id"]).replace("{queue}", "default")
    for headers, code in (
        ({"origin": "http://evil.com"}, "forbidden_origin"),
        ({"origin": "null"}, "forbidden_origin"),
        ({"host": "evil.com"}, "forbidden_host"),
        ({"host": "localhost.evil.com:8000"}, "forbidden_host"),
    ):
        problem(await api.http.request(method, path, headers=headers, json={}), 403, code)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await api.http.request(
            method, path, content=b'{"paused":true}', headers={"content-type": kind}
        )
        problem(answer, 415, "unsupported_media_type")
    assert (await api.http.get("/jobs")).json()["jobs"][0]["state"] == "queued"
    assert (await api.http.get("/queues/default")).json()["paused"] is False


class TestForeignPages:
    ORIGIN = "https://ops.example.com"

    async def preflight(self, api: Any, origin: str) -> httpx.Response:
        headers = {"origin": origin, "access-control-request-method": "POST"}
        headers["access-control-request-headers"] = "authorization,content-type"
        answer: httpx.Response = await api.http.options("/jobs", headers=headers)
        return answer

    async def test_get_nothing_unless_named(self, run_api: Any) -> None:
        for keys in (None, "one"):
            async with run_api(api_keys=keys) as api:
                answers = [
                    await self.preflight(api, self.ORIGIN),
                    await api.http.get("/health", headers={"origin": self.ORIGIN}),
                ]
            for answer in answers:
                assert not [name for name in answer.headers if name.startswith("access-control")]

    @pytest.mark.parametrize("keys", [None, "one"])
    async def test_that_are_named_may_ask(self, run_api: Any, keys: str | None) -> None:
        named = f"http://localhost:3000, {self.ORIGIN}"
        async with run_api(api_keys=keys, cors_origins=named) as api:
            asked = await self.preflight(api, self.ORIGIN)
            assert asked.status_code == 200
            assert asked.headers["access-control-allow-origin"] == self.ORIGIN
            headers = {"origin": self.ORIGIN, "authorization": "Bearer one"}
            answer = await api.http.post("/jobs", json={"job_type": "echo"}, headers=headers)
            assert answer.status_code == 201
            assert answer.headers["access-control-allow-origin"] == self.ORIGIN
            assert "access-control-allow-credentials" not in answer.headers

    @pytest.mark.parametrize("path", ["/jobs/default:" + "0" * 26, "/health"])
    async def test_that_are_named_are_told_of_faults(
        self, run_api: Any, problem: Check, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        """By a route with a shortcut and by one without: a page could not read the answer otherwise."""

        def fails(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr("taskq.inspector.Inspector.job", fails)
        monkeypatch.setattr("taskq_api.routes.health.json_response", fails)
        async with run_api(cors_origins=self.ORIGIN) as api:
            answer = await api.http.get(path, headers={"origin": self.ORIGIN})
            problem(answer, 500, "internal")
            assert answer.headers["access-control-allow-origin"] == self.ORIGIN

    async def test_that_are_not_named_may_not(self, run_api: Any) -> None:
        async with run_api(cors_origins=self.ORIGIN) as api:
            for origin in ("https://evil.com", self.ORIGIN + ".evil.com", "null"):
                asked = await self.preflight(api, origin)
                assert "access-control-allow-origin" not in asked.headers
                answer = await api.http.get("/jobs", headers={"origin": origin})
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers

    @pytest.mark.parametrize(
        "origins", ["*", "ops.example.com", "https://ops.example.com/", "https://*.example.com",
                    "null", "https://a.com,*", "file://x"],
    )  # fmt: skip
    def test_are_named_one_by_one(self, origins: str) -> None:
        with pytest.raises(ConfigError, match="TASKQ_CORS_ORIGINS"):
            load_settings(cors_origins=origins)


def test_the_door_decides_alone_who_needs_no_key() -> None:
    assert [path for path in auth.OPEN_PATHS if not auth.is_open(path)] == []
    for path in ("/jobs", "/docs", "/health/", "/HEALTH", "/health/../jobs", "//health"):
        assert not auth.is_open(path)
