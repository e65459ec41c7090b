"""Stored keys: made, used, counted, ended; and a door that closes by itself and never opens."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from support.workers import COMMAND
from taskq.apikeys import ALL_SCOPES, KeyRequest, KeyStore
from taskq.errors import ConfigError
from taskq.settings import load_settings
from taskq_api import keyring
from taskq_api.app import create_app

Check = Callable[..., dict[str, Any]]
LATE = 5.0
"""What a busy machine may add to a bound."""


async def make(api: Any, *scopes: str, **more: Any) -> tuple[str, dict[str, str]]:
    """(id, headers) of a new key, known to this API."""
    headers = await api.key(*(scopes or ("admin", "read", "submit")), **more)
    return headers["x-key-id"], headers


async def until(condition: Callable[[], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_the_first_key_closes_an_open_door(api: Any, problem: Check) -> None:
    made = await api.http.post("/keys", json={"name": "first", "scopes": ["admin", "read"]})
    assert made.status_code == 201
    problem(await api.http.get("/queues"), 401, "unauthorized")
    headers = {"authorization": f"Bearer {made.json()['token']}", "host": "tasks.example.com"}
    assert (await api.http.get("/queues", headers=headers)).status_code == 200
    assert (await api.http.get("/health")).status_code == 200


async def test_every_other_process_closes_too(run_api: Any, redis_url: str) -> None:
    async with run_api() as one, run_api(redis_url) as other:
        assert (await other.http.get("/queues")).status_code == 200
        await KeyStore(one.store).create(KeyRequest("k", ["read"]))

        async def closed() -> bool:
            return bool((await other.http.get("/queues")).status_code == 401)

        await until(closed, keyring.STALE_SECONDS + LATE)


async def test_it_never_opens_by_itself(api: Any, problem: Check) -> None:
    key_id, headers = await make(api)
    answer = await api.http.delete(f"/keys/{key_id}", headers=headers)
    assert answer.json() == {"id": key_id, "name": "k", "revoked": True}
    problem(await api.http.get("/queues", headers=headers), 401, "unauthorized")
    await api.app.state.services.ring.read()
    problem(await api.http.get("/queues"), 401, "unauthorized")


async def test_a_secret_is_shown_once_and_kept_nowhere(api: Any) -> None:
    made = (await api.http.post("/keys", json={"name": "ci", "scopes": ["admin"]})).json()
    token = made["token"]
    assert token.startswith(f"tq_{made['id']}_")
    secret = token.rsplit("_", 1)[1]
    assert len(secret) * 4 >= 160
    listed = await api.http.get("/keys", headers={"authorization": f"Bearer {token}"})
    (shown,) = listed.json()["keys"]
    assert shown == {name: value for name, value in made.items() if name != "token"}
    redis = api.store.redis
    for name in await redis.keys("*"):
        kind = await redis.type(name)
        held = {b"hash": redis.hgetall, b"stream": redis.xrange, b"set": redis.smembers}[kind]
        assert secret not in str(await held(name)), name


async def test_a_revoked_key_ends_everywhere_within_five_seconds(run_api: Any) -> None:
    async with run_api() as one, run_api() as other:
        key_id, headers = await make(one)
        await other.app.state.services.ring.read()
        assert (await other.http.get("/queues", headers=headers)).status_code == 200
        await KeyStore(one.store).revoke(key_id)

        async def refused() -> bool:
            return bool((await other.http.get("/queues", headers=headers)).status_code == 401)

        await until(refused, keyring.STALE_SECONDS + LATE)


@pytest.mark.parametrize("was", ["open", "stored", "listed"])
async def test_who_waits_is_asked_again(run_api: Any, problem: Check, was: str) -> None:
    """A key that was revoked meanwhile gets no result; nor does one without, if a first key was made."""
    async with run_api(api_keys="one" if was == "listed" else None) as api:
        key_id, headers = None, {"authorization": "Bearer one"}
        job = await api.http.post("/jobs", json={"job_type": "echo"}, headers=headers)
        if was == "stored":
            key_id, headers = await make(api, "read", "payload")
        path = f"/jobs/{job.json()['id']}/result?wait=20"
        waiting = asyncio.create_task(api.http.get(path, headers=headers))
        await until(api.store.redis.pubsub_channels, 20)
        if key_id is None:
            await make(api, "read")
        else:
            await KeyStore(api.store).revoke(key_id)
            await api.app.state.services.ring.read()
        await api.finish(job.json()["id"], b'"sesame"')
        answer = await waiting
        if was == "listed":
            assert answer.json()["result"] == "sesame"
        else:
            problem(answer, 401, "unauthorized")
            assert "sesame" not in answer.text


async def test_nothing_is_decided_on_old_news(
    run_api: Any, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the loop that reads the keys fares: a request looks again before it believes them."""
    monkeypatch.setattr(keyring, "REFRESH_SECONDS", 3600)
    async with run_api() as api:
        key_id, headers = await make(api)
        await KeyStore(api.store).revoke(key_id)
        assert (await api.http.get("/queues", headers=headers)).status_code == 200
        ring = api.app.state.services.ring
        ring._read_at -= keyring.STALE_SECONDS
        problem(await api.http.get("/queues", headers=headers), 401, "unauthorized")


