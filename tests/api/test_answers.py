"""Real answers held against the models that describe them: no member missing, none that is not told."""

import asyncio
import json
import time
from typing import Any

import pytest

from taskq import calls
from taskq.context import Context
from taskq.ids import split_id
from taskq.registry import Registry, WorkerInfo
from taskq_api import schemas
from taskq_api.errors import Shield


def check(model: Any, answer: Any) -> None:
    """Fails for a member that the model does not name, at any depth."""
    model.model_validate(answer.json(), extra="forbid")


async def tell(api: Any, job_id: str, run: Any) -> None:
    """Progress and a line of log, as a handler tells them and a worker sends them."""
    keys = api.store.keys.queue(split_id(job_id)[0])
    told: list[tuple[str, dict[str, Any]]] = []
    context = Context.detached()
    context._tell = lambda *args: told.append((args[0], args[-1]))
    context.log("resizing")
    context.progress(0.5, "half way")
    for number, (kind, message) in enumerate(told, 1):
        data = json.dumps({**message, "at": int(time.time() * 1000)}).encode()
        if kind == "log":
            call = calls.log(keys, "w1", [(run.ulid, run.fence, number, data)])
        else:
            call = calls.progress(keys, "w1", [(run.ulid, run.fence, data)])
        assert await api.store.run(call) == ["OK"]


async def lived(api: Any) -> str:
    """A job to which all has happened that its history tells."""
    job_id: str = (await api.submit(expires=600, unique_key="u", delay=0))["id"]
    queue, ulid = split_id(job_id)
    keys = api.store.keys.queue(queue)
    number = 0

    async def take() -> Any:
        nonlocal number
        number += 1
        call = calls.claim(keys, "w1", number, 1, ["echo"], lease_ms=60_000)
        return (await api.store.run(call)).jobs[0]

    run = await take()
    await api.store.run(calls.snooze(keys, "w1", [(ulid, run.fence, 0)]))
    await api.store.run(calls.promote(keys))
    await api.store.run(calls.edit(keys, [(ulid, 3, None)]))
    run = await take()
    await api.store.run(calls.release(keys, "w1", [(ulid, run.fence)], "stop"))
    run = await take()
    await tell(api, job_id, run)
    failure = calls.Failure(ulid, run.fence, b'{"type":"E","message":"no"}', 0, 9)
    await api.store.run(calls.fail(keys, "w1", [failure]))
    await api.store.run(calls.promote(keys))
    run = await take()
    failure = calls.Failure(ulid, run.fence, b'{"type":"E","message":"no"}', 0, 1)
    await api.store.run(calls.fail(keys, "w1", [failure]))
    return job_id


async def test_a_job(api: Any) -> None:
    job_id = await lived(api)
    answer = await api.http.get(f"/jobs/{job_id}")
    check(schemas.Job, answer)
    job = answer.json()
    (line,) = job["log"]
    assert line["line"] == "resizing"
    assert line["at"].endswith("Z")
    assert job["progress"]["message"] == "half way"
    assert job["progress"]["at"].endswith("Z")
    assert {"created", "snoozed", "edited", "released", "failed"} <= {
        event["event"] for event in job["history"]
    }
    check(schemas.Job, await api.http.post(f"/jobs/{job_id}/retry"))
    check(schemas.Job, await api.http.post(f"/jobs/{job_id}/cancel"))


async def test_a_submission(api: Any) -> None:
    for fields in ({}, {"delay": 60, "expires": 90}):
        answer = await api.http.post("/jobs", json={"job_type": "echo", **fields})
        check(schemas.Job, answer)
        stored = await api.http.get(f"/jobs/{answer.json()['id']}")
        events = [[e["event"] for e in a.json()["history"]] for a in (answer, stored)]
        assert events[0] == events[1]


async def test_lists_and_results(api: Any) -> None:
    job_id = await lived(api)
    await api.submit(queue="other")
    check(schemas.JobList, await api.http.get("/jobs"))
    check(schemas.Result, await api.http.get(f"/jobs/{job_id}/result"))
    check(schemas.QueueList, await api.http.get("/queues"))
    check(schemas.Queue, await api.http.get("/queues/default"))
    settings = {"paused": True, "max_depth": 9}
    check(schemas.Queue, await api.http.patch("/queues/default", json=settings))
    items = [{"job_type": "echo"}, {"job_type": "echo", "priority": 1000}, {"job_type": "a b"}]
    check(schemas.BatchAnswer, await api.http.post("/jobs/batch", json={"jobs": items}))


async def test_workers_and_their_types(api: Any) -> None:
    registry = Registry(api.store, ttl_seconds=60)
    now = int(time.time() * 1000)
    about = WorkerInfo(
        "w1", "host", 1, 2, "0.1", now, now, "running", ("default",), ("echo",), 9, 1
    )
    await registry.tell(about, {"echo": {"schema": {}}})
    answer = await api.http.get("/workers")
    assert answer.json()["workers"]
    check(schemas.WorkerList, answer)
    check(schemas.JobTypeList, await api.http.get("/job-types"))


async def test_health(api: Any) -> None:
    check(schemas.Health, await api.http.get("/health"))
    check(schemas.Ready, await api.http.get("/ready"))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/nope", None),
        ("GET", "/jobs/nope", None),
        ("GET", "/jobs?limit=0", None),
        ("POST", "/jobs", {"job_type": "echo", "priority": 1000}),
        ("POST", "/jobs", {"job_type": "a b"}),
        ("POST", "/jobs", {"job_type": "echo", "unique_key": "u"}),
    ],
)
async def test_problems(api: Any, method: str, path: str, body: Any) -> None:
    await api.submit(unique_key="u")
    answer = await api.http.request(method, path, json=body)
    assert answer.status_code >= 400
    check(schemas.Problem, answer)


async def test_the_problem_of_a_wrong_state(api: Any) -> None:
    job = await api.submit()
    check(schemas.Problem, await api.http.post(f"/jobs/{job['id']}/retry"))


async def test_a_request_that_a_stop_cuts_short_is_told_to_come_again() -> None:
    sent: list[Any] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/jobs", "headers": []}
    task = asyncio.create_task(Shield(slow)(scope, send, send))
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert sent[0]["status"] == 503
    assert dict(sent[0]["headers"])[b"retry-after"] == b"1"
    assert json.loads(sent[1]["body"])["code"] == "not_ready"
