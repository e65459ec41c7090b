"""Bulk actions, purges and redrives over HTTP."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from taskq.ids import split_id
from taskq.janitor import Janitor

Check = Callable[..., dict[str, Any]]


async def dead(api: Any, n: int, **fields: Any) -> list[str]:
    """``n`` dead letters."""
    ids = []
    for i in range(n):
        job = await api.submit(**fields)
        await api.fail(job["id"], worker=f"w{split_id(job['id'])[1]}{i}")
        ids.append(job["id"])
    return ids


async def states(api: Any, ids: list[str]) -> set[str]:
    return {(await api.http.get(f"/jobs/{job_id}")).json()["state"] for job_id in ids}


async def test_preview_then_start_then_look(api: Any) -> None:
    ids = await dead(api, 4)
    await api.submit()
    body = {"action": "retry", "filter": {"queue": "default"}}
    preview = (await api.http.post("/bulk/preview", json=body)).json()
    assert (preview["matched"], preview["complete"]) == (4, True)
    assert set(preview["sample"]) == set(ids)
    assert await states(api, ids) == {"failed"}, "a preview changes nothing"
    answer = await api.http.post("/bulk", json=body)
    assert answer.status_code == 200
    bulk = answer.json()
    assert (bulk["state"], bulk["matched"], bulk["done"]) == ("done", 4, 4)
    assert bulk["filter"]["states"] == ["failed"]
    assert answer.headers["location"] == f"/bulk/{bulk['id']}"
    assert (await api.http.get(answer.headers["location"])).json() == bulk
    assert (await api.http.get("/bulk", params={"queue": "default"})).json() == {"bulks": [bulk]}
    assert await states(api, ids) == {"queued"}


async def test_what_takes_longer_is_told_later_and_can_be_stopped(api: Any) -> None:
    ids = await dead(api, 8)
    body = {"action": "retry", "filter": {"queue": "default"}, "per_second": 1}
    answer = await api.http.post("/bulk", json=body)
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    stopped = (await api.http.post(f"/bulk/{answer.json()['id']}/stop")).json()
    assert stopped["state"] == "stopped"
    assert 1 <= stopped["done"] < 8
    assert await states(api, ids) == {"queued", "failed"}


async def test_goes_on_when_the_process_that_started_it_ends(run_api: Any) -> None:
    async with run_api(janitor_seconds=0.05) as first:
        ids = await dead(first, 5)
        body = {"action": "retry", "filter": {"queue": "default"}, "per_second": 1}
        bulk = (await first.http.post("/bulk", json=body)).json()
        assert bulk["state"] == "running"
    async with run_api(janitor_seconds=0.05) as second:
        name = second.store.keys.queue("default").prefix + "bulk:" + bulk["id"].split(":")[1]
        await second.store.redis.hset(name, mapping={"runner_until": 0, "per_second": 100})
        until = time.monotonic() + 10
        while (await second.http.get(f"/bulk/{bulk['id']}")).json()["state"] == "running":
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        assert await states(second, ids) == {"queued"}


async def test_an_idempotency_key_makes_it_one_action(api: Any, problem: Check) -> None:
    await dead(api, 1)
    body = {"action": "retry", "filter": {"queue": "default"}}
    headers = {"idempotency-key": "night-shift"}
    first = (await api.http.post("/bulk", json=body, headers=headers)).json()
    (again,) = await dead(api, 1)
    second = (await api.http.post("/bulk", json=body, headers=headers)).json()
    assert second == first
    assert await states(api, [again]) == {"failed"}
    other = {**body, "action": "delete"}
    problem(await api.http.post("/bulk", json=other, headers=headers), 409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {"queue": "default"}}, "action"),
        ({"action": "retry"}, "filter"),
        ({"action": "explode", "filter": {"queue": "default"}}, "action"),
        ({"action": "retry", "filter": {}}, "filter.queue"),
        ({"action": "retry", "filter": {"queue": "default", "state": "queued"}}, "state"),
        ({"action": "retry", "filter": {"queue": "default", "colour": "red"}}, "filter.colour"),
        (
            {"action": "retry", "filter": {"queue": "default", "since": "2030-01-01"}},
            "filter.since",
        ),
        ({"action": "retry", "filter": {"ids": ["nonsense"]}}, "id"),
        ({"action": "edit", "filter": {"queue": "default"}}, "priority"),
        ({"action": "edit", "filter": {"queue": "default"}, "priority": 101}, "priority"),
        ({"action": "retry", "filter": {"queue": "default"}, "per_second": 0}, "per_second"),
    ],
)
async def test_refuses_what_is_wrong_and_starts_nothing(
    api: Any, problem: Check, body: dict[str, Any], field: str
) -> None:
    await dead(api, 1)
    shown = problem(await api.http.post("/bulk", json=body), 422, "invalid")
    assert shown["field"] == field
    assert (await api.http.get("/bulk", params={"queue": "default"})).json() == {"bulks": []}


async def test_unknown_queues_and_actions_are_not_found(api: Any, problem: Check) -> None:
    body = {"action": "retry", "filter": {"queue": "nope"}}
    problem(await api.http.post("/bulk", json=body), 404, "queue_not_found")
    problem(await api.http.post("/bulk/preview", json=body), 404, "queue_not_found")
    problem(await api.http.get("/bulk/default:nope"), 404, "bulk_not_found")
    problem(await api.http.post("/bulk/default:nope/stop"), 404, "bulk_not_found")
    problem(await api.http.post("/queues/nope/retry-failed", json={}), 404, "queue_not_found")
    problem(await api.http.post("/queues/nope/purge", json={}), 404, "queue_not_found")
    problem(await api.http.get("/bulk"), 422, "invalid")


async def test_retries_the_dead_letters_of_a_queue(api: Any) -> None:
    mine, others = await dead(api, 3), await dead(api, 2, job_type="other")
    answer = await api.http.post("/queues/default/retry-failed", json={"job_type": "echo"})
    assert (answer.status_code, answer.json()["done"]) == (200, 3)
    assert (await states(api, mine), await states(api, others)) == ({"queued"}, {"failed"})
    answer = await api.http.post("/queues/default/retry-failed", json={})
    assert answer.json()["done"] == 2


async def test_purges_what_waits_and_leaves_the_rest(api: Any) -> None:
    gone = [(await api.submit())["id"], (await api.submit(delay=60))["id"]]
    failed = await dead(api, 1, priority=100)
    running = (await api.submit(priority=90))["id"]
    await api.claim(running, worker="w-running-2")
    done = (await api.http.post("/queues/default/purge", json={})).json()
    assert (done["more"], done["next_cursor"]) == (False, None)
    assert done["removed"] >= 1
    shown = (await api.http.get(f"/jobs/{gone[1]}")).json()
    assert (shown["state"], shown["reason"]) == ("cancelled", "purged")
    assert (await states(api, failed), await states(api, [running])) == ({"failed"}, {"running"})


@pytest.mark.parametrize("what", ["queued", "scheduled"])
async def test_purges_one_state(api: Any, what: str) -> None:
    jobs = {"queued": (await api.submit())["id"], "scheduled": (await api.submit(delay=9))["id"]}
    done = (await api.http.post("/queues/default/purge", json={"what": what})).json()
    assert done["removed"] == 1
    for state, job_id in jobs.items():
        assert await states(api, [job_id]) == {"cancelled" if state == what else state}


async def test_purges_page_by_page(api: Any) -> None:
    body = {"jobs": [{"job_type": "echo"} for _ in range(450)]}
    await api.http.post("/jobs/batch", json=body)
    await api.http.post("/jobs/batch", json={"jobs": [{"job_type": "other", "delay": 60}] * 250})
    removed, pages, cursor = 0, 0, None
    while True:
        wanted = {"limit": 200, "job_type": "echo"} | ({"cursor": cursor} if cursor else {})
        done = (await api.http.post("/queues/default/purge", json=wanted)).json()
        removed, pages = removed + done["removed"], pages + 1
        assert done["more"] is (done["next_cursor"] is not None)
        assert pages < 20
        if (cursor := done["next_cursor"]) is None:
            break
    assert removed == 450
    assert pages > 2
    counts = (await api.http.get("/queues/default")).json()["counts"]
    assert (counts["queued"], counts["scheduled"], counts["cancelled"]) == (0, 250, 450)


async def test_a_purge_of_ended_jobs_deletes_them(api: Any) -> None:
    failed = await dead(api, 3)
    waiting = (await api.submit())["id"]
    done = (await api.http.post("/queues/default/purge", json={"what": "failed"})).json()
    assert done == {"removed": 3, "more": False, "next_cursor": None}
    assert (await api.http.get(f"/jobs/{failed[0]}")).json()["stub"] is True
    assert await states(api, [waiting]) == {"queued"}


@pytest.mark.parametrize(
    "body", [{"what": "running"}, {"limit": 0}, {"cursor": "x"}, {"job_type": "a b"}, {"wath": "x"}]
)
async def test_refuses_other_purges(api: Any, problem: Check, body: dict[str, Any]) -> None:
    job = await api.submit()
    problem(await api.http.post("/queues/default/purge", json=body), 422, "invalid")
    assert await states(api, [job["id"]]) == {"queued"}


async def test_answers_are_json(api: Any) -> None:
    await dead(api, 1)
    body = {"action": "edit", "filter": {"queue": "default"}, "priority": 3}
    assert json.loads((await api.http.post("/bulk", json=body)).content)["priority"] == 3


async def test_goes_on_when_the_process_that_started_it_is_killed(
    run_api: Any, start_api: Callable[..., Any], redis_url: str
) -> None:
    process = start_api("--redis-url", redis_url)
    async with run_api() as api:
        ids = await dead(api, 6)
        body = {"action": "retry", "filter": {"queue": "default"}, "per_second": 1}
        async with httpx.AsyncClient(base_url=process.url) as http:
            bulk = (await http.post("/bulk", json=body)).json()
        process.popen.kill()
        process.popen.wait(10)
        assert bulk["state"] == "running"
        keys = api.store.keys.queue("default")
        # Its lease of ten seconds, run out.
        name = keys.prefix + "bulk:" + bulk["id"].split(":")[1]
        await api.store.redis.hset(name, mapping={"runner_until": 0, "per_second": 100})
        await Janitor(api.store, every_seconds=0.001, lease_seconds=15).round()
        after = (await api.http.get(f"/bulk/{bulk['id']}")).json()
        assert (after["state"], after["skipped"]) == ("done", 0)
        assert 5 <= after["done"] <= 6, "the page at which it was killed may not be counted"
        assert await states(api, ids) == {"queued"}
        attempts = [(await api.http.get(f"/jobs/{job_id}")).json()["attempts"] for job_id in ids]
        assert set(attempts) == {1}
