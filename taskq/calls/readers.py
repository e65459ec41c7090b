"""Looks, which change nothing."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import repeat
from typing import Any

from taskq.calls.base import Call, make, optional_int, text_of
from taskq.errors import BrokenKey
from taskq.keys import QueueKeys
from taskq.model import ErrorGroup, Job, Place, QueueInfo, QueueMetrics, TypeDepth
from taskq.states import State


def counts(keys: QueueKeys, *, now: float | None = None) -> Call[QueueInfo]:
    """One look at a queue; its cost grows with its waiting types and workers, not with its jobs."""

    def parse(reply: Any) -> QueueInfo:
        clock, pairs, types, settings = reply
        return QueueInfo(
            keys.queue,
            float(clock),
            {text_of(pairs[i]): int(pairs[i + 1]) for i in range(0, len(pairs), 2)},
            tuple(TypeDepth(text_of(t[0]), int(t[1]), optional_int(t[2])) for t in types),
            {text_of(settings[i]): text_of(settings[i + 1]) for i in range(0, len(settings), 2)},
        )

    return make("counts", keys, now, (), (), parse)


def metrics(keys: QueueKeys, *, now: float | None = None) -> Call[QueueMetrics]:
    """A queue's counters since ever, and how far its duties are behind; its cost has a bound."""

    def parse(reply: Any) -> QueueMetrics:
        clock, pairs, due, window, ticks = reply
        return QueueMetrics(
            float(clock),
            {text_of(pairs[i]): int(pairs[i + 1]) for i in range(0, len(pairs), 2)},
            float(due) if due else None,
            float(window),
            {text_of(ticks[i]): float(ticks[i + 1]) for i in range(0, len(ticks), 2)},
        )

    return make("metrics", keys, now, (), (), parse)


def show(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[Job | None]]:
    """All that is kept of jobs; None for one that never existed or left nothing."""

    def parse(reply: Any) -> list[Job | None]:
        return [parse_job(keys.queue, ulid, *item) for ulid, item in zip(ulids, reply, strict=True)]

    return make("show", keys, now, (), ulids, parse)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended; opaque to callers. Empty at the start."""

    box: str = ""
    score: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs without payloads, how many entries were looked at, and where to go on (None at the end)."""

    jobs: tuple[Job, ...]
    looked: int
    cursor: Cursor | None


def page(
    keys: QueueKeys,
    state: State,
    *,
    job_type: str = "",
    limit: int = 50,
    budget: int = 1000,
    cursor: Cursor | None = None,
    fingerprint: str = "",
    since: int | None = None,
    before: int | None = None,
    now: float | None = None,
) -> Call[Page]:
    """A page of the jobs of one state: waiting ones next first, ended ones newest first.

    ``since`` and ``before`` (ms) are about when an ended job ended, and when another was stored.
    """

    def parse(reply: Any) -> Page:
        names, rows, looked, box, score, last = reply
        go_on = Cursor(text_of(box), text_of(score), text_of(last)) if box else None
        return Page(_rows(keys.queue, names, rows), int(looked), go_on)

    at = cursor or Cursor()
    stretch = ("" if since is None else since, "" if before is None else before)
    fixed = (state.value, job_type, limit, budget, at.box, at.score, at.id, fingerprint, *stretch)
    return make("page", keys, now, fixed, (), parse)


