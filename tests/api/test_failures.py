"""Failures by kind, from the failing call to the jobs behind them."""

import json
from collections.abc import Callable
from typing import Any

from taskq import calls

Check = Callable[..., dict[str, Any]]


def error(kind: str, message: str, function: str = "run") -> bytes:
    trace = (
        f'Traceback:\n  File "/srv/app/mail.py", line 12, in {function}\n    x()\n{kind}: {message}'
    )
    return json.dumps({"type": kind, "message": message, "traceback": trace}).encode()


async def test_groups_by_what_failures_have_in_common(api: Any) -> None:
    for n in range(3):
        await api.fail((await api.submit())["id"], error("KeyError", f"no user {n}"), f"w{n}")
    last = await api.submit()
    await api.fail(last["id"], error("ValueError", "bad"), "w9")
    groups = (await api.http.get("/errors")).json()["errors"]
    assert [(g["count"], g["failed"]) for g in groups] == [(1, 1), (3, 3)], "the latest first"
    assert groups[1]["signature"] == "KeyError: no user <n> at mail.py:run"
    assert (groups[0]["job_type"], groups[0]["queue"]) == ("echo", "default")
    assert groups[0]["sample"] == last["id"]
    assert groups[0]["error"] == {"type": "ValueError", "message": "bad"}
    assert groups[1]["first_seen"] <= groups[1]["last_seen"]
    shown = (await api.http.get(f"/jobs/{last['id']}")).json()
    assert shown["fingerprint"] == groups[0]["fingerprint"]


async def test_the_same_error_of_two_types_is_two_groups(api: Any) -> None:
    await api.fail((await api.submit())["id"], error("KeyError", "a"))
    await api.fail((await api.submit(job_type="other"))["id"], error("KeyError", "a"), "w2")
    groups = (await api.http.get("/errors", params={"queue": "default"})).json()["errors"]
    assert {group["job_type"] for group in groups} == {"echo", "other"}


async def test_shows_the_jobs_of_a_kind_page_by_page(api: Any) -> None:
    ours = []
    for n in range(6):
        job = await api.submit()
        await api.fail(job["id"], error("A" if n % 2 else "B", "x"), f"w{n}")
        if n % 2:
            ours.append(job["id"])
    groups = (await api.http.get("/errors")).json()["errors"]
    (kind,) = [g["fingerprint"] for g in groups if g["signature"].startswith("A:")]
    found: list[str] = []
    params: dict[str, Any] = {"limit": 1}
    for _ in range(10):
        page = (await api.http.get(f"/errors/{kind}", params=params)).json()
        assert page["errors"][0]["fingerprint"] == kind
        found += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert found == ours[::-1]


async def test_jobs_that_failed_under_an_older_version_are_unknown(api: Any) -> None:
    job = await api.submit()
    await api.fail(job["id"])
    keys = api.store.keys.queue("default")
    await api.store.redis.hdel(keys.job(job["id"].split(":")[1]), "fingerprint")
    page = (await api.http.get("/errors/unknown")).json()
    assert [row["id"] for row in page["jobs"]] == [job["id"]]
    assert page["errors"] == []


async def test_what_is_no_kind_is_not_found(api: Any, problem: Check) -> None:
    problem(await api.http.get("/errors/0123456789abcdef"), 404, "error_not_found")
    problem(await api.http.get("/errors/nonsense"), 404, "error_not_found")
    problem(await api.http.get("/errors", params={"queu": "x"}), 422, "invalid")


async def test_errors_of_many_queues_come_in_pages(api: Any) -> None:
    for n in range(23):
        job = await api.submit(queue=f"q{n:02}")
        await api.fail(job["id"], error("E", "x"))
    first = (await api.http.get("/errors")).json()
    second = (await api.http.get("/errors", params={"cursor": first["next_cursor"]})).json()
    assert (len(first["errors"]), len(second["errors"])) == (20, 3)
    assert second["next_cursor"] is None


async def test_redrives_a_kind(api: Any) -> None:
    ids = {}
    for kind in ("A", "B"):
        job = await api.submit()
        await api.fail(job["id"], error(kind, "x"), f"w{kind}")
        ids[kind] = job["id"]
    shown = (await api.http.get(f"/jobs/{ids['A']}")).json()
    body = {
        "action": "retry",
        "filter": {"queue": "default", "fingerprint": shown["fingerprint"]},
    }
    bulk = await api.http.post("/bulk", json=body)
    assert (bulk.status_code, bulk.json()["done"]) == (200, 1)
    assert (await api.http.get(f"/jobs/{ids['A']}")).json()["state"] == "queued"
    assert (await api.http.get(f"/jobs/{ids['B']}")).json()["state"] == "failed"


async def test_a_crash_that_ends_a_job_has_a_kind(api: Any) -> None:
    job = await api.submit()
    run = await api.claim(job["id"])
    keys = api.store.keys.queue("default")
    call = calls.crash(keys, "w1", [(run.ulid, run.fence, "signal 9")], max_crashes=1)
    assert await api.store.run(call) == ["FAILED"]
    (group,) = (await api.http.get("/errors")).json()["errors"]
    assert group["signature"] == "WorkerCrashed: signal 9"
