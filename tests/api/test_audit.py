"""What people do is written down: who, what, to which, with what outcome; and never in their way."""

from collections.abc import Callable
from typing import Any

import pytest

from taskq.audit import MAX_ENTRIES, Actor, Audit
from taskq.errors import InvalidInput, OutOfMemory, Unavailable

Check = Callable[..., dict[str, Any]]


async def trail(api: Any, **query: Any) -> list[dict[str, Any]]:
    headers = await api.key("admin")
    answer = await api.http.get("/audit", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


def said(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry["what"], entry["target"], entry["outcome"]


async def test_tells_who_did_what(api: Any) -> None:
    job = await api.submit(payload="sesame")
    headers = await api.key("operate", "admin")
    key_id = headers["x-key-id"]
    await api.http.post(f"/jobs/{job['id']}/cancel", headers=headers)
    await api.http.post(f"/jobs/{job['id']}/retry", headers=headers)
    await api.http.patch("/queues/mail", json={"paused": True, "max_depth": 5}, headers=headers)
    body = {"name": "ci", "scopes": ["submit", "read"], "queues": ["mail"], "rate": "5/s"}
    made = (await api.http.post("/keys", json=body, headers=headers)).json()
    await api.http.delete(f"/keys/{made['id']}", headers=headers)
    entries = await trail(api)
    assert [said(entry) for entry in entries] == [
        ("key.revoke", made["id"], "ok"),
        ("key.create", made["id"], "ok"),
        ("queue.change", "mail", "ok"),
        ("job.retry", job["id"], "wrong_state"),
        ("job.cancel", job["id"], "ok"),
    ]
    assert {(entry["who"], entry["name"]) for entry in entries} == {(f"key:{key_id}", "k")}
    assert entries[1]["parameters"] == body
    assert entries[2]["parameters"] == {"paused": True, "max_depth": 5}
    assert entries[0]["at"].endswith("Z")
    assert "sesame" not in str(entries)
    assert made["token"] not in str(entries)


async def test_names_the_open_door_and_the_listed_keys(run_api: Any) -> None:
    async with run_api() as api:
        job = await api.submit()
        await api.http.post(f"/jobs/{job['id']}/cancel")
        assert [entry["who"] for entry in await trail(api)] == ["open"]
    async with run_api(api_keys="sesame,two") as api:
        headers = {"authorization": "Bearer two"}
        await api.http.patch("/queues/q", json={"paused": True}, headers=headers)
        entries = (await api.http.get("/audit", headers=headers)).json()["entries"]
        assert entries[0]["who"] == "env:2"


async def test_looking_leaves_no_trace(api: Any) -> None:
    job = await api.submit()
    for path in ("/jobs", f"/jobs/{job['id']}", "/queues", "/workers", "/audit", "/keys"):
        await api.http.get(path)
    await api.http.get("/jobs/default:nope")
    await api.http.post("/jobs/default:" + "0" * 26 + "/cancel")
    assert await trail(api) == []


async def test_is_read_page_by_page(api: Any, problem: Check) -> None:
    audit = Audit(api.store)
    for i in range(7):
        await audit.write(Actor("open"), "job.cancel", str(i), "ok", {})
    headers = await api.key("admin")
    found: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await api.http.get("/audit", params=query, headers=headers)).json()
        found += [entry["target"] for entry in page["entries"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert found == ["6", "5", "4", "3", "2", "1", "0"]
    for wrong in ("x", "1-", "+", "-", "1-1 COUNT 5"):
        answer = await api.http.get("/audit", params={"cursor": wrong}, headers=headers)
        assert problem(answer, 422, "invalid")["field"] == "cursor"


async def test_is_capped(api: Any) -> None:
    pipe = api.store.redis.pipeline(transaction=False)
    for _ in range(MAX_ENTRIES + 500):
        pipe.xadd("taskq:audit", {"who": "open"})
    await pipe.execute()
    await Audit(api.store).write(Actor("open"), "x", "y", "ok", {})
    assert MAX_ENTRIES <= await api.store.redis.xlen("taskq:audit") <= MAX_ENTRIES + 200


async def test_parameters_are_bounded(api: Any) -> None:
    await Audit(api.store).write(Actor("open"), "x", "y", "ok", {"a": "b" * 100_000})
    (entry,) = await trail(api)
    assert len(entry["parameters"]["text"]) == 2_000


async def test_full_memory_stops_no_operator(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The action is done, and its entry goes to the log of the process."""
    job = await api.submit()
    try:
        await api.store.redis.config_set("maxmemory", 1)
        answer = await api.http.post(f"/jobs/{job['id']}/cancel")
        assert answer.json()["state"] == "cancelled"
    finally:
        await api.store.redis.config_set("maxmemory", 0)
    assert await trail(api) == []
    (line,) = [r.getMessage() for r in caplog.records if r.name == "taskq.audit"]
    assert "redis_out_of_memory" in line
    assert job["id"] in line
    assert "job.cancel" in line


async def test_a_trail_of_the_wrong_type_stops_nobody_either(api: Any, problem: Check) -> None:
    await api.store.redis.set("taskq:audit", "x")
    job = await api.submit()
    answer = await api.http.post(f"/jobs/{job['id']}/cancel")
    assert answer.json()["state"] == "cancelled"
    assert (await api.http.get("/audit")).status_code < 500


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (Unavailable("gone", reason="connection"), []),
        (InvalidInput("no"), []),
        (OutOfMemory("full"), ["redis_out_of_memory"]),
        (ValueError("a bug"), ["unknown"]),
    ],
)
async def test_what_went_wrong_is_told_where_somebody_listens(
    api: Any, error: Exception, written: list[str]
) -> None:
    with pytest.raises(type(error)):
        async with Audit(api.store).acting(Actor("open"), "x", "y"):
            raise error
    assert [entry["outcome"] for entry in await trail(api)] == written
