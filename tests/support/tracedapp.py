"""An application whose worker collects its spans, and writes those that have ended to a file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from taskq import TaskQ

app = TaskQ()


def seen(span: ReadableSpan) -> dict[str, Any]:
    """What tests look at."""
    assert span.context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "span": f"{span.context.span_id:016x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else None,
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
    }


class _ToFile(SpanExporter):
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            for span in spans:
                file.write(json.dumps(seen(span)) + "\n")
        return SpanExportResult.SUCCESS


if "TRACED_SPANS" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_ToFile(os.environ["TRACED_SPANS"])))
    trace.set_tracer_provider(provider)


def _inner() -> str:
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}"


@app.task
async def parent() -> str:
    """Submits another job from within."""
    await app.submit("on_thread")
    return _inner()


@app.task
def on_thread() -> str:
    return _inner()


@app.task(executor="process")
def in_process() -> str:
    return _inner()


@app.task(max_attempts=1)
async def failing() -> None:
    raise ValueError("no such thing")
