"""Keys for some queues and types against leases, events, failures, bulk actions, figures and steering."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from support.sse import EventSource
from taskq.apikeys import ALL_SCOPES, KeyStore, Scope
from taskq.apikeys import KeyRequest as Wish
from taskq.keys import Keys
from taskq.registry import WorkerInfo, now_ms
from taskq.store import AsyncStore
from taskq_api.access import OPEN
from taskq_api.routes.events import _filter as filter_for

Check = Callable[..., dict[str, Any]]

ALL = tuple(scope for scope in Scope if scope is not Scope.ADMIN)
LISTS = [{"queues": ["mine"]}, {"job_types": ["echo"]}]


@pytest.fixture
async def theirs(api: Any) -> dict[str, Any]:
    """A failed job of somebody else, in a queue of theirs."""
    job: dict[str, Any] = await api.submit(queue="theirs", job_type="other", payload="sesame")
    await api.fail(job["id"], b'{"type":"Sesame","message":"open"}')
    return job


@pytest.mark.parametrize("lists", LISTS, ids=str)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/position", None),
        ("GET", "/events", None),
        ("PATCH", "", {"priority": 1}),
        ("DELETE", "", None),
    ],
)
async def test_their_jobs_are_not_there(
    api: Any, problem: Check, theirs: Any, lists: Any, method: str, path: str, body: Any
) -> None:
    headers = await api.key(*ALL, **lists)
    answer = await api.http.request(
        method, f"/jobs/{theirs['id']}{path}", headers=headers, json=body
    )
    problem(answer, 404, "job_not_found")
    shown = await api.http.get(f"/jobs/{theirs['id']}", headers=await api.key("read"))
    assert shown.json()["state"] == "failed"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/queues/{}/purge", {"what": "failed"}),
        ("POST", "/queues/{}/retry-failed", {}),
        ("POST", "/bulk", {"action": "retry", "filter": {"queue": "{}", "state": "failed"}}),
        ("POST", "/bulk/preview", {"action": "retry", "filter": {"queue": "{}"}}),
        ("GET", "/bulk?queue={}", None),
        ("GET", "/errors?queue={}", None),
        ("GET", "/errors/unknown?queue={}", None),
        ("GET", "/stats?queue={}", None),
        ("GET", "/events?queue={}", None),
        ("POST", "/leases", {"queue": "{}"}),
    ],
)
async def test_their_queues_are_not_there(
    api: Any, problem: Check, theirs: Any, method: str, path: str, body: Any
) -> None:
    headers = await api.key(*ALL, queues=["mine"])
    details = []
    for name in ("theirs", "absent"):
        sent = body and dict(body)
        if sent and "queue" in sent:
            sent["queue"] = name
        if sent and "filter" in sent:
            sent["filter"] = {**sent["filter"], "queue": name}
        answer = await api.http.request(method, path.format(name), headers=headers, json=sent)
        details.append(problem(answer, 404, "queue_not_found")["detail"].replace(name, "*"))
    assert details[0] == details[1]
    shown = await api.http.get(f"/jobs/{theirs['id']}", headers=await api.key("read"))
    assert shown.json()["state"] == "failed"


async def test_a_bulk_action_is_about_one_allowed_type(
    api: Any, problem: Check, theirs: Any
) -> None:
    await api.submit(queue="mine")
    await api.submit(queue="mine", job_type="other")
    full = await api.key(*ALL)
    headers = await api.key(*ALL, queues=["mine"], job_types=["echo"])
    every = {"action": "cancel", "filter": {"queue": "mine"}}
    hidden = (await api.http.post("/bulk", json=every | {"action": "retry"}, headers=full)).json()
    for path, body in (
        ("/bulk", every), ("/bulk/preview", every), ("/queues/mine/purge", {"what": "waiting"}),
        ("/queues/mine/retry-failed", {}),
    ):  # fmt: skip
        problem(await api.http.post(path, json=body, headers=headers), 403, "key_restricted")
        sent = {**body, "job_type": "other"} if "filter" not in body else {
            **body, "filter": {**body["filter"], "job_type": "other"}
        }  # fmt: skip
        answer = await api.http.post(path, json=sent, headers=headers)
        problem(answer, 403, "forbidden_job_type")
    mine = {"action": "cancel", "filter": {"queue": "mine", "job_type": "echo"}}
    done = (await api.http.post("/bulk", json=mine, headers=headers)).json()
    assert done["done"] == 1
    listed = (await api.http.get("/bulk?queue=mine", headers=headers)).json()["bulks"]
    assert [bulk["id"] for bulk in listed] == [done["id"]]
    for method, path in (("GET", ""), ("POST", "/stop")):
        answer = await api.http.request(method, f"/bulk/{hidden['id']}{path}", headers=headers)
        problem(answer, 404, "bulk_not_found")
        answer = await api.http.request(method, f"/bulk/{done['id']}{path}", headers=headers)
        assert answer.status_code == 200


@pytest.mark.parametrize("lists", LISTS, ids=str)
async def test_failures_of_others_are_not_told(
    api: Any, problem: Check, theirs: Any, lists: Any
) -> None:
    ours = await api.submit(queue="mine")
    await api.fail(ours["id"], b'{"type":"Ours","message":"m"}')
    full, headers = await api.key("read"), await api.key("read", **lists)
    groups = (await api.http.get("/errors", headers=full)).json()["errors"]
    assert len(groups) == 2
    (kind,) = (group["fingerprint"] for group in groups if group["queue"] == "theirs")
    answer = await api.http.get("/errors", headers=headers)
    assert [group["queue"] for group in answer.json()["errors"]] == ["mine"]
    assert "Sesame" not in answer.text
    answer = await api.http.get(f"/errors/{kind}", headers=headers)
    problem(answer, 404, "error_not_found")


@pytest.mark.parametrize("lists", LISTS, ids=str)
async def test_figures_are_of_what_is_allowed(
    api: Any, problem: Check, theirs: Any, lists: Any
) -> None:
    for job_type in ("echo", "other"):
        job = await api.submit(queue="mine", job_type=job_type)
        await api.fail(job["id"], worker=job_type)
    for job_type in ("echo", "other"):
        await api.submit(queue="mine", job_type=job_type)
    headers = await api.key("read", **lists)
    rows = (await api.http.get("/stats", headers=headers)).json()["queues"]
    (mine,) = (row for row in rows if row["queue"] == "mine")
    if "queues" in lists:
        assert len(rows) == 1
        assert (mine["counts"]["failed"], mine["waiting"]) == (2, 2)
    else:
        assert {kind["job_type"] for row in rows for kind in row["types"]} == {"echo"}
        assert (mine["counts"]["failed"], mine["waiting"]) == (1, 1)
        assert sum(point["counts"].get("failed", 0) for point in mine["series"]) == 1
        assert not [row for row in rows if row["queue"] == "theirs" and row["counts"]]
    problem(await api.http.get("/metrics", headers=headers), 403, "key_restricted")
    problem(await api.http.get("/doctor", headers=headers), 403, "key_restricted")
    answer = await api.http.post("/workers/w/quiet", headers=await api.key("operate", **lists))
    problem(answer, 403, "key_restricted")


async def test_a_type_does_not_name_a_queue_that_is_not_there(api: Any) -> None:
    told = WorkerInfo(
        "a", "h", 1, 0, "1", now_ms(), now_ms(), "running", ("mine",), ("echo",), slots=1, busy=0
    )
    await api.app.state.services.registry.tell(told, {"echo": {"queue": "theirs"}})
    answer = await api.http.get("/job-types", headers=await api.key("read", queues=["mine"]))
    assert answer.json()["job_types"][0]["job_type"] == "echo"
    assert "theirs" not in answer.text


class TestLeases:
    async def test_take_allowed_types_only(self, api: Any, problem: Check) -> None:
        other = await api.submit(queue="mine", job_type="other")
        echo = await api.submit(queue="mine")
        headers = await api.key("work", queues=["mine"], job_types=["echo"])
        body = {"queue": "mine", "max": 10}
        answer = await api.http.post(
            "/leases", json={**body, "job_types": ["other"]}, headers=headers
        )
        problem(answer, 403, "forbidden_job_type")
        taken = (await api.http.post("/leases", json=body, headers=headers)).json()
        assert [job["id"] for job in taken["jobs"]] == [echo["id"]]
        state = await api.http.get(f"/jobs/{other['id']}", headers=await api.key("read"))
        assert state.json()["state"] == "queued"

    async def test_are_their_keys_own(self, api: Any, problem: Check) -> None:
        await api.submit(queue="mine")
        headers, others = await api.key("work"), await api.key("work")
        lease = (await api.http.post("/leases", json={"queue": "mine"}, headers=headers)).json()
        for method, path, body in (
            ("POST", "/heartbeat", None), ("POST", "/results", {"results": [{}]}),
            ("POST", "/progress", {"runs": [{}]}), ("DELETE", "", None),
        ):  # fmt: skip
            url = f"/leases/{lease['id']}{path}"
            answer = await api.http.request(method, url, json=body, headers=others)
            problem(answer, 404, "lease_not_found")
        answer = await api.http.delete(f"/leases/{lease['id']}", headers=headers)
        assert answer.json() == {"released": 1}

    async def test_a_key_that_is_revoked_while_it_waits_takes_nothing(
        self, api: Any, problem: Check
    ) -> None:
        headers = await api.key("work")
        body = {"queue": "mine", "wait": 20}
        waiting = asyncio.create_task(api.http.post("/leases", json=body, headers=headers))
        while not api.app.state.services.polls._groups:
            await asyncio.sleep(0.01)
        await KeyStore(api.store).revoke(headers["x-key-id"])
        await api.app.state.services.ring.read()
        sent = {"job_type": "echo", "queue": "mine"}
        job = (await api.http.post("/jobs", json=sent, headers=await api.key("submit"))).json()
        problem(await waiting, 401, "unauthorized")
        shown = await api.http.get(f"/jobs/{job['id']}", headers=await api.key("read"))
        assert shown.json()["state"] == "queued"


class TestEvents:
    def test_are_asked_for_within_the_lists(self) -> None:
        assert filter_for(OPEN, None, None).queues is None

    @pytest.mark.parametrize("lists", LISTS, ids=str)
    async def test_of_others_are_not_told(self, redis_url: str, start_api: Any, lists: Any) -> None:
        store = AsyncStore.from_url(redis_url, Keys())
        _, token = await KeyStore(store).create(Wish("k", ["read"], **lists))
        _, submits = await KeyStore(store).create(Wish("s", ["submit"]))
        url = start_api("--redis-url", redis_url).url
        auth = {"authorization": f"Bearer {submits}"}
        async with httpx.AsyncClient(base_url=url, headers=auth) as http:
            for queue in ("mine", "theirs"):
                await http.post("/jobs", json={"job_type": "other", "queue": queue})
            source = EventSource(f"{url}/events", token=token)
            reading = source.start()
            await reading.opened()
            try:
                await http.post("/jobs", json={"job_type": "other", "queue": "theirs"})
                assert reading.told == []
                first = await http.post("/jobs", json={"job_type": "echo", "queue": "mine"})
                await reading.until(lambda r: len(r.states()) >= 1)
                await http.post("/jobs", json={"job_type": "other", "queue": "theirs"})
                last = await http.post("/jobs", json={"job_type": "echo", "queue": "mine"})
                await reading.until(lambda r: len(r.states()) >= 2)
                told = [job_id for job_id, _ in reading.states()]
                assert told == [first.json()["id"], last.json()["id"]]
            finally:
                await reading.drop()
        await store.close()

    async def test_a_queue_that_is_not_there_yet_is_followed_once_it_is(
        self, redis_url: str, start_api: Any
    ) -> None:
        """And not made by who waits for it."""
        store = AsyncStore.from_url(redis_url, Keys())
        wish = Wish("k", ["read", "submit"], queues=["mine"])
        _, token = await KeyStore(store).create(wish)
        url = start_api("--redis-url", redis_url).url
        auth = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=auth) as http:
            reading = EventSource(f"{url}/events", token=token).start()
            await reading.opened()
            try:
                assert await store.redis.keys("taskq:{*") == []
                await http.post("/jobs", json={"job_type": "echo", "queue": "mine"})
                await reading.until(lambda r: len(r.told) >= 1)
                assert reading.told[0].data["queue"] == "mine"
            finally:
                await reading.drop()
        await store.close()

    @pytest.mark.parametrize("path", ["/events", "/jobs/{}/events"])
    async def test_a_revoked_key_loses_its_stream(
        self, redis_url: str, start_api: Any, path: str
    ) -> None:
        store = AsyncStore.from_url(redis_url, Keys())
        keys = KeyStore(store)
        key, token = await keys.create(Wish("k", ["read", "submit"]))
        url = start_api("--redis-url", redis_url).url
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            job = (await http.post("/jobs", json={"job_type": "echo"})).json()
            async with http.stream("GET", path.format(job["id"])) as stream:
                assert stream.status_code == 200
                began = time.monotonic()
                await keys.revoke(key.id)
                async for _ in stream.aiter_bytes():
                    pass
                assert time.monotonic() - began < 10
            assert (await http.get("/events")).status_code == 401
        await store.close()


async def test_what_operators_do_is_in_the_trail(api: Any) -> None:
    job = await api.submit(queue="mine")
    headers = await api.key(*ALL_SCOPES)
    registry = api.app.state.services.registry
    told = WorkerInfo(
        "a", "h", 1, 0, "1", now_ms(), now_ms(), "running", ("mine",), ("echo",), slots=1, busy=0
    )
    await registry.tell(told, {})
    retry = {"action": "retry", "filter": {"queue": "mine"}}
    for method, path, body in (
        ("PATCH", f"/jobs/{job['id']}", {"priority": 3}),
        ("POST", "/queues/mine/purge", {"what": "waiting"}),
        ("DELETE", f"/jobs/{job['id']}", None),
        ("POST", "/queues/mine/retry-failed", {}),
        ("POST", "/bulk", retry),
        ("POST", "/workers/a/quiet", None),
        ("POST", "/workers/a/stop", None),
    ):
        answer = await api.http.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
    bulk = (await api.http.get("/bulk?queue=mine", headers=headers)).json()["bulks"][0]
    await api.http.post(f"/bulk/{bulk['id']}/stop", headers=headers)
    entries = (await api.http.get("/audit", headers=headers)).json()["entries"]
    assert [entry["what"] for entry in reversed(entries)] == [
        "job.edit", "queue.purge", "job.delete", "queue.retry-failed", "bulk.start", "worker.quiet",
        "worker.stop", "bulk.stop",
    ]  # fmt: skip
    assert {entry["who"] for entry in entries} == {f"key:{headers['x-key-id']}"}
    assert {entry["outcome"] for entry in entries} == {"ok"}
