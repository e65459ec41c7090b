"""What a body may be, and what every answer carries."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

Check = Callable[..., dict[str, Any]]
JSON = {"content-type": "application/json"}


def body_of(size: int) -> bytes:
    frame = b'{"job_type":"echo","payload":"%s"}'
    return frame % (b"x" * (size - len(frame) + 2))


async def in_chunks(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_limit_is_exact(run_api: Any, problem: Check, chunked: bool) -> None:
    """F58: with and without a stated length."""
    async with run_api(max_body_bytes=10_000) as api:
        for size, status in ((9_999, 201), (10_000, 201), (10_001, 413), (500_000, 413)):
            data: Any = in_chunks(body_of(size)) if chunked else body_of(size)
            answer = await api.http.post("/jobs", content=data, headers=JSON)
            assert answer.status_code == status
            if status == 413:
                problem(answer, 413, "payload_too_large")
        assert await api.jobs_stored() == 2


async def test_holds_for_every_route_with_a_body(run_api: Any, problem: Check) -> None:
    async with run_api(max_body_bytes=100) as api:
        for method, path in (("POST", "/jobs/batch"), ("PATCH", "/queues/q")):
            answer = await api.http.request(method, path, content=b"x" * 101, headers=JSON)
            problem(answer, 413, "payload_too_large")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonp"},
        {"content-type": "text/plain; application/json"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_takes_only_plain_json(api: Any, problem: Check, headers: dict[str, str]) -> None:
    answer = await api.http.post("/jobs", content=b'{"job_type":"echo"}', headers=headers)
    problem(answer, 415, "unsupported_media_type")
    assert await api.jobs_stored() == 0


@pytest.mark.parametrize(
    "kind",
    ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"'],
)
async def test_takes_json_however_it_is_called(api: Any, kind: str) -> None:
    answer = await api.http.post(
        "/jobs", content=b'{"job_type":"echo"}', headers={"content-type": kind}
    )
    assert answer.status_code == 201


async def test_actions_need_no_body(api: Any) -> None:
    job = await api.submit()
    assert (await api.http.post(f"/jobs/{job['id']}/cancel")).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/jobs", "/nope", "/jobs/x", "/boom", "/docs"])
async def test_every_answer_is_safe_in_a_browser(api: Any, path: str) -> None:
    """F83: no sniffing, no frame, no script."""
    headers = (await api.http.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "server" not in headers


async def test_what_nobody_foresaw_is_a_500_without_internals(
    api: Any, problem: Check, caplog: pytest.LogCaptureFixture
) -> None:
    async def boom() -> None:
        raise RuntimeError("sesame-7391")

    api.app.add_api_route("/boom", boom)
    answer = await api.http.get("/boom")
    problem(answer, 500, "internal")
    assert "sesame" not in answer.text
    assert "nosniff" in answer.headers["x-content-type-options"]
    assert "sesame-7391" in caplog.text


async def test_other_paths_and_methods(api: Any, problem: Check) -> None:
    problem(await api.http.get("/nope"), 404, "not_found")
    answer = await api.http.delete("/queues")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
    answer = await api.http.put("/jobs")
    problem(answer, 405, "method_not_allowed")
