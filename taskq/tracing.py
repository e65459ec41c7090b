"""OpenTelemetry, where it is there (extra ``otel``): a job carries the trace context of whoever submitted it.

The context is W3C's ``traceparent``, stored with the job only when there is one. Spans follow the semantic
conventions for messaging. Without the extra nothing is imported and nothing is done; with it but without a
configured SDK a context that comes along is passed on, and no span is made.
"""

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")

SCOPE = "taskq"


@functools.cache
def _api() -> Any:
    """The tracing API, or None where the extra is missing."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def parse(header: str | None) -> str | None:
    """A ``traceparent`` header, if it is one of version 00. W3C asks that anything else be passed over."""
    return header if header is not None and TRACEPARENT.match(header) else None


def collecting() -> bool:
    """Whether somebody collects spans: an SDK is configured."""
    trace = _api()
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


def active(traceparent: str | None = None) -> bool:
    """Whether a submission has anything to do: a context to pass on, or somebody who collects spans."""
    trace = _api()
    return trace is not None and (
        traceparent is not None
        or trace.get_current_span().get_span_context().is_valid
        or collecting()
    )


@contextlib.contextmanager
def submitting(
    queue: str, job_ids: list[str], job_type: str, traceparent: str | None
) -> Iterator[str | None]:
    """A span around a submission; gives the context that its jobs carry. ``traceparent`` is the sender's."""
    trace = _api()
    attributes: dict[str, Any] = {
        **_about(queue),
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "taskq.job.type": job_type,
    }
    if len(job_ids) == 1:
        attributes["messaging.message.id"] = job_ids[0]
    else:
        attributes["messaging.batch.message_count"] = len(job_ids)
    with trace.get_tracer(SCOPE).start_as_current_span(
        f"submit {queue}",
        context=_context(traceparent),
        kind=trace.SpanKind.PRODUCER,
        attributes=attributes,
    ) as span:
        yield _text(span) or traceparent


@contextlib.contextmanager
def running(
    queue: str, job_id: str, job_type: str, attempt: int, traceparent: str | None
) -> Iterator["RunSpan"]:
    """A span around one run of a job: its parent, and a link, is the submission."""
    trace = _api()
    context = _context(traceparent)
    links = []
    if context is not None:
        links.append(trace.Link(trace.get_current_span(context).get_span_context()))
    with trace.get_tracer(SCOPE).start_as_current_span(
        f"process {queue}",
        context=context,
        kind=trace.SpanKind.CONSUMER,
        links=links,
        attributes={
            **_about(queue),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.message.id": job_id,
            "taskq.job.type": job_type,
            "taskq.job.attempt": attempt,
        },
    ) as span:
        yield RunSpan(span)


class RunSpan:
    """The span of a run, to be told how the run ended."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def ended(self, outcome: str, error_type: str = "", message: str = "") -> None:
        """``outcome`` is a word; with an ``error_type`` the span is marked as failed."""
        self._span.set_attribute("taskq.job.outcome", outcome)
        if error_type:
            trace = _api()
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, message))


def current() -> str | None:
    """The context of the span that is open now, for a process that goes on with it."""
    trace = _api()
    return None if trace is None else _text(trace.get_current_span())


@contextlib.contextmanager
def going_on(traceparent: str | None) -> Iterator[None]:
    """Within, spans are children of a span of another process."""
    # Without a context nothing is imported: a process of its own is made for every such job.
    context = _context(traceparent) if traceparent is not None and _api() is not None else None
    if context is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _about(queue: str) -> dict[str, Any]:
    return {"messaging.system": "taskq", "messaging.destination.name": queue}


def _context(traceparent: str | None) -> Any:
    """The context that a text stands for; None for none, which means the present one."""
    if parse(traceparent) is None or traceparent is None:
        return None
    trace = _api()
    _, trace_id, span_id, flags = traceparent.split("-")
    remote = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16))
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(remote))


def _text(span: Any) -> str | None:
    at = span.get_span_context()
    if not at.is_valid:
        return None
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{int(at.trace_flags):02x}"
