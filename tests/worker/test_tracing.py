"""A job's trace: from its submission over REST or Python into the run on a real worker, and on from there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.ledger import whole_lines
from support.tracedapp import app, seen
from support.workers import Site, site, until
from taskq import JobFailed, tracing
from taskq.embedded import EmbeddedServer
from taskq.settings import load_settings
from taskq_api.app import create_app

FROM_ELSEWHERE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Traced:
    """A site whose worker writes its spans."""

    def __init__(self, place: Site, path: Path) -> None:
        self.place = place
        self.path = path

    def spans(self, name: str, trace_id: str) -> list[dict[str, Any]]:
        spans = [json.loads(line) for line in whole_lines(self.path)] if self.path.exists() else []
        return [span for span in spans if (span["name"], span["trace"]) == (name, trace_id)]

    def span(self, name: str, trace_id: str) -> dict[str, Any]:
        until(lambda: self.spans(name, trace_id), 10, f"{name} of {trace_id} has ended")
        (span,) = self.spans(name, trace_id)
        return span

    def field(self, job_id: str) -> str | None:
        queue, ulid = job_id.split(":")
        redis: Any = app.sync_client().store.redis
        value = redis.hget(f"taskq:{{{queue}}}:job:{ulid}", "traceparent")
        return None if value is None else str(value.decode())


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    with EmbeddedServer() as server, site(server, folder) as place:
        app.use_settings(load_settings(redis_url=server.url))
        path = folder / "spans"
        place.worker("-A", "support.tracedapp:app", "-c", "4", TRACED_SPANS=str(path))
        yield Traced(place, path)
        app.close_sync()


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def one(exporter: InMemorySpanExporter, name: str) -> dict[str, Any]:
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return seen(span)


def test_a_run_is_in_the_trace_of_its_submission(
    traced: Traced, ours: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer_provider().get_tracer("test")
    with tracer.start_as_current_span("request") as request:
        job = app.tasks["parent"].enqueue_sync()  # type: ignore[attr-defined]
    result = job.result_sync(10)
    submit = one(ours, "submit default")
    assert submit["kind"] == "PRODUCER"
    assert submit["parent"] == f"{request.get_span_context().span_id:016x}"
    assert submit["attributes"] == {
        "messaging.system": "taskq",
        "messaging.destination.name": "default",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.message.id": job.id,
        "taskq.job.type": "parent",
    }
    until(lambda: len(traced.spans("process default", submit["trace"])) == 2, 10, "both have run")
    runs = {
        s["attributes"]["taskq.job.type"]: s
        for s in traced.spans("process default", submit["trace"])
    }
    run = runs["parent"]
    assert run["kind"] == "CONSUMER"
    assert run["parent"] == submit["span"]
    assert run["links"] == [submit["span"]]
    assert run["attributes"] == {
        "messaging.system": "taskq",
        "messaging.destination.name": "default",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": job.id,
        "taskq.job.type": "parent",
        "taskq.job.attempt": 1,
        "taskq.job.outcome": "succeeded",
    }
    assert result == submit["trace"], "the handler runs within the span"
    # And what the handler submits goes on from there.
    from_within = traced.span("submit default", submit["trace"])
    assert from_within["parent"] == run["span"]
    assert runs["on_thread"]["parent"] == from_within["span"]


async def test_a_header_of_rest_is_the_parent(traced: Traced) -> None:
    server = create_app(load_settings(redis_url=traced.place.server.url))
    async with server.router.lifespan_context(server):
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            headers = {"traceparent": FROM_ELSEWHERE}
            body = {"job_type": "on_thread"}
            one = (await http.post("/jobs", json=body, headers=headers)).json()
            many = await http.post("/jobs/batch", json={"jobs": [body, body]}, headers=headers)
            wrong = (await http.post("/jobs", json=body, headers={"traceparent": "00-x"})).json()
    ids = [one["id"], *(item["id"] for item in many.json()["items"])]
    assert [traced.field(job_id) for job_id in ids] == [FROM_ELSEWHERE] * 3
    assert traced.field(wrong["id"]) is None
    trace_id = FROM_ELSEWHERE.split("-")[1]
    until(lambda: len(traced.spans("process default", trace_id)) == 3, 10, "all have run")
    for span in traced.spans("process default", trace_id):
        assert span["parent"] == "00f067aa0ba902b7"
        assert span["attributes"]["messaging.message.id"] in ids


@pytest.mark.parametrize("name", ["on_thread", "in_process"])
def test_other_executors_run_within_the_span_too(
    traced: Traced, ours: InMemorySpanExporter, name: str
) -> None:
    result = app.tasks[name].enqueue_sync().result_sync(20)  # type: ignore[attr-defined]
    assert result == one(ours, "submit default")["trace"]


def test_without_a_trace_a_process_of_its_own_looks_for_no_library() -> None:
    tracing._api.cache_clear()
    with tracing.going_on(None):
        assert tracing._api.cache_info().currsize == 0


def test_a_failed_run_is_a_failed_span(traced: Traced, ours: InMemorySpanExporter) -> None:
    job = app.tasks["failing"].enqueue_sync()  # type: ignore[attr-defined]
    with pytest.raises(JobFailed):
        job.result_sync(10)
    span = traced.span("process default", one(ours, "submit default")["trace"])
    assert span["status"] == "ERROR"
    assert span["attributes"]["error.type"] == "ValueError"
    assert span["attributes"]["taskq.job.outcome"] == "failed"


def test_a_job_without_a_trace_carries_none(traced: Traced) -> None:
    job = app.tasks["on_thread"].enqueue_sync()  # type: ignore[attr-defined]
    job.result_sync(10)
    assert traced.field(job.id) is None


def test_nothing_is_imported_without_the_extra(tmp_path: Path) -> None:
    """As where the extra is not installed: submitting and running go on as before."""
    code = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import asyncio
from taskq import TaskQ, tracing
from taskq.testing import running
import taskq_worker.runner
assert "opentelemetry" not in sys.modules
assert not tracing.active("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
assert tracing.current() is None
with tracing.going_on(None):
    pass
app = TaskQ()
@app.task
async def hello() -> str:
    return "hi"
async def main():
    async with running(app) as worker:
        job = await hello.enqueue()
        await worker.drain()
        return await job.result(timeout=5)
assert asyncio.run(main()) == "hi"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=tmp_path)


@pytest.mark.parametrize(
    "header",
    [None, "", "00-x", f"ff{FROM_ELSEWHERE[2:]}", f"{FROM_ELSEWHERE}-1", FROM_ELSEWHERE.upper(),
     f"00-{'0' * 32}-00f067aa0ba902b7-01", FROM_ELSEWHERE + "\n"],
)  # fmt: skip
def test_headers_that_are_none_are_passed_over(header: str | None) -> None:
    assert tracing.parse(header) is None
