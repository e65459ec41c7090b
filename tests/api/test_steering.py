"""Single jobs: why one waits, editing, deleting; and lists while jobs move."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from taskq import calls
from taskq.ids import split_id
from taskq.registry import WorkerInfo, now_ms

Check = Callable[..., dict[str, Any]]


async def tell(api: Any, **fields: Any) -> None:
    given = {"id": "h-1-a", "host": "h", "pid": 1, "supervisor_pid": 0, "version": "1"}
    given |= {"started_at": now_ms(), "seen_at": now_ms(), "state": "running"}
    given |= {"queues": ("default",), "types": ("echo",), "slots": 10, "busy": 0}
    await api.app.state.services.registry.tell(WorkerInfo(**{**given, **fields}))


async def position(api: Any, job_id: str) -> dict[str, Any]:
    answer = await api.http.get(f"/jobs/{job_id}/position")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


# --- position ---------------------------------------------------------------------------------------


async def test_rank_counts_over_all_lines_and_ahead_only_what_is_run(api: Any) -> None:
    await tell(api, busy=10)
    await api.submit(priority=5)
    await api.submit(job_type="nobody_runs_it", priority=50)
    await api.submit(job_type="other", priority=-50)
    job = await api.submit()
    shown = await position(api, job["id"])
    assert (shown["rank"], shown["ahead"], shown["reason"]) == (3, 1, "workers_busy")
    assert (shown["workers"], shown["free_slots"]) == (1, 0)
    assert shown["estimated_start"] is None
    assert "unknown" in shown["estimate"]
    assert shown["effective_priority"] >= 0


async def test_says_who_is_next(api: Any) -> None:
    await tell(api)
    shown = await position(api, (await api.submit())["id"])
    assert (shown["reason"], shown["rank"], shown["ahead"]) == ("next", 1, 0)
    assert shown["estimated_start"] is not None


async def test_estimates_from_the_rate_of_late(api: Any) -> None:
    for n in range(3):
        await api.finish((await api.submit())["id"], b"1", worker=f"w{n}")
    await tell(api, busy=10)
    await api.submit()
    shown = await position(api, (await api.submit())["id"])
    assert shown["per_minute"] > 0
    assert shown["estimated_start"] is not None
    assert shown["estimate"].startswith("2 jobs at ")


@pytest.mark.parametrize(
    ("settings", "workers", "options", "reasons"),
    [
        ({}, [], {}, ["no_worker"]),
        ({}, [{"types": ("other",)}], {}, ["no_worker"]),
        ({}, [{"state": "quiet"}], {}, ["no_worker"]),
        ({"paused": True}, [{}], {}, ["paused"]),
        ({"paused_types": ["echo"]}, [{}], {}, ["paused_type"]),
        ({}, [{}], {"delay": 60}, ["delayed"]),
        ({"paused": True}, [], {"delay": 60}, ["delayed", "paused", "no_worker"]),
    ],
)
async def test_names_all_that_keeps_it(
    api: Any,
    settings: dict[str, Any],
    workers: list[dict[str, Any]],
    options: dict[str, Any],
    reasons: list[str],
) -> None:
    await api.http.patch("/queues/default", json=settings)
    for worker in workers:
        await tell(api, **worker)
    shown = await position(api, (await api.submit(**options))["id"])
    assert [reason["code"] for reason in shown["reasons"]] == reasons
    assert shown["reason"] == reasons[0]
    assert (shown["reasons"][0]["until"] is not None) == (reasons[0] == "delayed")
    if reasons != ["delayed"]:
        assert shown["estimated_start"] is None


async def test_says_until_when_the_back_off_lasts(api: Any) -> None:
    job = await api.submit(max_attempts=3)
    await tell(api)
    run = await api.claim(job["id"])
    keys = api.store.keys.queue("default")
    failure = calls.Failure(run.ulid, run.fence, b'{"type":"X"}', 60_000, 3)
    await api.store.run(calls.fail(keys, "w1", [failure]))
    shown = await position(api, job["id"])
    assert (shown["state"], shown["reason"]) == ("retrying", "backoff")
    assert shown["estimated_start"] == shown["reasons"][0]["until"]


async def test_a_job_that_no_longer_waits_says_so(api: Any, problem: Check) -> None:
    job = await api.submit()
    await api.claim(job["id"])
    assert (await position(api, job["id"]))["reason"] == "running"
    other = await api.submit(result_ttl=0)
    await api.finish(other["id"], b"1", worker="w2", result_ttl_ms=0)
    shown = await position(api, other["id"])
    assert (shown["reason"], shown["rank"], shown["state"]) == ("ended", None, "succeeded")
    missing = job["id"][:-1] + ("0" if job["id"][-1] != "0" else "1")
    problem(await api.http.get(f"/jobs/{missing}/position"), 404, "job_not_found")


# --- edit -------------------------------------------------------------------------------------------


async def test_edits_priority_and_time(api: Any) -> None:
    job = await api.submit(priority=1)
    edited = (await api.http.patch(f"/jobs/{job['id']}", json={"priority": 7})).json()
    assert (edited["priority"], edited["state"]) == (7, "queued")
    later = (await api.http.patch(f"/jobs/{job['id']}", json={"delay": 60})).json()
    assert later["state"] == "scheduled"
    at = {"run_at": "2030-01-31T08:00:00+01:00"}
    moved = (await api.http.patch(f"/jobs/{job['id']}", json=at)).json()
    assert moved["eligible_at"] == "2030-01-31T07:00:00.000Z"
    now = (await api.http.patch(f"/jobs/{job['id']}", json={"delay": 0})).json()
    assert now["state"] == "queued"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "priority"),
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"run_at": "2030-01-31T08:00:00"}, "run_at"),
        ({"delay": 1, "run_at": "2030-01-31T08:00:00Z"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"payload": {"a": 1}}, "payload"),
        ({"queue": "other"}, "queue"),
    ],
)
async def test_what_cannot_be_edited_is_refused_and_nothing_changes(
    api: Any, problem: Check, body: dict[str, Any], field: str
) -> None:
    job = await api.submit()
    shown = problem(await api.http.patch(f"/jobs/{job['id']}", json=body), 422, "invalid")
    assert shown["field"] == field
    after = (await api.http.get(f"/jobs/{job['id']}")).json()
    assert [event["event"] for event in after["history"]] == ["created"]
    assert (after["priority"], after["state"]) == (0, "queued")


async def test_a_job_that_has_started_meanwhile_is_left_alone(api: Any, problem: Check) -> None:
    job = await api.submit()
    await api.claim(job["id"])
    answer = await api.http.patch(f"/jobs/{job['id']}", json={"priority": 7})
    assert problem(answer, 409, "wrong_state")["state"] == "running"
    assert (await api.http.get(f"/jobs/{job['id']}")).json()["priority"] == 0


async def test_the_fence_that_was_seen_guards_an_edit(api: Any, problem: Check) -> None:
    """Looked at while it had never run; it runs, fails and waits again before the edit arrives."""
    job = await api.submit(max_attempts=3)
    run = await api.claim(job["id"])
    keys = api.store.keys.queue("default")
    failure = calls.Failure(run.ulid, run.fence, b'{"type":"X"}', 60_000, 3)
    await api.store.run(calls.fail(keys, "w1", [failure]))
    path = f"/jobs/{job['id']}"
    problem(await api.http.patch(path, json={"priority": 7, "fence": 0}), 409, "wrong_state")
    fence = (await api.http.get(path)).json()["fence"]
    assert (await api.http.patch(path, json={"priority": 7, "fence": fence})).status_code == 200


# --- delete -----------------------------------------------------------------------------------------


async def test_deletes_only_what_has_ended(api: Any, problem: Check) -> None:
    job = await api.submit()
    path = f"/jobs/{job['id']}"
    assert problem(await api.http.delete(path), 409, "wrong_state")["state"] == "queued"
    await api.finish(job["id"], b"1")
    answer = await api.http.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.http.get(path)).json()["stub"] is True
    problem(await api.http.delete(path), 404, "job_not_found")


async def test_the_fence_that_was_seen_guards_a_deletion(api: Any, problem: Check) -> None:
    """Looked at as a dead letter; somebody retries it and it succeeds: its result stays."""
    job = await api.submit(max_attempts=1)
    path = f"/jobs/{job['id']}"
    await api.fail(job["id"])
    seen = (await api.http.get(path)).json()["fence"]
    await api.http.post(f"{path}/retry")
    await api.finish(job["id"], b'"precious"', worker="w2")
    problem(await api.http.delete(path, params={"fence": seen}), 409, "wrong_state")
    assert (await api.http.get(path)).json()["result"] == "precious"
    shown = problem(await api.http.delete(path, params={"fense": 1}), 422, "invalid")
    assert shown["field"] == "fense"


async def test_a_deleted_job_is_still_known_to_its_idempotency_key(api: Any) -> None:
    body = json.dumps({"job_type": "echo"}).encode()
    first = (await api.raw(body, **{"idempotency-key": "k"})).json()
    await api.finish(first["id"], b"1")
    assert (await api.http.delete(f"/jobs/{first['id']}")).status_code == 204
    again = await api.raw(body, **{"idempotency-key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


# --- lists while jobs move --------------------------------------------------------------------------


async def test_a_list_never_skips_a_job_that_stayed_nor_repeats_without_end(api: Any) -> None:
    jobs = [await api.submit() for _ in range(60)]
    moving = {job["id"] for job in jobs[::3]}
    seen: list[str] = []
    cursor, pages = None, 0
    left = sorted(moving)
    while True:
        params = {"queue": "default", "limit": 7} | ({"cursor": cursor} if cursor else {})
        page = (await api.http.get("/jobs", params=params)).json()
        seen += [job["id"] for job in page["jobs"]]
        pages += 1
        assert pages < 50, "it comes to an end"
        # Between pages: some are cancelled, some put off, some edited to the front, and new ones come.
        for job_id in left[:3]:
            await api.http.post(f"/jobs/{job_id}/cancel")
        for job_id in left[3:5]:
            await api.http.patch(f"/jobs/{job_id}", json={"priority": 50})
        for job_id in left[5:7]:
            await api.http.patch(f"/jobs/{job_id}", json={"delay": 100})
        left = left[7:]
        await api.submit(priority=10)
        if (cursor := page["next_cursor"]) is None:
            break
    stayed = [job["id"] for job in jobs if job["id"] not in moving]
    assert [job_id for job_id in seen if job_id in set(stayed)] == stayed


async def test_a_job_is_found_after_every_2xx(api: Any) -> None:
    job = await api.submit(result_ttl=0)
    path = f"/jobs/{job['id']}"
    assert (await api.http.get(path)).status_code == 200
    await api.finish(job["id"], b"1", result_ttl_ms=0)
    shown = await api.http.get(path)
    assert (shown.status_code, shown.json()["state"]) == (200, "succeeded")
    body = {"jobs": [{"job_type": "echo", "result_ttl": 0} for _ in range(3)]}
    for item in (await api.http.post("/jobs/batch", json=body)).json()["items"]:
        assert (await api.http.get(f"/jobs/{item['id']}")).status_code == 200
    other = await api.submit()
    await api.http.post(f"/jobs/{other['id']}/cancel")
    assert (await api.http.delete(f"/jobs/{other['id']}")).status_code == 204
    assert (await api.http.get(f"/jobs/{other['id']}")).json()["state"] == "cancelled"
    assert split_id(other["id"])[0] == "default"
