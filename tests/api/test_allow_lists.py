"""Keys for some queues and job types: for all else it is as if it were not there."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from taskq.apikeys import Scope
from taskq.registry import WorkerInfo, now_ms
from taskq_api.access import Access
from taskq_api.errors import Refused

Check = Callable[..., dict[str, Any]]

ALL = tuple(scope for scope in Scope if scope is not Scope.ADMIN)
NOBODY = "default:" + "0" * 26


@pytest.fixture
async def theirs(api: Any) -> dict[str, Any]:
    """A job of somebody else, in a queue of theirs."""
    job: dict[str, Any] = await api.submit(queue="theirs", job_type="other", payload="sesame")
    return job


def same(one: Any, other: Any, *replaced: str) -> bool:
    """Whether two refusals are alike but for the names in the requests."""
    a, b = one.text, other.text
    for name in replaced:
        a, b = a.replace(name, "*"), b.replace(name, "*")
    return (one.status_code, a, one.headers["content-type"]) == (
        other.status_code,
        b,
        other.headers["content-type"],
    )


ON_A_JOB = [
    ("GET", ""),
    ("GET", "/result"),
    ("GET", "/result?wait=1"),
    ("POST", "/cancel"),
    ("POST", "/retry"),
]


@pytest.mark.parametrize("lists", [{"queues": ["mine"]}, {"job_types": ["echo"]}], ids=str)
@pytest.mark.parametrize(("method", "path"), ON_A_JOB)
async def test_their_jobs_are_not_there(
    api: Any, problem: Check, theirs: dict[str, Any], lists: Any, method: str, path: str
) -> None:
    headers = await api.key(*ALL, **lists)
    answer = await api.http.request(method, f"/jobs/{theirs['id']}{path}", headers=headers)
    problem(answer, 404, "job_not_found")
    absent = theirs["id"][:-1] + ("0" if theirs["id"][-1] != "0" else "1")
    nothing = await api.http.request(method, f"/jobs/{absent}{path}", headers=headers)
    assert same(answer, nothing, theirs["id"], absent)
    state = await api.http.get(f"/jobs/{theirs['id']}", headers=await api.key("read"))
    assert state.json()["state"] == "queued"


async def test_their_queues_are_not_there(api: Any, problem: Check, theirs: dict[str, Any]) -> None:
    headers = await api.key(*ALL, queues=["mine"])
    for method, path, body in (
        ("GET", "/queues/{}", None), ("PATCH", "/queues/{}", {"paused": True}),
        ("GET", "/jobs?queue={}", None), ("POST", "/jobs", {"job_type": "echo", "queue": "{}"}),
    ):  # fmt: skip
        answers = []
        for name in ("theirs", "absent"):
            sent = {k: v.format(name) if isinstance(v, str) else v for k, v in (body or {}).items()}
            answer = await api.http.request(
                method, path.format(name), headers=headers, json=sent or None
            )
            problem(answer, 404, "queue_not_found")
            answers.append(answer)
        assert same(*answers, "theirs", "absent")
    shown = await api.http.get("/queues/theirs", headers=await api.key("read"))
    assert shown.json()["paused"] is False
    assert shown.json()["counts"]["queued"] == 1


async def test_lists_show_the_allowed_only(api: Any, theirs: dict[str, Any]) -> None:
    mine = [(await api.submit(queue="mine"))["id"] for _ in range(3)]
    await api.submit(queue="mine", job_type="other")
    headers = await api.key(*ALL, queues=["mine", "later"], job_types=["echo"])
    found, cursor = [], ""
    while True:
        query = f"/jobs?limit=1{cursor}"
        page = (await api.http.get(query, headers=headers)).json()
        found += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert sorted(found) == sorted(mine)
    assert (await api.http.get("/jobs?job_type=other", headers=headers)).json()["jobs"] == []
    (queue,) = (await api.http.get("/queues", headers=headers)).json()["queues"]
    assert queue["name"] == "mine"
    assert [line["job_type"] for line in queue["types"]] == ["echo"]


async def test_a_cursor_of_another_key_leads_nowhere_else(api: Any, theirs: dict[str, Any]) -> None:
    for _ in range(3):
        await api.submit(queue="theirs")
    page = await api.http.get("/jobs?queue=theirs&limit=1", headers=await api.key("read"))
    cursor = page.json()["next_cursor"]
    headers = await api.key("read", queues=["mine"])
    answer = await api.http.get("/jobs", params={"cursor": cursor}, headers=headers)
    assert answer.json()["jobs"] == []


async def test_submissions_stay_within_them(api: Any, problem: Check) -> None:
    headers = await api.key("submit", queues=["mine"], job_types=["echo"])
    for body, status, code in (
        ({"job_type": "echo"}, 404, "queue_not_found"),
        ({"job_type": "echo", "queue": "theirs"}, 404, "queue_not_found"),
        ({"job_type": "other", "queue": "mine"}, 403, "forbidden_job_type"),
    ):
        problem(await api.http.post("/jobs", json=body, headers=headers), status, code)
        batch = {"jobs": [body, {"job_type": "echo", "queue": "mine"}]}
        outcome = (await api.http.post("/jobs/batch", json=batch, headers=headers)).json()
        assert [item["status"] for item in outcome["items"]] == [status, 201]
    assert await api.jobs_stored() == 3


async def test_what_touches_a_whole_queue_is_not_for_a_key_of_some_types(
    api: Any, problem: Check
) -> None:
    await api.submit(queue="mine")
    headers = await api.key(*ALL, queues=["mine"], job_types=["echo"])
    answer = await api.http.patch("/queues/mine", json={"paused": True}, headers=headers)
    problem(answer, 403, "key_restricted")


@pytest.mark.parametrize(
    ("lists", "whole_queue", "everything"),
    [({}, True, True), ({"queues": {"a"}}, True, False), ({"job_types": {"t"}}, False, False)],
)
def test_what_is_asked_of_an_access(lists: Any, whole_queue: bool, everything: bool) -> None:
    access = Access("key:k", **{name: frozenset(names) for name, names in lists.items()})
    for check, fine in (
        (lambda: access.check_whole_queue("a"), whole_queue),
        (access.check_everything, everything),
    ):
        with contextlib.nullcontext() if fine else pytest.raises(Refused, match="API key"):
            check()
    assert access.can_see("a", "t")
    assert access.can_see("b") == ("queues" not in lists)
    assert access.can_see("a", "") == access.can_see("a", "u") == ("job_types" not in lists)
    assert access.types(["t"]) == ["t"]
    assert access.types(None) == (["t"] if "job_types" in lists else None)
    with contextlib.nullcontext() if "job_types" not in lists else pytest.raises(Refused):
        access.types(["t", "u"])


async def test_the_holder_of_a_unique_key_is_not_named(api: Any, problem: Check) -> None:
    """It may be a job of a type that the key may not see."""
    held = await api.submit(queue="mine", job_type="other", unique_key="u")
    headers = await api.key(*ALL, queues=["mine"], job_types=["echo"])
    body = {"job_type": "echo", "queue": "mine", "unique_key": "u"}
    answer = await api.http.post("/jobs", json=body, headers=headers)
    assert "job_id" not in problem(answer, 409, "unique_held")
    batch = await api.http.post("/jobs/batch", json={"jobs": [body]}, headers=headers)
    assert batch.json()["items"][0]["problem"]["code"] == "unique_held"
    assert held["id"] not in answer.text + batch.text
    whole = await api.key(*ALL, queues=["mine"])
    answer = await api.http.post("/jobs", json=body, headers=whole)
    assert problem(answer, 409, "unique_held")["job_id"] == held["id"]


async def test_workers_and_types_of_others_are_not_shown(api: Any) -> None:
    registry = api.app.state.services.registry
    for name, queues, types in (
        ("a", ("mine", "theirs"), ("echo", "shared")), ("b", ("theirs",), ("other",))
    ):  # fmt: skip
        told = WorkerInfo(
            name, "h", 1, 0, "1", now_ms(), now_ms(), "running", queues, types, slots=1, busy=0
        )
        await registry.tell(told, {job_type: {} for job_type in types})
    headers = await api.key("read", queues=["mine"])
    (worker,) = (await api.http.get("/workers", headers=headers)).json()["workers"]
    assert (worker["id"], worker["queues"]) == ("a", ["mine"])
    shown = (await api.http.get("/job-types", headers=headers)).json()["job_types"]
    assert [row["job_type"] for row in shown] == ["echo", "shared"]
    headers = await api.key("read", job_types=["other"])
    shown = (await api.http.get("/job-types", headers=headers)).json()["job_types"]
    assert [row["job_type"] for row in shown] == ["other"]


async def test_idempotency_keys_of_two_api_keys_are_two(api: Any) -> None:
    ids = set()
    body = {"job_type": "echo"}
    for headers in (await api.key("submit"), await api.key("submit")):
        for status in (201, 200):
            sent = {**headers, "idempotency-key": "same"}
            answer = await api.http.post("/jobs", json=body, headers=sent)
            assert answer.status_code == status
            ids.add(answer.json()["id"])
    assert len(ids) == 2
