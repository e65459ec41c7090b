"""How ``taskq jobs show`` tells about a job: what a person reads first, and no JSON but what is theirs."""

import re
from typing import Any

import click

from taskq.cli.tables import age, counted, dump, place, plain, shorten
from taskq.model import Job
from taskq.present import decoded, log_lines, reason, rfc3339, timeline, was_stopped
from taskq.registry import now_ms
from taskq.states import State

SHOWN = 2000
LABEL = 11
_RUNS_IT = re.compile(
    r"[/\\](taskq_worker|asyncio|multiprocessing|concurrent[/\\]futures)[/\\]"
    r"|[/\\]threading\.py\"|\"<frozen |[/\\]taskq[/\\]tasks\.py\", line \d+, in load$"
)
"""Frames between the worker's loop and the handler."""
_NUMBERS = ("attempt", "failures", "crashes", "lost")
_TOLD = frozenset({"at", "event", "error", "reason", "message", "worker", *_NUMBERS})


def echo_job(job: Job, why: str | None = None, priority: str | None = None) -> None:
    """Prints a job; ``why`` is what it waits for, ``priority`` what waiting has made of it."""
    progress = None if job.progress is None else _progress(job.progress)
    rows: list[tuple[str, object]] = [
        ("id", job.id),
        ("type", job.job_type),
        ("state", f"{job.state} (asked to stop)" if job.cancel_requested else job.state),
        ("waits", why),
        ("reason", reason(job)),
        ("created", _moment(job.created_at)),
        ("started", _moment(job.started_at)),
        ("finished", _moment(job.finished_at)),
        ("priority", priority or job.priority),
        ("attempts", _attempts(job)),
        ("unique key", job.unique_key),
        ("worker", place(job.worker)),
        ("progress", progress),
        ("payload", _value(job.payload)),
        ("result", _value(job.result)),
    ]
    for name, value in rows:
        if value is not None:
            click.echo(f"{name:<{LABEL}} {shorten(value, SHOWN)}")
    if job.error is not None and not _stopped(job):
        _echo_error(job.error)
    _echo_lines("timeline", [(event["at"], event_text(event)) for event in timeline(job)])
    _echo_lines("log", [(line["at"], line["line"]) for line in log_lines(job)])


def _stopped(job: Job) -> bool:
    """Whether its last run only ended because the job was cancelled."""
    return job.state is State.CANCELLED and was_stopped(job.error)


def _attempts(job: Job) -> str:
    said = (
        counted(max(0, job.failures - _stopped(job)), "failure"),
        counted(job.crashes, "crash", "crashes"),
        f"{job.lost} lost",
    )
    return f"{job.attempts} ({', '.join(said)})"


def _moment(ms: float | None) -> str | None:
    at = rfc3339(ms)
    if at is None:
        return None
    gone = age(ms, now_ms())
    return f"{at[:10]} {at[11:23]} UTC ({gone if gone.startswith('in ') else f'{gone} ago'})"


def _progress(progress: Any) -> str:
    fraction = progress.get("fraction") if isinstance(progress, dict) else None
    if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        return dump(progress)
    message = progress.get("message")
    return f"{fraction * 100:.0f} %" + (f"  {message}" if message else "")


def _value(data: bytes | None) -> str | None:
    return None if data is None else dump(decoded(data))


# --- errors -----------------------------------------------------------------------------------------


def error_text(error: Any) -> str:
    """``ValueError: boom``."""
    if not isinstance(error, dict) or not isinstance(error.get("type"), str):
        return dump(error)
    message = error.get("message")
    return f"{error['type']}: {message}" if message else str(error["type"])


def _echo_error(error: dict[str, Any]) -> None:
    text = error_text(error)
    first, *others = text.splitlines() or [""]
    click.echo(f"{'error':<{LABEL}} {shorten(first, SHOWN)}")
    trace = error.get("traceback")
    if isinstance(trace, str):
        said = re.compile(r"(^|\n)[\w.]*" + re.escape(text) + r"$")
        others += of_handler(said.sub("", trace.rstrip()), keep=not error.get("code"))
    for line in others:
        click.echo(f"{'':<{LABEL}} {plain(line.expandtabs(4))}".rstrip())


def of_handler(trace: str, *, keep: bool) -> list[str]:
    """The lines of a traceback without the frames at its top that are not the handler's.

    Where nothing is left the whole is answered, or nothing if not ``keep``.
    """
    lines = trace.splitlines()
    shown: list[str] = []
    top = skipping = False
    frames = 0
    for line in lines:
        if line.startswith('  File "'):
            top = skipping = top and _RUNS_IT.search(line) is not None
            frames += not skipping
        elif not line.startswith("    "):
            top, skipping = line.startswith("Traceback ("), False
        if not skipping:
            shown.append(line)
    if frames:
        return shown
    return lines if keep else []


# --- lines with a time ------------------------------------------------------------------------------


def event_text(event: dict[str, Any]) -> str:
    """``failed #2  ValueError: boom 2  by host:pid``."""
    number = next((event[name] for name in _NUMBERS if event.get(name) is not None), None)
    parts = [event["event"] + (f" #{number}" if isinstance(number, int) else "")]
    if event.get("error") is not None:
        parts.append(error_text(event["error"]))
    parts += [str(event[name]) for name in ("reason", "message") if event.get(name) is not None]
    for name, value in event.items():
        if name in _TOLD or value is None:
            continue
        if name.endswith("_ms") and isinstance(value, int):
            parts.append(f"{name.removesuffix('_ms').replace('_', ' ')} {value / 1000:g} s")
        else:
            shown = value if isinstance(value, str) else dump(value)
            parts.append(f"{name.replace('_', ' ')} {shown}")
    if isinstance(event.get("worker"), str):
        parts.append(f"by {place(event['worker'])}")
    return "  ".join(parts)


def _echo_lines(title: str, lines: list[tuple[str | None, str]]) -> None:
    """Times of day, in UTC; with their dates where they are of several days."""
    if not lines:
        return
    click.echo(title)
    several = len({at[:10] for at, _ in lines if at}) > 1
    for at, text in lines:
        day = f"{at[:10]} " if at and several else ""
        click.echo(f"  {day}{at[11:23] if at else '-'}  {shorten(text, SHOWN)}")
