"""Why is my job waiting? Where it stands, what keeps it there, and when it is likely to start.

A look costs one count in each line of the queue (see ``position.lua``) and the statistics of a few minutes,
however many jobs wait. What cannot be known is None, and says why.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from taskq.errors import JobNotFound
from taskq.ids import split_id
from taskq.inspector import Inspector, how_to_serve, serving
from taskq.model import Job, Place
from taskq.ordering import effective_priority
from taskq.registry import WorkerInfo
from taskq.states import TERMINAL, State

IN_TURN = ("next", "workers_busy", "running", "ended")
"""Reasons that need nothing to be done."""
ENDS = frozenset({"succeeded", "raised", "crashes"})
"""What is counted when a run ends, and its slot is free."""
RATE_MINUTES = 5
"""The stretch of the past from which the start is estimated."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a job waiting: a stable ``code``, what to do, and (ms) until when if known."""

    code: str
    message: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job stands. Times are ms since the epoch.

    ``reasons`` holds the first thing that has to change before all others. ``rank`` counts from 1 over all
    lines of the queue; ``ahead`` only those before it that somebody runs. ``estimate`` says what
    ``estimated_start`` rests on, or why it is None. ``per_minute`` are the runs that ended in the last
    minutes.
    """

    id: str
    state: State
    job_type: str
    reasons: tuple[Reason, ...]
    rank: int | None
    ahead: int | None
    priority: int
    effective_priority: float | None
    eligible_at: int | None
    estimated_start: int | None
    estimate: str
    per_minute: float
    workers: int
    free_slots: int

    @property
    def reason(self) -> Reason:
        return self.reasons[0]


async def position(look: Inspector, job_id: str) -> Position:
    """Where a job stands and why. Raises ``JobNotFound``, ``InvalidInput``."""
    queue, ulid = split_id(job_id)
    place = await look.place(queue, ulid)
    if place.job is None:
        job = await look.job(job_id)  # only its stub is left, or nothing
        return explain(Place(place.now, job, None, {}, place.aging_ms, False, ()), ())
    if place.job.state in TERMINAL or place.job.state is State.RUNNING:
        return explain(place, ())
    workers, rate = await asyncio.gather(
        look.workers(), look.rate(queue, RATE_MINUTES, ENDS, int(place.now))
    )
    return explain(place, workers, rate)


def explain(place: Place, workers: Sequence[WorkerInfo], rate: float = 0.0) -> Position:
    """The answer out of what was seen; ``workers`` are all live ones, ``rate`` the runs that end a minute."""
    job = place.job
    if job is None:
        raise JobNotFound("")
    active = serving(job.queue, workers)
    mine = [w for w in active if job.job_type in w.types]
    free = sum(max(0, w.slots - w.busy) for w in mine)
    served = {name for w in active for name in w.types} - set(place.paused_types)
    queued = job.state is State.QUEUED and place.score is not None
    ahead = sum(n for name, n in place.before.items() if name in served) if queued else None
    reasons = _reasons(job, place, bool(mine), free, ahead or 0)
    start, estimate = _estimate(job, place, reasons, free, ahead or 0, rate)
    waited = max(0.0, place.now - (job.eligible_at or place.now))
    return Position(
        id=job.id,
        state=job.state,
        job_type=job.job_type,
        reasons=reasons,
        rank=sum(place.before.values()) + 1 if queued else None,
        ahead=ahead,
        priority=job.priority,
        effective_priority=round(effective_priority(job.priority, waited, place.aging_ms), 2)
        if queued
        else None,
        eligible_at=job.eligible_at,
        estimated_start=start,
        estimate=estimate,
        per_minute=rate,
        workers=len(mine),
        free_slots=free,
    )


def _reasons(job: Job, place: Place, served: bool, free: int, ahead: int) -> tuple[Reason, ...]:
    if job.state in TERMINAL:
        return (Reason("ended", f"it has ended: {job.state}"),)
    if job.state is State.RUNNING:
        return (Reason("running", f"worker {job.worker} runs it"),)
    found = []
    due = None if place.score is None else int(place.score)
    if job.state is State.SCHEDULED:
        found.append(Reason("delayed", "it was put off until its time has come", due))
    elif job.state is State.RETRYING:
        again = f"failure {job.failures}: it runs again when its back-off ends"
        found.append(Reason("backoff", again, due))
    elif job.state is State.BLOCKED:
        found.append(Reason("blocked", "it waits for other jobs to end"))
    elif place.score is None:
        lost = "it stands in no line: run `taskq doctor --fix`"
        found.append(Reason("misplaced", lost))
    if place.paused:
        paused = f"queue {job.queue} is paused: taskq queues resume {job.queue}"
        found.append(Reason("paused", paused))
    if job.job_type in place.paused_types:
        resume = f"taskq queues resume {job.queue} --type {job.job_type}"
        found.append(Reason("paused_type", f"the type is paused: {resume}"))
    if not served:
        nobody = f"no live worker runs this type: {how_to_serve(job.queue)}"
        found.append(Reason("no_worker", nobody))
    if found:
        return tuple(found)
    if free > ahead:
        return (Reason("next", "a worker has a free slot: it starts now"),)
    busy = f"all slots are busy, and {ahead} jobs stand before it" if not free else ""
    return (Reason("workers_busy", busy or f"{ahead} jobs stand before it"),)


def _estimate(
    job: Job, place: Place, reasons: Sequence[Reason], free: int, ahead: int, rate: float
) -> tuple[int | None, str]:
    if job.state in TERMINAL or job.state is State.RUNNING:
        return None, "it waits no longer"
    codes = [reason.code for reason in reasons]
    stuck = next(
        (c for c in codes if c not in ("delayed", "backoff", "next", "workers_busy")), None
    )
    if stuck is not None:
        return None, f"unknown while this holds: {stuck}"
    now = int(place.now)
    if codes[0] in ("delayed", "backoff"):
        due = None if place.score is None else max(now, int(place.score))
        return due, "when it is due, or later if others wait then"
    if codes[0] == "next":
        return now, "a slot is free"
    if rate <= 0:
        return None, f"unknown: no run has ended in the last {RATE_MINUTES} minutes"
    return now + int((ahead + 1) / rate * 60_000), (
        f"{ahead + 1} jobs at {rate:g} a minute, the rate of the last {RATE_MINUTES} minutes"
    )
