"""The protocol without a socket: what to send for each transition, and what an answer means.

A function here checks its arguments, and returns a ``Call``: a script, its key, its arguments and a
parser. ``taskq.store`` carries calls over a connection, sync or async; nothing else talks to scripts.
Every call may be sent again after a lost answer (see the scripts' contracts).
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from taskq import lua
from taskq.codec import MAX_BYTES
from taskq.errors import BrokenKey, InvalidInput, PayloadTooLarge
from taskq.ids import check_job_type, check_key
from taskq.keys import QueueKeys
from taskq.model import (
    Beat,
    Claimed,
    ClaimReply,
    Enqueued,
    Job,
    JobSpec,
    QueueInfo,
    Reaped,
    Reconciled,
    TypeDepth,
)
from taskq.ordering import AGING_MS_MAX, PRIORITY_MAX, PRIORITY_MIN
from taskq.states import State

T = TypeVar("T")
Arg = bytes | str | int | float

PROTOCOL = 1
"""Version of the worker's side. A queue may ask for a higher one (``min_protocol`` in its config)."""

MAX_ITEMS = 1000
"""Most jobs in one submission call."""

MAX_CRASHES = 3
"""Crashes that fail a job. After its first a job is a suspect and runs in a process of its own, so the
others are its own doing; a neighbour of a culprit has one at most of each such meeting."""
MAX_LOST = 10
"""Leases that may run out over a job. From the third on it is a suspect too."""

TEN_YEARS_MS = 315_360_000_000


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call: ``args`` follow the single key ``prefix``; ``parse`` turns the reply into values.

    ``again`` makes the call to send when this one's answer was lost, where that is not the same one.
    """

    script: lua.Script
    prefix: str
    args: Sequence[Arg]
    parse: Callable[[Any], T]
    again: Callable[[], "Call[T]"] | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed: retry after ``delay_ms`` unless failures reach ``max_attempts`` (0: no retry).

    ``error`` is JSON text.
    """

    ulid: str
    fence: str
    error: bytes
    delay_ms: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Success:
    """A run that succeeded. ``result`` is JSON text, ``result_ttl_ms`` None keeps it as retention says."""

    ulid: str
    fence: str
    result: bytes
    result_ttl_ms: int | None = None
    keep_payload: bool = False


def _now(now: float | None) -> str:
    """Only tests pass a time; '' makes the script read the server's clock."""
    return "" if now is None else repr(float(now))


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _words(reply: Any) -> list[str]:
    return [_text(word[0] if isinstance(word, list) else word) for word in reply]


def _call(
    name: str,
    keys: QueueKeys,
    now: float | None,
    fixed: Iterable[Arg],
    items: Iterable[Arg],
    parse: Callable[[Any], T],
) -> Call[T]:
    return Call(lua.load(name), keys.prefix, [_now(now), *fixed, *items], parse)


_WORKER = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")
_WORD = re.compile(r"[ !#-\[\]-~]{1,200}\Z")


def check_worker(worker: object) -> str:
    """A worker's id, which the scripts write into JSON: 1 to 200 letters, digits, ``. _ : -``.

    Raises ``InvalidInput``.
    """
    if not isinstance(worker, str) or not _WORKER.match(worker):
        raise InvalidInput(
            f"worker {ascii(worker)[:60]} is no id: 1 to 200 letters, digits, '.', '_', ':' or '-'",
            field="worker",
        )
    return worker


def check_word(text: object, field: str) -> str:
    """Words of ours, which the scripts write into JSON: printable ASCII, no double quote or backslash.

    Raises ``InvalidInput``.
    """
    if not isinstance(text, str) or not _WORD.match(text):
        raise InvalidInput(
            f"{field} {ascii(text)[:60]} must be 1 to 200 printable ASCII characters "
            "without double quotes and backslashes",
            field=field,
        )
    return text


# --- submission -------------------------------------------------------------------------------------


