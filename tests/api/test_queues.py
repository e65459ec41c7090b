"""Queues, their settings, workers and job types."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from taskq.calls import SETTINGS
from taskq.registry import WorkerInfo, now_ms

Check = Callable[..., dict[str, Any]]


def worker(**fields: Any) -> WorkerInfo:
    given = {"id": "h-1-a", "host": "h", "pid": 1, "supervisor_pid": 0, "version": "1"}
    given |= {"started_at": now_ms(), "seen_at": now_ms(), "state": "running"}
    given |= {"queues": ("default",), "types": ("echo",), "slots": 10, "busy": 0}
    return WorkerInfo(**{**given, **fields})


async def test_counts_jobs_and_lines(api: Any) -> None:
    for _ in range(3):
        await api.submit()
    await api.submit(job_type="other", delay=60)
    await api.submit(queue="mail", job_type="other")
    await api.app.state.services.registry.tell(worker())
    queues = (await api.http.get("/queues")).json()["queues"]
    assert [queue["name"] for queue in queues] == ["default", "mail"]
    counts = queues[0]["counts"]
    assert (counts["queued"], counts["scheduled"], counts["running"]) == (3, 1, 0)
    (line,) = queues[0]["types"]
    assert (line["job_type"], line["waiting"], line["served"]) == ("echo", 3, True)
    assert 0 <= line["head_age"] < 60
    assert queues[1]["types"][0]["served"] is False
    assert [(queue["workers"], queue["holders"]) for queue in queues] == [(1, 0), (0, 0)]
    assert queues[0]["head_since"] == line["head_since"]
    assert queues[0]["head_age"] == line["head_age"]
    assert (await api.http.get("/queues/mail")).json()["name"] == "mail"


@pytest.mark.parametrize("path", ["/jobs", "/queues", "/workers", "/job-types"])
async def test_a_misspelt_filter_is_no_list_of_everything(
    api: Any, problem: Check, path: str
) -> None:
    shown = problem(await api.http.get(path, params={"stat": "failed"}), 422, "invalid")
    assert shown["field"] == "stat"
    assert "no query parameter 'stat'" in shown["detail"]


@pytest.mark.parametrize(
    ("name", "status", "code"), [("nope", 404, "queue_not_found"), ("a:b", 422, "invalid")]
)
async def test_does_not_know_other_queues(
    api: Any, problem: Check, name: str, status: int, code: str
) -> None:
    problem(await api.http.get(f"/queues/{name}"), status, code)


async def test_sets_and_clears(api: Any) -> None:
    changes = {"paused": True, "paused_types": ["b", "a"], "aging_ms": 0, "max_depth": 5}
    queue = (await api.http.patch("/queues/new", json=changes)).json()
    assert (queue["paused"], queue["paused_types"]) == (True, ["a", "b"])
    assert queue["settings"] == {"aging_ms": 0, "max_depth": 5}
    queue = (await api.http.patch("/queues/new", json={"aging_ms": None, "paused": False})).json()
    assert (queue["paused"], queue["paused_types"]) == (False, ["a", "b"])
    assert queue["settings"] == {"max_depth": 5}
    queue = (await api.http.patch("/queues/new", json={"paused_types": None})).json()
    assert queue["paused_types"] == []
    assert (await api.http.patch("/queues/new", json={})).json() == queue


async def test_a_paused_queue_hands_out_nothing(api: Any) -> None:
    await api.http.patch("/queues/default", json={"paused": True})
    job = await api.submit()
    with pytest.raises(RuntimeError, match="StopIteration"):
        await api.claim(job["id"])


@pytest.mark.parametrize("name", SETTINGS)
async def test_keeps_to_the_range_of_each_setting(api: Any, problem: Check, name: str) -> None:
    low, high = SETTINGS[name]
    for value in (low, high):
        answer = await api.http.patch("/queues/q", json={name: value})
        assert answer.json()["settings"] == {name: value}
    for value in (low - 1, high + 1, str(low), float(high), True, [low], 10**40):
        answer = await api.http.patch("/queues/q", json={name: value})
        assert problem(answer, 422, "invalid")["field"] == name
    assert (await api.http.get("/queues/q")).json()["settings"] == {name: high}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"paused": 1}, "paused"),
        ({"paused_types": "a"}, "paused_types"),
        ({"paused_types": [1]}, "paused_types.0"),
        ({"paused_types": ["a b"]}, "job_type"),
        ({"min_protocol": 1}, "min_protocol"),
        ({"listen_until": 1}, "listen_until"),
    ],
)
async def test_refuses_other_settings(
    api: Any, problem: Check, changes: dict[str, Any], field: str
) -> None:
    assert (
        problem(await api.http.patch("/queues/q", json=changes), 422, "invalid")["field"] == field
    )


async def test_lists_workers_and_what_they_publish(api: Any) -> None:
    await api.app.state.services.registry.tell(worker(), {"echo": {"schema": {"n": 2**63}}})
    (shown,) = (await api.http.get("/workers")).json()["workers"]
    assert (shown["id"], shown["queues"], shown["job_types"]) == ("h-1-a", ["default"], ["echo"])
    answer = await api.http.get("/job-types")
    (shown,) = json.loads(answer.content)["job_types"]
    assert shown["published"] == {"schema": {"n": 2**63}}
    assert (shown["job_type"], shown["workers"], shown["queues"]) == ("echo", 1, ["default"])


async def test_a_worker_is_shown_with_its_memory_and_its_lease(api: Any) -> None:
    """The lease of an id is found by host and pid; of several the one counts that was renewed last."""
    told = dataclasses.replace(worker(), memory_bytes=12_345_678, busy=1)
    await api.app.state.services.registry.tell(told)
    leases = api.store.keys.queue("default").leases
    await api.store.redis.zadd(
        leases,
        {f"{told.host}:{told.pid}:aa": 1_900_000_000_500, f"{told.host}:{told.pid}:bb": 2e12},
    )
    (shown,) = (await api.http.get("/workers")).json()["workers"]
    assert shown["memory_bytes"] == 12_345_678
    assert shown["lease_expires_at"] == "2033-05-18T03:33:20.000Z"


async def test_a_worker_of_which_little_is_known(api: Any) -> None:
    await api.app.state.services.registry.tell(dataclasses.replace(worker(), busy=1))
    await api.store.redis.set(api.store.keys.queue("default").leases, "no zset")
    (shown,) = (await api.http.get("/workers")).json()["workers"]
    assert (shown["memory_bytes"], shown["lease_expires_at"]) == (None, None)