def _object(data: bytes, name: str = "message") -> dict[str, Any]:
    """The object that was stored; whatever else stands there is text under ``name``."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    text = value if isinstance(value, str) else data.decode(errors="replace")
    return {name: text[:10_000]}


def _number(value: bytes) -> int | None:
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        # Spoilt by hand: the rest of the job is shown all the same, and doctor names the field.
        return None


def _count(value: bytes) -> int:
    return _number(value) or 0


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _as_it_is(value: bytes) -> bytes:
    return value


def _there(_: bytes) -> bool:
    return True


_STATES = {state.value.encode(): state for state in State}
_FIELDS: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"state": ("state", _STATES.get),
    b"type": ("job_type", _text),
    b"priority": ("priority", _count),
    b"payload": ("payload", _as_it_is),
    b"result": ("result", _as_it_is),
    b"error": ("error", _object),
    b"reason": ("reason", _text),
    b"progress": ("progress", _object),
    b"attempts": ("attempts", _count),
    b"failures": ("failures", _count),
    b"crashes": ("crashes", _count),
    b"lost": ("lost", _count),
    b"max_attempts": ("max_attempts", _number),
    b"timeout_ms": ("timeout_ms", _number),
    b"unique": ("unique_key", _text),
    b"worker": ("worker", _text),
    b"fence": ("fence", _number),
    b"cancel": ("cancel_requested", _there),
    b"created_at": ("created_at", _number),
    b"eligible_at": ("eligible_at", _number),
    b"started_at": ("started_at", _number),
    b"finished_at": ("finished_at", _number),
    b"expires_at": ("expires_at", _number),
    b"retried_from": ("retried_from", _text),
    b"fingerprint": ("fingerprint", _text),
    b"stub": ("stub", _there),
}
"""By field of the hash: the attribute, and how to read it. What a row does not carry costs nothing."""
_DEFAULTS: dict[str, Any] = {
    "job_type": "",
    **{its.name: its.default for its in fields(Job) if its.default is not MISSING},
}


def parse_job(queue: str, ulid: str, fields: Any, history: Any, log: Any) -> Job | None:
    """A job out of its fields and lines; None for no job. Raises ``BrokenKey`` if its state is none."""
    if not fields:
        return None
    stored = zip(fields[::2], fields[1::2], strict=True)
    known = {_FIELDS[name][0]: _FIELDS[name][1](value) for name, value in stored if name in _FIELDS}
    return _job(queue, ulid, known, history, log)


def _job(
    queue: str,
    ulid: str,
    known: dict[str, Any],
    history: Sequence[bytes] = (),
    log: Sequence[bytes] = (),
) -> Job:
    """A job out of its attributes, as far as they are stored."""
    state = known.get("state")
    if state is None:
        raise BrokenKey(f"job {queue}:{ulid} is not readable: run `taskq doctor`")
    if state is State.SUCCEEDED and "result" not in known and "stub" not in known:
        # A result of null is not written: an ended job without the field returned nothing.
        known["result"] = b"null"
    known["eligible_at"] = known.get("eligible_at") or known.get("created_at")
    known.setdefault("job_type", "")
    return Job(
        id=f"{queue}:{ulid}",
        queue=queue,
        ulid=ulid,
        history=tuple(map(_object, history)),
        log=tuple(_object(line, "line") for line in log),
        **known,
    )


def _rows(queue: str, names: Sequence[bytes], rows: Sequence[Sequence[Any]]) -> tuple[Job, ...]:
    """The jobs of a page, read by columns: no value of a row costs a call of its own."""
    if not rows:
        return ()
    *stored, ids = zip(*rows, strict=True)
    columns: dict[str, Iterable[Any]] = {
        attribute: _column(values, read, _DEFAULTS.get(attribute))
        for (attribute, read), values in zip(map(_FIELDS.__getitem__, names), stored, strict=True)
    }
    columns["queue"] = repeat(queue)
    columns["ulid"] = ulids = [text_of(ulid) for ulid in ids]
    columns["id"] = [f"{queue}:{ulid}" for ulid in ulids]
    times = zip(ids, columns["eligible_at"], columns["created_at"], strict=False)
    columns["eligible_at"] = [eligible or created for _, eligible, created in times]
    attributes = tuple(columns)
    return tuple(
        _made(dict(zip(attributes, values, strict=True)))
        for values in zip(*columns.values(), strict=False)
    )


def _made(attributes: dict[str, Any]) -> Job:
    """``Job(**attributes)`` at a tenth of the cost, as ``copy`` makes one: what is left out is the class's.

    So many fields take a frozen dataclass longer to set than it takes to read them.
    """
    job = object.__new__(Job)
    job.__dict__.update(attributes)
    return job


def _column(values: Sequence[Any], read: Callable[[bytes], Any], default: Any) -> Iterable[Any]:
    """What one field holds in all rows, with ``default`` where it is not stored."""
    if values.count(None) == len(values):
        return repeat(default)
    if read in (_count, _number):
        try:
            return [default if value is None else int(value) for value in values]
        except ValueError:
            pass
    return [default if value is None else read(value) for value in values]


def check(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[tuple[str, str]]]:
    """Findings (ulid, what is wrong) for ids that do not stand in the one place their state names."""

    def parse(reply: Any) -> list[tuple[str, str]]:
        return [(text_of(reply[i]), text_of(reply[i + 1])) for i in range(0, len(reply), 2)]

    return make("check", keys, now, (), ulids, parse)


def errors(
    keys: QueueKeys, fingerprint: str = "", *, now: float | None = None
) -> Call[list[ErrorGroup]]:
    """The kinds of failures of a queue, the latest first; or the one that is named."""

    def parse(reply: Any) -> list[ErrorGroup]:
        return [_error_group(keys.queue, text_of(name), pairs) for name, pairs in reply]

    return make("errors", keys, now, (fingerprint,), (), parse)


def _error_group(queue: str, fingerprint: str, pairs: Any) -> ErrorGroup:
    f = {text_of(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)}

    def number(name: str) -> int:
        text = f.get(name, b"")
        return int(text) if text.isdigit() else 0

    return ErrorGroup(
        fingerprint=fingerprint,
        queue=queue,
        job_type=text_of(f.get("job_type", b"")),
        signature=text_of(f.get("signature", b"")),
        error=_object(f["error"]) if "error" in f else None,
        count=number("count"),
        failed=number("failed"),
        first_at=number("first_at"),
        last_at=number("last_at"),
        job_id=f"{queue}:{text_of(f.get('job', b''))}",
    )


def position(keys: QueueKeys, ulid: str, *, now: float | None = None) -> Call[Place]:
    """Where a job stands, and how many stand before it by type."""

    def parse(reply: Any) -> Place:
        clock, fields, place, lines, aging, paused, paused_types = reply
        job = parse_job(keys.queue, ulid, fields, (), ())
        return Place(
            now=float(clock),
            job=job,
            score=float(place) if place else None,
            before={text_of(name): int(n) for name, n in lines},
            aging_ms=int(aging),
            paused=bool(paused),
            paused_types=tuple(text_of(paused_types).split()),
        )

    return make("position", keys, now, (ulid,), (), parse)