def check_spec(spec: JobSpec, max_bytes: int = MAX_BYTES) -> None:
    """Refuses what must not be stored. Raises ``InvalidInput`` naming the field."""
    check_job_type(spec.job_type)
    check_priority(spec.priority)
    if len(spec.payload) > max_bytes:
        raise PayloadTooLarge(
            f"payload is {len(spec.payload)} bytes, the limit is {max_bytes}", field="payload"
        )
    if spec.unique is not None:
        check_key(spec.unique, "unique_key")
    if spec.delay_ms is not None and spec.run_at_ms is not None:
        raise InvalidInput("give delay or run_at, not both", field="delay")
    for field, value, low, high in (
        ("delay", spec.delay_ms, 0, TEN_YEARS_MS),
        ("run_at", spec.run_at_ms, 0, 4_102_444_800_000 + TEN_YEARS_MS),
        ("expires", spec.expires_ms, 1, TEN_YEARS_MS),
        ("max_attempts", spec.max_attempts, 1, 1_000_000),
        ("timeout", spec.timeout_ms, 0, TEN_YEARS_MS),
        ("result_ttl", spec.result_ttl_ms, 0, TEN_YEARS_MS),
    ):
        number: object = value
        if number is not None and (type(number) is not int or not low <= number <= high):
            raise InvalidInput(f"{field} must be a whole number from {low} to {high}", field=field)


def check_priority(priority: object) -> int:
    """An integer from -100 to 100; higher is sooner. Raises ``InvalidInput``."""
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not PRIORITY_MIN <= priority <= PRIORITY_MAX
    ):
        raise InvalidInput(
            f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX} (higher is sooner), "
            f"not {priority!r}",
            field="priority",
        )
    return priority


_OPTIONS = (
    "delay_ms",
    "run_at_ms",
    "expires_ms",
    "expires_at_ms",
    "unique",
    "digest",
    "max_attempts",
    "timeout_ms",
    "result_ttl_ms",
    "keep_payload",
    "retried_from",
    "check",
)


def _options(spec: JobSpec) -> str:
    options = {
        name: value
        for name in _OPTIONS
        if (value := getattr(spec, name)) is not None and value is not False
    }
    return json.dumps(options, separators=(",", ":")) if options else ""


def enqueue(
    keys: QueueKeys, specs: Sequence[JobSpec], *, now: float | None = None
) -> Call[list[Enqueued]]:
    """Stores up to 1,000 jobs of one queue; ``spec.id`` is the ULID alone. One outcome per job."""
    if not 1 <= len(specs) <= MAX_ITEMS:
        raise InvalidInput(f"1 to {MAX_ITEMS} jobs a call, not {len(specs)}", field="jobs")
    items: list[Arg] = []
    for spec in specs:
        items += (spec.id, spec.job_type, spec.payload, spec.priority, _options(spec))
    call = _call("enqueue", keys, now, (), items, _parse_enqueued)
    if all(spec.check for spec in specs):
        return call
    # A repeat may meet jobs that have come and gone since: it must look at their stubs too.
    return replace(
        call, again=lambda: enqueue(keys, [replace(spec, check=True) for spec in specs], now=now)
    )


def _parse_enqueued(reply: Any) -> list[Enqueued]:
    out = []
    for item in reply:
        if isinstance(item, list):
            word, detail = _text(item[0]), _text(item[1])
            out.append(
                Enqueued(word, State(detail)) if word == "EXISTS" else Enqueued(word, holder=detail)
            )
        else:
            word = _text(item)
            state = State(word.lower()) if word in ("QUEUED", "SCHEDULED") else None
            out.append(Enqueued(word, state))
    return out


# --- a worker's calls -------------------------------------------------------------------------------


