"""Workers that are told something, and the consistency check, over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from taskq.registry import WorkerInfo, now_ms

Check = Callable[..., dict[str, Any]]


async def tell(api: Any, **fields: Any) -> None:
    given = {"id": "h-1-a", "host": "h", "pid": 1, "supervisor_pid": 9, "version": "1"}
    given |= {"started_at": now_ms(), "seen_at": now_ms(), "state": "running"}
    given |= {"queues": ("default",), "types": ("echo",), "slots": 10, "busy": 0}
    await api.app.state.services.registry.tell(WorkerInfo(**{**given, **fields}))


@pytest.mark.parametrize("wish", ["quiet", "stop"])
@pytest.mark.parametrize("name", ["h-1-a", "h:1"])
async def test_a_wish_stands_in_the_records_of_the_supervisor(
    api: Any, wish: str, name: str
) -> None:
    await tell(api)
    await tell(api, id="h-2-b", pid=2)
    await tell(api, id="other", pid=3, supervisor_pid=10)
    answer = await api.http.post(f"/workers/{name}/{wish}")
    assert answer.status_code == 200, answer.text
    assert {worker["id"] for worker in answer.json()["workers"]} == {"h-1-a", "h-2-b"}
    redis = api.store.redis
    wishes = [await redis.hget(f"taskq:worker:{w}", "wish") for w in ("h-1-a", "h-2-b", "other")]
    assert wishes == [wish.encode(), wish.encode(), None]
    assert await redis.ttl("taskq:{default}:control:h-1-a") > 0


async def test_stop_is_not_taken_back_by_quiet(api: Any) -> None:
    await tell(api)
    await api.http.post("/workers/h-1-a/stop")
    await api.http.post("/workers/h-1-a/quiet")
    assert await api.store.redis.hget("taskq:worker:h-1-a", "wish") == b"stop"


async def test_unknown_workers_are_not_found(api: Any, problem: Check) -> None:
    problem(await api.http.post("/workers/nope/quiet"), 404, "worker_not_found")
    problem(await api.http.post("/workers/nope/stop"), 404, "worker_not_found")
    assert await api.store.redis.keys("taskq:worker:*") == []


async def test_a_type_that_only_a_quiet_worker_runs_is_not_served(api: Any) -> None:
    await tell(api, state="quiet")
    await api.submit()
    queue = (await api.http.get("/queues/default")).json()
    assert (queue["types"][0]["served"], queue["workers"]) == (False, 0)


async def test_the_doctor_finds_what_is_wrong(api: Any, problem: Check) -> None:
    job = await api.submit()
    await api.submit(queue="mail")
    well = (await api.http.get("/doctor")).json()
    assert [f for f in well["findings"] if f["severity"] == "error"] == []
    assert well["next_cursor"] is None
    assert well["looked_at"] > 0
    await api.store.redis.zrem("taskq:{default}:ready:echo", job["id"].split(":")[1])
    findings = (await api.http.get("/doctor", params={"queue": "default"})).json()["findings"]
    assert findings[0]["severity"] == "error"
    assert job["id"] in findings[0]["subject"]
    assert findings[0]["fix"]
    assert findings[0]["fixed"] is False
    other = (await api.http.get("/doctor", params={"queue": "mail"})).json()["findings"]
    assert [f for f in other if f["severity"] == "error"] == []
    problem(await api.http.get("/doctor", params={"queue": "nope"}), 404, "queue_not_found")
    problem(await api.http.get("/doctor", params={"seconds": 21}), 422, "invalid")


async def test_the_doctor_goes_on_where_its_time_ended(api: Any) -> None:
    for name in ("a", "b", "c"):
        await api.submit(queue=name)
    pages, cursor, looked = 0, None, 0
    while True:
        params = {"seconds": 0.001} | ({"cursor": cursor} if cursor else {})
        page = (await api.http.get("/doctor", params=params)).json()
        pages, looked = pages + 1, looked + page["looked_at"]
        assert pages < 10
        if (cursor := page["next_cursor"]) is None:
            break
    assert pages == 3, "a queue a page, since the time is over after the first"
