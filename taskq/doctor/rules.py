"""The doctor's rules, without a connection: what is right, what is wrong, and what to do about it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from taskq.calls import Repair
from taskq.inspector import how_to_serve
from taskq.model import QueueInfo
from taskq.server import ServerReport
from taskq.states import TERMINAL, State

Severity = Literal["error", "warning", "info"]
Lifetime = Literal["for good", "for a time", "either"]
Verdict = tuple[Severity, str, str]
"""Severity, what is wrong, what to do."""

OVERDUE_MS = 60_000
"""Due for so long and still there: nobody promotes, reaps or expires."""
UNSERVED_MS = 300_000
"""So long a job may wait for a worker to be started for its type, as in a deployment."""
OLDEST_MARK_MS = 3_600_000
"""So long a dead worker is remembered."""
SET_ASIDE_MS = 30 * 86_400_000
"""So long a key that doctor put aside is kept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong (``error``), may become so (``warning``), or is good to know (``info``).

    ``queue`` is '' for the server and for what all queues share; ``subject`` names the key or job. ``fix`` is
    what ``doctor --fix`` would do about it or, where ``fixed``, has done; '' for what it leaves to people.
    """

    severity: Severity
    queue: str
    subject: str
    message: str
    advice: str = ""
    fix: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """What a key of one pattern has to be, and the time to live for one that should have it."""

    type: str
    lives: Lifetime = "for good"
    ttl_ms: int = 0


KINDS: Mapping[str, Kind] = {
    "job:": Kind("hash", "either"),
    "history:": Kind("list", "either"),
    "log:": Kind("list", "either"),
    "ready:": Kind("zset"),
    "lines": Kind("set"),
    "scheduled": Kind("zset"),
    "retrying": Kind("zset"),
    "blocked": Kind("zset"),
    "later": Kind("zset"),
    "processing:": Kind("list"),
    "leases": Kind("zset"),
    "holders": Kind("hash"),
    "dead": Kind("zset"),
    "lease:": Kind("hash", "for a time", 600_000),
    "lease-key:": Kind("string", "for a time", 600_000),
    "deadlines": Kind("zset"),
    "cancelling": Kind("set"),
    "succeeded": Kind("zset"),
    "failed": Kind("zset"),
    "cancelled": Kind("zset"),
    "stubs:": Kind("zset"),
    "expiring": Kind("zset"),
    "unique:": Kind("string"),
    "wake:": Kind("list", "for a time", 60_000),
    "control:": Kind("list", "for a time", 60_000),
    "config": Kind("hash"),
    "ticks": Kind("hash"),
    "totals": Kind("hash"),
    "stats:": Kind("hash", "for a time", 10_800_000),
    "stats10:": Kind("hash", "for a time", 172_800_000),
    "counters": Kind("hash"),
    "events": Kind("stream", "either"),
    "errors": Kind("zset"),
    "error:": Kind("hash", "for a time", 2_592_000_000),
    "bulks": Kind("zset"),
    "bulks-ended": Kind("zset"),
    "bulk:": Kind("hash", "either"),
    "quarantine": Kind("hash"),
    "set-aside:": Kind("any", "for a time", SET_ASIDE_MS),
}
"""Every key of a queue, by its first word: the table of ``taskq.keys`` (a test compares the two)."""

SHARED_KINDS: Mapping[str, Kind] = {
    "queues": Kind("set"),
    "workers": Kind("zset"),
    "worker:": Kind("hash", "for a time"),
    "types": Kind("hash"),
    "schema": Kind("hash"),
    "keys": Kind("hash"),
    "keys:": Kind("hash"),
    "rate:": Kind("string", "for a time", 3_600_000),
    "audit": Kind("stream"),
}
"""The same for the keys outside the queues."""

_LOOK = "look at it with redis-cli: it should be"
MISPLACED = "taskq did not do this by itself: was the data edited, evicted or partly restored?"
ENTER = "enter the queue in the registry"
REMEDIES: Mapping[str, str] = {
    "key": "set the key aside for 30 days, as set-aside:<name>",
    "lasting": "take its time to live away",
    "passing": "give it a time to live",
    "member": "take it out, and keep it in quarantine",
    "line": "put `lines` in step with the lines",
    "worker": "put lease, holder and mark of death in step with the list",
    "misplaced": "put it where its state says; a run that nobody can report is queued again, as lost",
    "entry": "take the entry out; a job goes where its state says",
    "lock": "delete the lock",
    "attached": "delete the key",
    "setting": "clear the setting, so that its default holds",
}
"""What ``repair.lua`` does, by the kind of the repair."""
NO_JANITOR = "is a worker, an API process or `taskq janitor` running?"


def server_findings(report: ServerReport) -> list[Finding]:
    """A server's report in the words of the doctor."""
    name = f"{report.flavour} {report.version}"
    found = [Finding("error", "", name, problem) for problem in report.problems]
    found += [Finding("warning", "", name, warning) for warning in report.warnings]
    if report.unknown:
        message = f"unknown, since the server does not tell: {', '.join(report.unknown)}"
        found.append(Finding("info", "", name, message, "check these with your provider"))
    return found


def kind_of(name: str) -> str:
    """``"ready:mail"`` -> ``"ready:"``: the pattern that a key belongs to."""
    word, colon, _ = name.partition(":")
    return word + colon