def claim(
    keys: QueueKeys,
    worker: str,
    call: int,
    most: int,
    job_types: Sequence[str],
    *,
    lease_ms: int,
    upper: float | None = None,
    max_bytes: int = MAX_BYTES,
    now: float | None = None,
) -> Call[ClaimReply]:
    """Takes up to ``most`` jobs of ``job_types``; ``most = 0`` only looks.

    ``call`` numbers this worker's claims, from 1 up. Send it again with the same number until an answer
    arrives; only then use the next. Raises ``BrokenKey`` when parsed: nothing was taken then.
    """
    fixed = (
        check_worker(worker),
        call,
        most,
        "" if upper is None else repr(upper),
        lease_ms,
        max_bytes,
        PROTOCOL,
    )
    return _call("claim", keys, now, fixed, job_types, _parse_claim)


def _optional_int(value: Any) -> int | None:
    return int(value) if value else None


def _parse_claim(reply: Any) -> ClaimReply:
    status = _text(reply[0])
    if status == "BROKEN_KEY":
        raise BrokenKey(f"the key {_text(reply[1])!r} has the wrong type: run `taskq doctor`")
    if status != "OK":
        return ClaimReply(status)
    _, now, head, due, repeated, jobs = reply
    return ClaimReply(
        "OK",
        float(now),
        float(head) if head else None,
        float(due) if due else None,
        bool(repeated),
        _parse_jobs(jobs),
    )


def _parse_jobs(jobs: Any) -> tuple[Claimed, ...]:
    try:
        return tuple([_parse_claimed(job) for job in jobs])
    except ValueError:
        # A job whose numbers were spoilt in Redis must not keep its neighbours from their worker.
        return tuple(
            [_parse_claimed([*job[:4], *(_number(value) for value in job[4:])]) for job in jobs]
        )


def _number(value: bytes) -> bytes:
    return value if value.lstrip(b"-").isdigit() else b"0" if value else b""


def _parse_claimed(v: Any) -> Claimed:
    return Claimed(
        v[0].decode(),
        v[1].decode(),
        v[2].decode(),
        v[3],
        int(v[4]),
        int(v[5]),
        int(v[6]),
        int(v[7]),
        _optional_int(v[8]),
        int(v[9]) if v[9] else None,
        int(v[10]),
        int(v[11]),
        int(v[12]) if v[12] else None,
    )


def finish(
    keys: QueueKeys, worker: str, successes: Sequence[Success], *, now: float | None = None
) -> Call[list[str]]:
    """Reports successes; one word per item (see ``finish.lua``)."""
    items: list[Arg] = []
    for s in successes:
        ttl = "" if s.result_ttl_ms is None else s.result_ttl_ms
        items += (s.ulid, s.fence, s.result, ttl, 1 if s.keep_payload else 0)
    return _call("finish", keys, now, (check_worker(worker),), items, _words)


def fail(
    keys: QueueKeys, worker: str, failures: Sequence[Failure], *, now: float | None = None
) -> Call[list[str]]:
    """Reports failures; one word per item (see ``fail.lua``)."""
    items: list[Arg] = []
    for f in failures:
        items += (f.ulid, f.fence, f.error, f.delay_ms, f.max_attempts)
    return _call("fail", keys, now, (check_worker(worker),), items, _words)


def crash(
    keys: QueueKeys,
    worker: str,
    runs: Sequence[tuple[str, str, str]],
    *,
    max_crashes: int = MAX_CRASHES,
    now: float | None = None,
) -> Call[list[str]]:
    """Reports runs (ulid, fence, reason in our words) whose own process died; one word per item."""
    items = [x for ulid, fence, reason in runs for x in (ulid, fence, check_word(reason, "reason"))]
    return _call("crash", keys, now, (check_worker(worker), max_crashes), items, _words)