async def test_a_known_key_and_a_wrong_one_cost_no_call(api: Any) -> None:
    _, headers = await make(api)
    redis = api.store.redis

    async def commands() -> int:
        return int((await redis.info("stats"))["total_commands_processed"])

    async def cost(**more: Any) -> int:
        before = await commands()
        await api.http.get("/openapi.json", **more)
        return await commands() - before

    async def looked() -> int:
        before = await commands()
        return await commands() - before

    # The janitor and the ring may come in between, but not each time.
    ours = min([await looked() for _ in range(5)])
    for token in (headers["authorization"], "Bearer tq_0_1"):
        assert min([await cost(headers={"authorization": token}) for _ in range(5)]) == ours


async def test_a_key_ends_when_it_was_said_to(api: Any, problem: Check) -> None:
    _, headers = await make(api, "read", expires_ms=3_600_000)
    assert (await api.http.get("/queues", headers=headers)).status_code == 200
    ring = api.app.state.services.ring
    ring._now_ms += 3_600_000
    shown = problem(await api.http.get("/queues", headers=headers), 401, "unauthorized")
    assert "expired" in shown["detail"]
    wrong = {"authorization": headers["authorization"][:-1]}
    shown = problem(await api.http.get("/queues", headers=wrong), 401, "unauthorized")
    assert "expired" not in shown["detail"]


async def test_the_last_use_is_told_once_a_minute(api: Any) -> None:
    key_id, headers = await make(api)
    ring, keys = api.app.state.services.ring, KeyStore(api.store)
    await api.http.get("/queues", headers=headers)
    await ring.write_used()
    (key,) = await keys.list()
    assert key.used_at is not None
    await api.store.redis.hset("taskq:keys:used", key_id, 1)
    await api.http.get("/queues", headers=headers)
    await ring.write_used()
    assert (await keys.list())[0].used_at == 1
    ring._written[key_id] -= keyring.USED_SECONDS
    await api.http.get("/queues", headers=headers)
    await ring.write_used()
    assert ((await keys.list())[0].used_at or 0) > 1


@pytest.mark.parametrize(
    "stored",
    [b"", b"{}", b"[]", b"nonsense", b'{"name":"x","sha256":"zz","scopes":["admin"]}',
     b'{"name":"x","sha256":"","scopes":["admin"]}',
     b'{"name":"x","sha256":"00","scopes":"admin","queues":"q"}'],
)  # fmt: skip
async def test_what_a_hand_broke_opens_nothing(api: Any, problem: Check, stored: bytes) -> None:
    await api.store.redis.hset("taskq:keys", "a", stored)
    await api.app.state.services.ring.read()
    for token in ("tq_a_", "tq_a_b", "tq_a_" + "0" * 48, ""):
        headers = {"authorization": f"Bearer {token}"}
        problem(await api.http.get("/queues", headers=headers), 401, "unauthorized")
    assert await KeyStore(api.store).list() == []


async def test_a_broken_hash_of_keys_lets_nobody_in(
    run_api: Any, redis_url: str, problem: Check
) -> None:
    async with run_api() as api:
        await api.store.redis.set("taskq:keys", "oops")
        api.app.state.services.ring._read_at = float("-inf")
        problem(await api.http.get("/queues"), 500, "broken_key")
        assert (await api.http.get("/health")).status_code == 200


async def test_while_redis_is_away_only_listed_keys_are_known(run_api: Any, problem: Check) -> None:
    async with run_api("redis://127.0.0.1:1/0", api_keys="listed") as api:
        for token in ("tq_0_1", "wrong"):
            answer = await api.http.get("/docs", headers={"authorization": f"Bearer {token}"})
            problem(answer, 503, "redis_unavailable")
            assert answer.headers["retry-after"]
        listed = {"authorization": "Bearer listed"}
        assert (await api.http.get("/docs", headers=listed)).status_code == 200


class TestAnotherAddress:
    def test_takes_a_key(self) -> None:
        with pytest.raises(ConfigError, match="taskq keys create"):
            create_app(load_settings(api_host="0.0.0.0"))
        create_app(load_settings(api_host="0.0.0.0"), keys_stored=True)

    async def test_is_served_for_stored_keys_and_stays_closed_without(
        self, run_api: Any, problem: Check
    ) -> None:
        """Also if the last key was revoked between the look for it and the first request."""
        async with run_api(api_host="0.0.0.0", keys_stored=True) as api:
            problem(await api.http.get("/queues"), 401, "unauthorized")
            _, headers = await make(api, "read")
            assert (await api.http.get("/queues", headers=headers)).status_code == 200


