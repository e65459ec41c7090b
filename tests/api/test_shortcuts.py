"""Requests that go past the framework: they meet the route that it would find, and get the same answer."""

import re
from typing import Any

import httpx
import pytest

from taskq.settings import load_settings
from taskq_api.app import create_app
from taskq_api.docs import api_routes
from taskq_api.shortcuts import Shortcuts

TIMES = re.compile(rb'"(head_age|seconds)":[^,}]*')
APP = create_app(load_settings())
ROUTES = api_routes(APP.routers)
SHORTCUTS = Shortcuts(APP, ROUTES)
FRAMEWORK = {
    "/health",
    "/docs",
    "/docs/start.js",
    "/docs/{name}",
    "/ui/{path:path}",
    "/favicon.svg",
}
"""Left to the framework: pages and a probe whose endpoints do not even take the request."""

ODD = [
    "/jobs?limit=0", "/jobs?limit=1001", "/jobs?limit=x", "/jobs?limit=", "/jobs?limit=2&limit=1",
    "/jobs?limit=%32", "/jobs?limit=1;state=failed", "/jobs?state=nope", "/jobs?state=failed&nope=1",
    "/jobs?Limit=1", "/jobs?queue=", "/jobs?queue=%FF", "/jobs?queue=a&queue=default", "/jobs?", "/jobs?&",
    "/jobs?=", "/jobs?limit", "/jobs?cursor=" + "x" * 2001, "/jobs?cursor=x", "/jobs?job_type=echo&limit=1",
    "/jobs/", "//jobs", "/jobs/batch", "/jobs/default%3Ax", "/jobs/a%2Fb", "/jobs/x/", "/jobs/x/position/",
    "/jobs/x/result?wait=-1", "/jobs/x/result?wait=nan", "/jobs/x/result?wait=1&x=2", "/jobs/x?y=1",
    "/stats?queue=default&queue=default", "/stats?queue=nope", "/stats?minutes=0", "/stats?minutes=1",
    "/queues?x=1", "/queues/default", "/queues/", "/errors/unknown?limit=1", "/errors?cursor=", "/bulk",
    "/bulk?queue=default", "/keys/self", "/keys/self?x", "/nothing", "/workers", "/doctor?seconds=x",
]  # fmt: skip


def told(answer: httpx.Response) -> Any:
    """An answer, without what goes with the time of day."""
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    figures = answer.is_success and answer.url.path == "/stats"
    return answer.status_code, headers, b"" if figures else TIMES.sub(b"", answer.content)


def asked(method: str, path: str, query: bytes = b"") -> Any:
    return {"type": "http", "method": method, "path": path, "query_string": query}


def test_all_routes_but_a_few_pages_have_a_shortcut() -> None:
    found = set()
    for route in ROUTES:
        for method in route.methods or ():
            path = route.path.replace("{", "").replace("}", "")
            query = b"queue=q" if path == "/bulk" else b""
            if its := SHORTCUTS.find(asked(method, path, query)):
                assert its[0] is route, f"{method} {path} goes to {its[0].path}"
                assert its[1] is route.endpoint
                found.add(route.path)
    assert {route.path for route in ROUTES} - found == FRAMEWORK


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE", "PUT"])
async def test_odd_requests_are_answered_as_the_framework_does(
    api: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.submit()
    direct = [await api.http.request(method, path) for path in ODD]
    monkeypatch.setattr(Shortcuts, "find", lambda *_: None)
    for path, answer in zip(ODD, direct, strict=True):
        expected = await api.http.request(method, path)
        assert told(answer) == told(expected), path


async def test_values_arrive_as_what_they_are(api: Any) -> None:
    """Once with defaults, once with all that can be given."""
    for path, query, expected in (
        ("/jobs", b"", {"queue": None, "state": None, "job_type": None, "limit": 50, "cursor": None}),
        ("/jobs", b"limit=7&state=failed&queue=q%20x&queue=q", {"limit": 7, "state": "failed", "queue": "q"}),
        ("/stats", b"queue=a&queue=b&minutes=5", {"queue": ["a", "b"], "minutes": 5}),
        ("/jobs/q:1/result", b"wait=2.5", {"job_id": "q:1", "wait": 2.5}),
    ):  # fmt: skip
        found = SHORTCUTS.find(asked("GET", path, query))
        assert found is not None
        assert {name: found[2][name] for name in expected} == expected


async def test_metrics_name_the_route_and_not_the_path(api: Any) -> None:
    await api.http.get("/jobs/default:x/position")
    text = (await api.http.get("/metrics")).text
    assert (
        'taskq_api_requests_total{method="GET",route="/jobs/{job_id}/position",status="404"}'
        in text
    )