def release(
    keys: QueueKeys,
    worker: str,
    runs: Sequence[tuple[str, str]],
    reason: str,
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Hands runs (ulid, fence) back; one word per item. ``reason`` is a word of ours, never user text."""
    fixed = (check_worker(worker), check_word(reason, "reason"))
    return _call("release", keys, now, fixed, [x for run in runs for x in run], _words)


def snooze(
    keys: QueueKeys, worker: str, runs: Sequence[tuple[str, str, int]], *, now: float | None = None
) -> Call[list[str]]:
    """Puts runs (ulid, fence, delay_ms) off; one word per item."""
    fixed = (check_worker(worker),)
    return _call("snooze", keys, now, fixed, [x for run in runs for x in run], _words)


def heartbeat(
    keys: QueueKeys, workers: Sequence[tuple[str, int, int]], *, now: float | None = None
) -> Call[list[Beat]]:
    """Renews the leases of workers (id, lease_ms, jobs held); one answer each."""

    def parse(reply: Any) -> list[Beat]:
        return [
            Beat(_text(r[0]), int(r[1]) if len(r) > 1 else 0, tuple(_text(i) for i in r[2:]))
            for r in reply
        ]

    items = [
        x for worker, lease_ms, held in workers for x in (check_worker(worker), lease_ms, held)
    ]
    return _call("heartbeat", keys, now, (), items, parse)


def reconcile(
    keys: QueueKeys,
    worker: str,
    answered: int,
    held: Sequence[tuple[str, str]],
    *,
    now: float | None = None,
) -> Call[Reconciled]:
    """Says which runs (ulid, fence) the worker holds; ``answered`` is its last answered claim."""

    def parse(reply: Any) -> Reconciled:
        status = _text(reply[0])
        if status != "OK":
            return Reconciled(status)
        return Reconciled(status, int(reply[1]), tuple(_text(i) for i in reply[2]))

    fixed = (check_worker(worker), answered)
    return _call("reconcile", keys, now, fixed, [x for run in held for x in run], parse)


def progress(
    keys: QueueKeys,
    worker: str,
    items: Sequence[tuple[str, str, bytes]],
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Notes how far runs (ulid, fence, JSON) are; one word per item."""
    fixed = (check_worker(worker),)
    return _call("progress", keys, now, fixed, [x for item in items for x in item], _words)


def log(
    keys: QueueKeys,
    worker: str,
    items: Sequence[tuple[str, str, int, bytes]],
    *,
    now: float | None = None,
) -> Call[list[str]]:
    """Appends log lines (ulid, fence, seq, JSON); one word per item.

    ``seq`` numbers the lines of a run, from 1 up, gaps allowed: a line whose number was stored already is
    answered OK and not appended again.
    """
    for _, _, seq, _ in items:
        if type(seq) is not int or not 0 < seq < 1 << 53:
            raise InvalidInput(f"seq must be a whole number from 1 up, not {seq!r}", field="seq")
    fixed = (check_worker(worker),)
    return _call("log", keys, now, fixed, [x for item in items for x in item], _words)


# --- the janitor's ----------------------------------------------------------------------------------


def reap(
    keys: QueueKeys,
    *,
    lease_ms: int,
    limit: int = 200,
    amnesty: bool = False,
    targets: Sequence[tuple[str, Literal["crashes", "lost", "none"], str]] = (),
    max_crashes: int = MAX_CRASHES,
    max_lost: int = MAX_LOST,
    now: float | None = None,
) -> Call[Reaped]:
    """Takes back the jobs of expired leases, or of ``targets`` (worker, counter, reason in our words)."""

    def parse(reply: Any) -> Reaped:
        return Reaped(_text(reply[0]), bool(reply[1]), *(int(n) for n in reply[2:]))

    items: list[Arg] = []
    for worker, counter, reason in targets:
        if counter not in ("crashes", "lost", "none"):
            raise InvalidInput(f"no counter {counter!r}", field="counter")
        items += (check_worker(worker), counter, check_word(reason, "reason"))
    fixed = (limit, lease_ms, 1 if amnesty else 0, max_crashes, max_lost)
    return _call("reap", keys, now, fixed, items, parse)


def promote(keys: QueueKeys, limit: int = 1000, *, now: float | None = None) -> Call[int]:
    """Moves due jobs to their lines; answers how many."""
    return _call("promote", keys, now, (limit,), (), lambda reply: int(reply[0]))


def expire(
    keys: QueueKeys, limit: int = 200, *, now: float | None = None
) -> Call[tuple[int, int, bool]]:
    """Ends what expired: (jobs ended, results dropped, more)."""
    return _call("expire", keys, now, (limit,), (), lambda r: (int(r[0]), int(r[1]), bool(r[2])))


def trim(
    keys: QueueKeys, limit: int = 500, squeeze: int = 0, *, now: float | None = None
) -> Call[tuple[int, int, bool]]:
    """Applies retention: (jobs dropped, stubs dropped, more). ``squeeze`` 1 to 4 drops early."""
    return _call(
        "trim", keys, now, (limit, squeeze), (), lambda r: (int(r[0]), int(r[1]), bool(r[2]))
    )


def rollup(keys: QueueKeys, *, now: float | None = None) -> Call[int]:
    """Sums finished minutes of statistics into ten-minute hashes; answers how many were written."""
    return _call("rollup", keys, now, (), (), int)


# --- the operator's ---------------------------------------------------------------------------------


def cancel(
    keys: QueueKeys, ulids: Sequence[str], reason: str = "cancelled", *, now: float | None = None
) -> Call[list[tuple[str, State | None]]]:
    """Cancels, or asks running jobs to stop: (word, state of an ended job) each."""
    return _call("cancel", keys, now, (reason,), ulids, _words_with_state)


def _words_with_state(reply: Any) -> list[tuple[str, State | None]]:
    return [
        (_text(item[0]), State(_text(item[1]))) if isinstance(item, list) else (_text(item), None)
        for item in reply
    ]


def retry(
    keys: QueueKeys, jobs: Sequence[tuple[str, str]], *, now: float | None = None
) -> Call[list[tuple[str, str | None]]]:
    """Queues failed jobs (ulid, fence seen or '') again: (word, state or holder of the unique key)."""

    def parse(reply: Any) -> list[tuple[str, str | None]]:
        return [
            (_text(i[0]), _text(i[1])) if isinstance(i, list) else (_text(i), None) for i in reply
        ]

    return _call("retry", keys, now, (), [x for job in jobs for x in job], parse)


def edit(
    keys: QueueKeys,
    edits: Sequence[tuple[str, int | None, int | None]],
    *,
    now: float | None = None,
) -> Call[list[tuple[str, State | None]]]:
    """Changes waiting jobs (ulid, priority, run_at_ms; None keeps): (word, state) each."""
    items: list[Arg] = []
    for ulid, priority, run_at_ms in edits:
        if priority is not None:
            check_priority(priority)
        items += (
            ulid,
            "" if priority is None else priority,
            "" if run_at_ms is None else run_at_ms,
        )
    return _call("edit", keys, now, (), items, _words_with_state)


def delete(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[tuple[str, State | None]]]:
    """Drops ended jobs: (word, state) each."""
    return _call("delete", keys, now, (), ulids, _words_with_state)


def purge(
    keys: QueueKeys,
    states: Sequence[State],
    *,
    job_type: str = "",
    limit: int = 500,
    page: int = 1,
    now: float | None = None,
) -> Call[tuple[int, int]]:
    """Cancels a page of waiting jobs: (how many, the next ``page``; 0 at the end)."""
    fixed = (limit, job_type, page)
    return _call("purge", keys, now, fixed, states, lambda r: (int(r[0]), int(r[1])))


SETTINGS: dict[str, tuple[int, int]] = {
    "aging_ms": (0, AGING_MS_MAX),
    "max_depth": (0, 1_000_000_000),
    "dedup_seconds": (1, 604_800),
    "dedup_max": (1000, 100_000_000),
    "succeeded_seconds": (0, 31_536_000),
    "succeeded_max": (0, 100_000_000),
    "succeeded_bytes": (0, 1_000_000_000_000),
    "failed_seconds": (0, 315_360_000),
    "failed_max": (0, 100_000_000),
    "failed_bytes": (0, 1_000_000_000_000),
    "cancelled_seconds": (0, 31_536_000),
    "cancelled_max": (0, 100_000_000),
    "cancelled_bytes": (0, 1_000_000_000_000),
}
"""Whole-number settings of a queue and their ranges; ``paused`` and ``paused_types`` come besides."""


def check_settings(changes: dict[str, Any]) -> dict[str, str]:
    """Settings as they are stored; None clears one. Raises ``InvalidInput`` naming the setting."""
    out: dict[str, str] = {}
    for name, value in changes.items():
        if value is None:
            out[name] = ""
        elif name == "paused":
            if not isinstance(value, bool):
                raise InvalidInput("paused must be true or false", field=name)
            out[name] = "1" if value else ""
        elif name == "paused_types":
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise InvalidInput("paused_types must be a list of job types", field=name)
            out[name] = " ".join(sorted({check_job_type(job_type) for job_type in value}))
        elif name in SETTINGS:
            low, high = SETTINGS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput(
                    f"{name} must be a whole number from {low} to {high}, not {value!r}", field=name
                )
            out[name] = str(value)
        else:
            known = ", ".join(["paused", "paused_types", *SETTINGS])
            raise InvalidInput(f"no setting {name!r}; there are {known}", field=name)
    return out


def configure(keys: QueueKeys, changes: dict[str, Any], *, now: float | None = None) -> Call[None]:
    """Sets (or with None clears) settings of a queue, pause and resume among them."""
    stored = check_settings(changes)
    return _call(
        "configure", keys, now, (), [x for pair in stored.items() for x in pair], lambda _: None
    )


def listen(keys: QueueKeys, until_ms: int, *, now: float | None = None) -> Call[None]:
    """Asks the scripts to write events until then."""
    return _call("configure", keys, now, (), ("listen_until", until_ms), lambda _: None)


def watch(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[State | None]]:
    """Asks that the end of jobs be published; answers their states now."""

    def parse(reply: Any) -> list[State | None]:
        return [State(_text(s)) if s else None for s in reply]

    return _call("watch", keys, now, (), ulids, parse)


# --- readers ----------------------------------------------------------------------------------------


def counts(keys: QueueKeys, *, now: float | None = None) -> Call[QueueInfo]:
    """One look at a queue; its cost grows with its waiting types and workers, not with its jobs."""

    def parse(reply: Any) -> QueueInfo:
        clock, pairs, types, settings = reply
        return QueueInfo(
            keys.queue,
            float(clock),
            {_text(pairs[i]): int(pairs[i + 1]) for i in range(0, len(pairs), 2)},
            tuple(TypeDepth(_text(t[0]), int(t[1]), _optional_int(t[2])) for t in types),
            {_text(settings[i]): _text(settings[i + 1]) for i in range(0, len(settings), 2)},
        )

    return _call("counts", keys, now, (), (), parse)


def show(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[Job | None]]:
    """All that is kept of jobs; None for one that never existed or left nothing."""

    def parse(reply: Any) -> list[Job | None]:
        return [
            _parse_job(keys.queue, ulid, *item) for ulid, item in zip(ulids, reply, strict=True)
        ]

    return _call("show", keys, now, (), ulids, parse)


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
    now: float | None = None,
) -> Call[Page]:
    """A page of the jobs of one state: waiting ones next first, ended ones newest first."""

    def parse(reply: Any) -> Page:
        rows, looked, box, score, last = reply
        jobs = [_parse_job(keys.queue, _text(row[0]), row[1:], (), ()) for row in rows]
        go_on = Cursor(_text(box), _text(score), _text(last)) if box else None
        return Page(tuple(job for job in jobs if job is not None), int(looked), go_on)

    at = cursor or Cursor()
    fixed = (state.value, job_type, limit, budget, at.box, at.score, at.id)
    return _call("page", keys, now, fixed, (), parse)


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