def judge_key(kinds: Mapping[str, Kind], name: str, of_type: str, ttl: int) -> list[Verdict]:
    """Of one key, by its type and its ms to live (-1: none, -2: gone)."""
    kind = kinds.get(kind_of(name))
    if of_type == "none" or ttl == -2:
        return []
    if kind is None or (kind_of(name) == "stubs:" and name[6:] not in TERMINAL):
        return [
            ("warning", "no part of taskq owns this key", "delete it if you know it is not needed")
        ]
    if kind.type not in (of_type, "any"):
        message = f"is a {of_type}, not a {kind.type}: what needs it is refused"
        return [("error", message, f"{_LOOK} a {kind.type}; rename the key, then look at the jobs")]
    if kind.lives == "for good" and ttl != -1:
        return [("error", "will vanish: it has a time to live", "PERSIST the key with redis-cli")]
    if kind.lives == "for a time" and ttl == -1:
        return [
            ("warning", "has no time to live, so that it would stay for ever", "delete the key")
        ]
    return []


def repair_of_key(kinds: Mapping[str, Kind], name: str, of_type: str, ttl: int) -> Repair | None:
    """What to do about a key of which ``judge_key`` has found something."""
    kind = kinds.get(kind_of(name))
    if kind is None or (kind_of(name) == "stubs:" and name[6:] not in TERMINAL):
        return None
    if kind.type not in (of_type, "any"):
        return Repair("key", name, kind.type, name)
    if ttl != -1:
        return Repair("lasting", name)
    return Repair("passing", name, str(kind.ttl_ms))


def whole(state: str | None, of_type: str | None, stub: str | None) -> bool:
    """Whether a hash with these fields is a job (or the stub of one) that can be placed."""
    if state in TERMINAL:
        return True
    return state in set(State) and bool(of_type) and not stub


def misplaced(
    name: str,
    state: str | None,
    of_type: str | None,
    worker: str | None,
    stub: str | None,
    expires: str | None,
) -> str | None:
    """What is wrong about a job with these fields standing in this container.

    Only what ``calls.check`` cannot see: it looks a job up where its fields point, not everywhere.
    """
    kind, _, rest = name.partition(":")
    if kind == "stubs":
        if state is None or (stub and state == rest):
            return None
        return f"stands in {name}, but its job is {state} and would be deleted as a stub"
    if state is None or stub:
        return f"stands in {name}, but there is no such job"
    if kind == "expiring" and state not in TERMINAL and not expires:
        return f"stands in {name}, but is {state} and does not expire"
    if kind == "ready" and of_type != rest:
        return f"stands in {name}, but is a {state} job of type {of_type}"
    if kind == "processing" and worker != rest:
        of_worker = f"one of {worker}" if worker else "no run of anybody"
        return f"stands in {name}, but is {state} and {of_worker}"
    return None


def judge_worker(now: float, held: int, lease: Any, holder: int, death: Any) -> list[Verdict]:
    """Of a worker, by the length of its list, its lease, its entry in holders and its mark of death."""
    if held:
        return _judge_holder(now, held, lease, holder, death)
    found: list[Verdict] = []
    if holder and lease is None:
        found.append(("warning", "is in holders, but has neither jobs nor a lease", NO_JANITOR))
    if death is not None and float(death) < now - OLDEST_MARK_MS - OVERDUE_MS:
        found.append(("warning", "was marked dead long ago and is still remembered", NO_JANITOR))
    if death is not None and float(death) > now + OVERDUE_MS:
        found.append(("warning", "is marked dead as of a time that lies ahead", ""))
    return found


def judge_waiting(info: QueueInfo, unserved: Collection[str]) -> list[tuple[str, Verdict]]:
    """(what, verdict) of what waits in a queue for somebody to do something: a worker, or the end of a
    pause."""
    paused_types = info.settings.get("paused_types", "").split()
    found: list[tuple[str, Verdict]] = []
    waiting = sum(line.waiting for line in info.types)
    if info.settings.get("paused") == "1" and waiting:
        advice = f"taskq queues resume {info.name}"
        found.append(("queue", ("info", f"is paused, and {_wait(waiting)}", advice)))
    for line in info.types:
        if line.job_type in paused_types:
            advice = f"taskq queues resume {info.name} --type {line.job_type}"
            message = f"the type is paused, and {_wait(line.waiting)}"
            found.append((f"ready:{line.job_type}", ("info", message, advice)))
        if line.job_type in unserved:
            waited = 0 if line.head_since is None else info.now - line.head_since
            severity: Severity = "warning" if waited > UNSERVED_MS else "info"
            message = f"{_wait(line.waiting)}, and no live worker runs this type"
            verdict = (severity, message, how_to_serve(info.name))
            found.append((f"ready:{line.job_type}", verdict))
    return found


def _wait(n: int) -> str:
    return f"{_jobs(n)} {'waits' if n == 1 else 'wait'}"


def overdue(n: int) -> str:
    """Of jobs that nobody has moved."""
    return f"{_jobs(n)} {'has' if n == 1 else 'have'} been due for a minute"


def _jobs(n: int) -> str:
    return "1 job" if n == 1 else f"{n} jobs"


def _judge_holder(now: float, held: int, lease: Any, holder: int, death: Any) -> list[Verdict]:
    found: list[Verdict] = []
    if not holder:
        message = f"holds {_jobs(held)}, but its worker is not in holders: no janitor finds them"
        found.append(("error", message, MISPLACED))
    if lease is None:
        message = (
            f"holds {_jobs(held)} without a lease: the janitor gives it one, then takes them back"
        )
        found.append(("warning", message, NO_JANITOR))
    else:
        # A lease of 0 is being taken back, page by page, since the worker was marked dead.
        since = float(lease) or float(death or now)
        if since < now - OVERDUE_MS:
            message = (
                f"holds {_jobs(held)} although its lease ran out {(now - since) / 1000:.0f} s ago"
            )
            found.append(("warning", message, NO_JANITOR))
    return found
