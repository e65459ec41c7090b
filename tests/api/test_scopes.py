"""Every route and every scope: what a route declares is what it takes, and none declares nothing."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from taskq.apikeys import ALL_SCOPES, Scope
from taskq.settings import load_settings
from taskq_api.access import ANY_KEY, PUBLIC, needed
from taskq_api.app import create_app
from taskq_api.auth import is_open
from taskq_api.docs import api_routes

Check = Callable[..., dict[str, Any]]

APP = create_app(load_settings())
ROUTES = [
    (method, route.path, needed(route.endpoint))
    for route in api_routes(APP.routers)
    for method in sorted(route.methods)
]
PROTECTED = [route for route in ROUTES if route[2] in ALL_SCOPES]
ASIDE = {"/assets", "/openapi.json"}
"""Routes outside the routers: behind the door like all, and the same for every key."""


def at(path: str) -> str:
    """A path with values in it that name nothing."""
    path = path.replace("{job_id}", "default:" + "0" * 26).replace("{queue}", "default")
    if path == "/events":
        path = "/events?queue=x"  # a stream would not end
    return re.sub(r"{[^}]*}", "x", path)


def test_every_route_declares_what_it_needs() -> None:
    for method, path, need in ROUTES:
        assert need is not None, f"{method} {path}: add @needs(Scope...) or @public below its path"
        assert (need == PUBLIC) == is_open(at(path)), (
            f"{method} {path}: the door and the route differ"
        )
    assert len(PROTECTED) >= 14
    # Shortcuts are made of these routes; and there is nothing else.
    aside = {path for route in APP.routes if (path := getattr(route, "path", None)) is not None}
    assert aside - {path for _, path, _ in ROUTES} == ASIDE
    assert {need for _, _, need in ROUTES} <= {*ALL_SCOPES, PUBLIC, ANY_KEY}


def test_what_changes_something_never_takes_a_reading_scope() -> None:
    for method, path, need in PROTECTED:
        if method not in ("GET", "HEAD"):
            assert need not in (Scope.READ, Scope.PAYLOAD), f"{method} {path}"


@pytest.mark.parametrize(("method", "path", "need"), PROTECTED)
async def test_takes_its_scope_and_no_other(
    api: Any, problem: Check, method: str, path: str, need: Scope
) -> None:
    """Each of the other scopes alone, and all of them together, are not enough."""
    others = sorted(ALL_SCOPES - {need})
    for scopes in (*([scope] for scope in others), others):
        headers = await api.key(*scopes)
        answer = await api.http.request(method, at(path), headers=headers)
        shown = problem(answer, 403, "scope_missing")
        assert shown["scope"] == need
        assert f"`{need}`" not in shown["detail"]
        assert need in shown["detail"]
    answer = await api.http.request(method, at(path), headers=await api.key(need))
    assert answer.status_code not in (401, 403), answer.text


@pytest.mark.parametrize(("method", "path", "need"), ROUTES)
async def test_without_a_key_only_public_routes_answer(
    api: Any, problem: Check, method: str, path: str, need: str
) -> None:
    await api.key("admin")
    for query in ("", "?api_key=x", "?token=x", "?access_token=x"):
        answer = await api.http.request(method, at(path) + query)
        if need == PUBLIC:
            assert answer.status_code == 200
        else:
            problem(answer, 401, "unauthorized")


async def test_a_key_in_an_address_opens_nothing(api: Any, problem: Check) -> None:
    token = (await api.key(*ALL_SCOPES))["authorization"].removeprefix("Bearer ")
    for name in ("api_key", "key", "token", "access_token", "authorization"):
        answer = await api.http.get("/queues", params={name: token})
        problem(answer, 401, "unauthorized")
    for headers in (
        {"x-api-key": token}, {"cookie": f"key={token}"}, {"authorization": f"Basic {token}"},
        {"authorization": token}, {"proxy-authorization": f"Bearer {token}"},
    ):  # fmt: skip
        problem(await api.http.get("/queues", headers=headers), 401, "unauthorized")


async def test_a_route_that_declares_nothing_is_open_to_nobody(
    api: Any, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = next(route for route in api_routes(api.app.routers) if route.path == "/workers")
    monkeypatch.delattr(route.endpoint, "taskq_scope")
    problem(await api.http.get("/workers"), 403, "scope_missing")
    headers = await api.key(*ALL_SCOPES)
    problem(await api.http.get("/workers", headers=headers), 403, "scope_missing")


async def test_listed_keys_may_do_everything(run_api: Any) -> None:
    async with run_api(api_keys="one") as api:
        for method, path, _ in PROTECTED:
            headers = {"authorization": "Bearer one"}
            answer = await api.http.request(method, at(path), headers=headers)
            assert answer.status_code not in (401, 403), (method, path)


def test_the_document_says_what_each_route_needs() -> None:
    document = APP.openapi()
    for method, path, need in ROUTES:
        operation = document["paths"].get(path, {}).get(method.lower())
        if operation is None:
            continue
        if need == PUBLIC:
            assert operation["security"] == []
        else:
            assert operation["security"] == [{}, {"key": [need] if need in ALL_SCOPES else []}]
            told = "Scope: any key." if need == ANY_KEY else f"Scope: `{need}`"
            assert told in operation["description"]
            assert {"401", "403", "429"} <= set(operation["responses"])
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


class TestPayloads:
    """Seen with the scope ``payload`` and without it not, wherever a job is answered."""

    async def ended(self, api: Any) -> str:
        job = await api.submit(payload={"secret": "sesame-in"})
        await api.finish(job["id"], b'"sesame-out"', keep_payload=True)
        return str(job["id"])

    async def test_are_left_out(self, api: Any) -> None:
        job_id = await self.ended(api)
        read, full = await api.key("read"), await api.key("read", "payload")
        for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/result", "/jobs"):
            answer = await api.http.get(path, headers=read)
            assert answer.status_code == 200
            assert "sesame" not in answer.text
            assert not {"payload", "result"} & answer.json().keys()
        shown = (await api.http.get(f"/jobs/{job_id}", headers=full)).json()
        assert (shown["payload"], shown["result"]) == ({"secret": "sesame-in"}, "sesame-out")
        shown = (await api.http.get(f"/jobs/{job_id}/result", headers=full)).json()
        assert shown["result"] == "sesame-out"

    async def test_are_not_answered_to_an_operator(self, api: Any) -> None:
        job = await api.submit(payload="sesame")
        headers = await api.key("operate")
        answer = await api.http.post(f"/jobs/{job['id']}/cancel", headers=headers)
        assert answer.json()["state"] == "cancelled"
        assert "sesame" not in answer.text

    async def test_a_submitter_sees_what_became_of_its_own_and_no_more(self, api: Any) -> None:
        headers = {**await api.key("submit"), "idempotency-key": "k"}
        body = {"job_type": "echo", "payload": "mine"}
        first = await api.http.post("/jobs", json=body, headers=headers)
        assert first.status_code == 201
        await api.fail(first.json()["id"], b'{"type":"X","message":"sesame"}')
        again = await api.http.post("/jobs", json=body, headers=headers)
        assert (again.status_code, again.json()["state"]) == (200, "failed")
        assert "sesame" not in again.text
        assert again.json()["error"] is None