def _parse_job(queue: str, ulid: str, fields: Any, history: Any, log: Any) -> Job | None:
    if not fields:
        return None
    f = {_text(fields[i]): fields[i + 1] for i in range(0, len(fields), 2)}
    state = _text(f.get("state", b""))
    if state not in State.__members__.values():
        raise BrokenKey(f"job {queue}:{ulid} is not readable: run `taskq doctor`")

    def number(name: str) -> int | None:
        try:
            return int(float(f[name])) if name in f else None
        except (ValueError, OverflowError):
            # Spoilt by hand: the rest of the job is shown all the same, and doctor names the field.
            return None

    def text(name: str) -> str | None:
        return f[name].decode(errors="replace") if name in f else None

    return Job(
        id=f"{queue}:{ulid}",
        queue=queue,
        ulid=ulid,
        job_type=text("type") or "",
        state=State(state),
        priority=number("priority") or 0,
        payload=f.get("payload"),
        # A result of null is not written: an ended job without the field returned nothing.
        result=f.get("result", b"null" if state == "succeeded" and "stub" not in f else None),
        error=_object(f["error"]) if "error" in f else None,
        reason=text("reason"),
        progress=_object(f["progress"]) if "progress" in f else None,
        attempts=number("attempts") or 0,
        failures=number("failures") or 0,
        crashes=number("crashes") or 0,
        lost=number("lost") or 0,
        max_attempts=number("max_attempts"),
        timeout_ms=number("timeout_ms"),
        unique_key=text("unique"),
        worker=text("worker"),
        fence=number("fence"),
        cancel_requested="cancel" in f,
        created_at=number("created_at"),
        eligible_at=number("eligible_at") or number("created_at"),
        started_at=number("started_at"),
        finished_at=number("finished_at"),
        expires_at=number("expires_at"),
        retried_from=text("retried_from"),
        stub="stub" in f,
        history=tuple(_object(line) for line in history),
        log=tuple(_object(line, "line") for line in log),
    )