def test_taskq_api_listens_elsewhere_once_there_is_a_key(
    redis_url: str, start_api: Any, command: Any
) -> None:
    arguments = ("--host", "0.0.0.0", "--redis-url", redis_url)
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "taskq keys create" in done.stderr
    create = ("keys", "create", "--name", "n", "--scope", "read", "--redis-url", redis_url)
    made = subprocess.run(
        [sys.executable, "-c", COMMAND, *create], capture_output=True, text=True, check=True
    )
    process = start_api(*arguments)
    token = made.stdout.strip()
    assert httpx.get(f"{process.url}/queues").status_code == 401
    headers = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"{process.url}/queues", headers=headers).status_code == 200
    assert token not in "".join(process.lines)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "a"}, "scopes"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["root"]}, "scopes"),
        ({"name": "a", "scopes": "admin"}, "scopes"),
        ({"name": "a", "scopes": [["admin"]]}, "scopes.0"),
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "a\nb", "scopes": ["read"]}, "name"),
        ({"name": "x" * 201, "scopes": ["read"]}, "name"),
        ({"name": "a", "scopes": ["read"], "expires": 0}, "expires"),
        ({"name": "a", "scopes": ["read"], "expires": 1e300}, "expires"),
        ({"name": "a", "scopes": ["read"], "expires": "30d"}, "expires"),
        ({"name": "a", "scopes": ["read"], "rate": "1000000000/s"}, "rate"),
        ({"name": "a", "scopes": ["read"], "rate": 5}, "rate"),
        ({"name": "a", "scopes": ["read"], "rate": "5/s\n"}, "rate"),
        ({"name": "a", "scopes": ["read"], "queues": ["a b"]}, "queue"),
        ({"name": "a", "scopes": ["read"], "queues": "mail"}, "queues"),
        ({"name": "a", "scopes": ["read"], "job_types": ["x"] * 101}, "job_types"),
        ({"name": "a", "scopes": ["admin"], "job_types": ["x"]}, "scopes"),
        ({"name": "a", "scopes": ["read"], "sha256": "00"}, "sha256"),
    ],
)
async def test_wrong_wishes_make_no_key(
    api: Any, problem: Check, body: dict[str, Any], field: str
) -> None:
    shown = problem(await api.http.post("/keys", json=body), 422, "invalid")
    assert shown["field"] == field
    assert await api.store.redis.keys("*") == []
    assert (await api.http.get("/queues")).status_code == 200


@pytest.mark.parametrize("key_id", ["nope", "../x", "%00", "a" * 500, "*", "A"])
async def test_there_is_nothing_to_revoke(api: Any, problem: Check, key_id: str) -> None:
    await make(api)
    answer = await api.http.delete(f"/keys/{key_id}", headers=await api.key("admin"))
    assert answer.status_code == 404
    assert len(await KeyStore(api.store).list()) == 2


async def test_a_token_is_repeated_nowhere(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    headers = await api.key("read")
    secret = headers["authorization"].rsplit("_", 1)[1]
    for sent in (headers, {"authorization": f"Basic {secret}"}, {"authorization": secret}):
        for path in ("/queues", "/keys", "/nope", "/jobs?limit=x", f"/jobs?key={secret}"):
            answer = await api.http.get(path, headers=sent)
            assert secret not in answer.text
            assert secret not in str(answer.headers)
    # The client of this very test logs its addresses; the API logs none of what it was sent.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("taskq")]
    assert secret not in "".join(ours)
    assert secret not in repr(api.app.state.services.ring._known)


async def test_a_key_tells_its_user_what_it_may_do(api: Any) -> None:
    key_id, headers = await make(api, "read", queues=["mail"], rate="100/s", expires_ms=3_600_000)
    shown = (await api.http.get("/keys/self", headers=headers)).json()
    assert shown.pop("expires_at") is not None
    assert shown == {
        "who": f"key:{key_id}",
        "name": "k",
        "scopes": ["read"],
        "queues": ["mail"],
        "job_types": None,
        "rate": "100/s",
    }


async def test_where_none_is_asked_for_everybody_may_do_everything(run_api: Any) -> None:
    async with run_api() as api:
        shown = (await api.http.get("/keys/self")).json()
        assert (shown["who"], shown["name"], shown["expires_at"]) == ("open", None, None)
        assert set(shown["scopes"]) == {str(scope) for scope in ALL_SCOPES}
    async with run_api(api_keys="one,two") as api:
        answer = await api.http.get("/keys/self", headers={"authorization": "Bearer two"})
        assert answer.json()["who"] == "env:2"