def check(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[tuple[str, str]]]:
    """Findings (ulid, what is wrong) for ids that do not stand in the one place their state names."""

    def parse(reply: Any) -> list[tuple[str, str]]:
        return [(_text(reply[i]), _text(reply[i + 1])) for i in range(0, len(reply), 2)]

    return _call("check", keys, now, (), ulids, parse)


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that doctor found wrong, for ``repair.lua`` to look at again and to put right.

    ``kind`` is the name of its function there, and says what the other three mean.
    """

    kind: Literal[
        "key",
        "lasting",
        "passing",
        "member",
        "line",
        "worker",
        "misplaced",
        "entry",
        "lock",
        "attached",
        "setting",
    ]
    name: str | bytes
    where: str = ""
    seen: str | bytes = ""


def repair(
    keys: QueueKeys,
    repairs: Sequence[Repair],
    *,
    lease_ms: int,
    max_lost: int = MAX_LOST,
    now: float | None = None,
) -> Call[list[str]]:
    """Puts right what is still wrong; what was done in words for each, '' for nothing."""
    items = [x for r in repairs for x in (r.kind, r.name, r.where, r.seen)]
    return _call("repair", keys, now, (lease_ms, max_lost), items, _words)


def delay_to_ms(seconds: float, field: str) -> int:
    """Seconds given by a user as whole milliseconds. Raises ``InvalidInput`` for NaN, negative, bool."""
    number: object = seconds
    if (
        isinstance(number, bool)
        or not isinstance(number, (int, float))
        or not math.isfinite(number)
    ):
        raise InvalidInput(f"{field} must be a number of seconds, not {seconds!r}", field=field)
    if seconds < 0 or seconds * 1000 > TEN_YEARS_MS:
        raise InvalidInput(
            f"{field} must be 0 to {TEN_YEARS_MS // 1000} seconds, not {seconds!r}", field=field
        )
    return math.ceil(seconds * 1000)
