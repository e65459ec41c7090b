"""Looks at queues without changing anything: what the CLI and the API show.

Nothing here costs more with more jobs: counts come from the lengths of containers, lists of jobs in
bounded pages, statistics from per-minute hashes.
"""

import base64
import json
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from taskq import calls
from taskq.errors import InvalidInput, JobNotFound, QueueNotFound, TaskqError, Unavailable
from taskq.ids import check_queue, split_id
from taskq.keys import QueueKeys
from taskq.model import Job, Place, QueueInfo
from taskq.registry import ANY_TYPE, Registry, WorkerInfo
from taskq.states import State
from taskq.stats import Past, Statistics
from taskq.store import AsyncStore, translate

T = TypeVar("T")

PAGE_BUDGET = 1000
"""Entries that one page of jobs looks at, at most."""
PAGE_CALLS = 200
"""Calls that one page of jobs makes, at most: empty queues and states cost one each."""
PLACES_AT_ONCE = 16
"""Of these, calls that are made together where the places before them were empty."""
PAGE_QUEUES = 50
"""Queues that are looked at in one go."""

STATE_ORDER = (
    State.RUNNING,
    State.QUEUED,
    State.RETRYING,
    State.SCHEDULED,
    State.BLOCKED,
    State.FAILED,
    State.SUCCEEDED,
    State.CANCELLED,
)
"""The order in which a list over all states shows them: what is going on first."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs without payloads; ``looked`` entries were looked at; ``cursor`` goes on, None at the end.

    An empty page with a cursor is no end: the filter matched nothing so far.
    """

    jobs: tuple[Job, ...]
    looked: int
    cursor: str | None


class Inspector:
    """Reads through one store; keeps nothing but what is over (``Past``), and the names of last time, so that
    one that looks often needs one round trip where it needed two."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._past = Past(store)
        self._registry = Registry(store, ttl_seconds=60)
        self._lately: list[str] = []
        """Queues of the last look: most likely those of the next."""

    async def queue_names(self) -> list[str]:
        """Every queue that was ever used, by name."""
        (names,) = await self._store.pipeline([("SMEMBERS", self._store.keys.queues)])
        return self._sorted(names)

    def _sorted(self, names: Any) -> list[str]:
        if isinstance(names, Exception):
            error = translate(names)
            if isinstance(error, Unavailable):
                raise error
            raise TaskqError(f"{self._store.keys.queues} cannot be read: {names}")
        return sorted(name.decode(errors="replace") for name in names)

    async def over_queues(
        self,
        make: Callable[[QueueKeys], calls.Call[T]],
        names: Iterable[str] | None = None,
        *,
        wanted: Callable[[str], bool] = lambda name: True,
        most: int | None = None,
    ) -> tuple[dict[str, T], int]:
        """What a call that changes nothing answers, by queue: of ``names``, or of every queue that was ever
        used, by name. Of those that are ``wanted`` the first ``most``; and how many more there are."""
        keys = self._store.keys.queue
        found: dict[str, T] = {}
        if names is None:
            guess = [name for name in self._lately if wanted(name)][:most]
            (members,), answers = await self._store.read(
                [("SMEMBERS", self._store.keys.queues)], [make(keys(name)) for name in guess]
            )
            found.update(zip(guess, answers, strict=True))
            names = self._sorted(members)
            self._lately = names[:PAGE_QUEUES]
        names = [name for name in names if wanted(name)]
        shown = names[:most]
        more = [name for name in shown if name not in found]
        for start in range(0, len(more), PAGE_QUEUES):
            page = more[start : start + PAGE_QUEUES]
            _, answers = await self._store.read([], [make(keys(name)) for name in page])
            found.update(zip(page, answers, strict=True))
        return {name: found[name] for name in shown}, len(names) - len(shown)

    async def _names(self, among: Container[str] | None) -> list[str]:
        names = await self.queue_names()
        return names if among is None else [name for name in names if name in among]

    async def queues(self, among: Container[str] | None = None) -> list[QueueInfo]:
        """One look at every queue (or those ``among`` these), by name."""
        wanted = among.__contains__ if among is not None else lambda name: True
        found, _ = await self.over_queues(calls.counts, wanted=wanted)
        return list(found.values())

    async def queue(self, name: str) -> QueueInfo:
        """One look at a queue. Raises ``QueueNotFound``, ``InvalidInput``."""
        keys = self._store.keys.queue(check_queue(name))
        info = await self._look(keys)
        if not (any(info.counts.values()) or info.settings):
            (known,) = await self._store.pipeline([("SISMEMBER", self._store.keys.queues, name)])
            if known != 1:
                raise QueueNotFound(name)
        return info

    async def _look(self, keys: QueueKeys) -> QueueInfo:
        return await self._store.run(calls.counts(keys))

    async def job(self, job_id: str) -> Job:
        """All that is kept of a job. Raises ``JobNotFound``, ``InvalidInput``."""
        queue, ulid = split_id(job_id)
        (job,) = await self._store.run(calls.show(self._store.keys.queue(queue), [ulid]))
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def place(self, queue: str, ulid: str) -> Place:
        """What keeps a job where it is, as one script sees it."""
        return await self._store.run(calls.position(self._store.keys.queue(queue), ulid))

    async def errors(self, jobs: Sequence[Job]) -> list[dict[str, Any] | None]:
        """What the last attempts of listed jobs left; the rows of a list do not carry it."""
        replies = await self._store.pipeline(
            [("HGET", self._store.keys.queue(job.queue).job(job.ulid), "error") for job in jobs]
        )
        return [_error(reply) for reply in replies]

    async def ends(self, jobs: Sequence[Job]) -> list[tuple[str, str]]:
        """(ulid, fence) of listed ended jobs, for a retry of the very runs that were listed; without those
        that have moved on since."""
        replies = await self._store.pipeline(
            [
                ("HMGET", self._store.keys.queue(job.queue).job(job.ulid), "finished_at", "fence")
                for job in jobs
            ]
        )
        return [
            (job.ulid, (reply[1] or b"").decode(errors="replace"))
            for job, reply in zip(jobs, replies, strict=True)
            if isinstance(reply, list) and _time(reply[0]) == job.finished_at
        ]

    async def lease_ends(self, workers: Iterable[WorkerInfo]) -> dict[str, int]:
        """By worker that runs something: when its lease would run out if it were not renewed (ms since the
        epoch). Of each queue the 1,000 leases are looked at that run out last.

        A process has a lease for each of its seats; when those were renewed that hold nothing says nothing.
        """
        workers = [worker for worker in workers if worker.busy]
        queues = sorted({queue for worker in workers for queue in worker.queues})
        replies = await self._store.pipeline(
            [
                ("ZRANGE", self._store.keys.queue(queue).leases, -1000, -1, "WITHSCORES")
                for queue in queues
            ]
        )
        ends: dict[str, int] = {}
        for reply in replies:
            if isinstance(reply, Exception):
                continue
            for name, score in zip(reply[::2], reply[1::2], strict=True):
                lease, end = name.decode(errors="replace"), _time(score) or 0
                # A process has an id for each of its seats: host, pid, and a part of its own.
                for owner in (lease, lease.rpartition(":")[0]):
                    ends[owner] = max(ends.get(owner, 0), end)
        found = {w.id: ends.get(w.id) or ends.get(f"{w.host}:{w.pid}") for w in workers}
        return {worker: end for worker, end in found.items() if end}

    async def workers(self) -> list[WorkerInfo]:
        """Workers that were seen lately."""
        return await self._registry.workers()

    async def jobs(
        self,
        *,
        queue: str | None = None,
        among: Container[str] | None = None,
        states: Sequence[State] = STATE_ORDER,
        job_type: str = "",
        limit: int = 50,
        cursor: str | None = None,
        fingerprint: str = "",
    ) -> JobPage:
        """A page of jobs over one queue or all (``among`` these), state by state in the order given.

        The work of a page is bounded, not the number of jobs that it finds: go on while there is a cursor.
        Raises ``InvalidInput``.
        """
        if not 1 <= limit <= 1000:
            raise InvalidInput("limit must be from 1 to 1000", field="limit")
        names = [check_queue(queue)] if queue is not None else await self._names(among)
        places = [(name, state) for name in names for state in states]
        at, inner = _start(places, _decode_cursor(cursor), names, states)
        found: list[Job] = []
        looked, asked, width = 0, 0, 1
        while (
            at < len(places) and len(found) < limit and looked < PAGE_BUDGET and asked < PAGE_CALLS
        ):
            room = limit - len(found)
            batch = places[at : at + min(width, room, PAGE_CALLS - asked)]
            pages = await self._pages(batch, inner, room, job_type, fingerprint)
            asked += len(batch)
            looked += sum(page.looked for page in pages)
            # Where nothing stands the next look is at more places at once: most queues have few states.
            width = 1 if any(page.looked for page in pages) else min(2 * width, PLACES_AT_ONCE)
            for page in pages:
                found += page.jobs
                inner = page.cursor
                if inner is not None:
                    break  # those behind it are asked for again
                at += 1
        go_on = None if at == len(places) else _encode_cursor(*places[at], inner)
        return JobPage(tuple(found), looked, go_on)

    async def _pages(
        self,
        places: Sequence[tuple[str, State]],
        cursor: calls.Cursor | None,
        limit: int,
        job_type: str,
        fingerprint: str,
    ) -> list[calls.Page]:
        """The first pages of some places, of the first one from ``cursor`` on: together ``limit`` jobs at
        most, and no more work than one alone."""
        _, pages = await self._store.read(
            [],
            [
                calls.page(
                    self._store.keys.queue(name),
                    state,
                    job_type=job_type,
                    limit=limit // len(places),
                    budget=PAGE_BUDGET // len(places),
                    cursor=cursor if i == 0 else None,
                    fingerprint=fingerprint,
                )
                for i, (name, state) in enumerate(places)
            ],
        )
        return pages

    async def statistics(
        self,
        queue: str,
        minutes: int = 60,
        *,
        types: Container[str] | None = None,
        now: int | None = None,
    ) -> Statistics:
        """What happened in the last minutes (``stats.Past``). Raises ``InvalidInput``."""
        return await self._past.read(queue, minutes, types=types, now=now)

    async def rate(self, queue: str, minutes: int, words: Container[str], now: int) -> float:
        """How much of something happens a minute (``stats.Past``)."""
        return await self._past.rate(queue, minutes, words, now)


def _error(reply: Any) -> dict[str, Any] | None:
    try:
        error = json.loads(reply) if isinstance(reply, bytes) else None
    except ValueError:
        return None
    return error if isinstance(error, dict) else None


def _time(value: bytes | None) -> int | None:
    try:
        return int(float(value or b""))
    except (ValueError, OverflowError):
        return None


def unserved(info: QueueInfo, workers: Iterable[WorkerInfo]) -> list[str]:
    """Job types that wait in a queue although no worker that was seen lately runs them."""
    served = {t for worker in serving(info.name, workers) for t in worker.types}
    if ANY_TYPE in served:
        return []
    return [line.job_type for line in info.types if line.job_type not in served]


def serving(queue: str, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Workers that were seen lately and claim jobs of the queue: those that are quiet or stopping do not."""
    return [w for w in workers if queue in w.queues and w.state not in ("quiet", "stopping")]


def how_to_serve(queue: str) -> str:
    """What to do about a type that no live worker runs."""
    return f"start a worker whose application has it: taskq worker -A MODULE:APP -q {queue}"


def oldest_head(info: QueueInfo) -> int | None:
    """Since when (ms) the job that has waited longest at the head of a line may run."""
    return min(
        (line.head_since for line in info.types if line.head_since is not None), default=None
    )


# --- cursors of job pages ---------------------------------------------------------------------------


def _encode_cursor(queue: str, state: State, inner: calls.Cursor | None) -> str:
    at = inner or calls.Cursor()
    text = json.dumps([queue, state.value, at.box, at.score, at.id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str | None) -> tuple[str, State, calls.Cursor | None] | None:
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        queue, state, *inner = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        box, score, last = (str(part) for part in inner)
        at = calls.Cursor(box, score, last)
        return check_queue(queue), State(state), at if box else None
    except (ValueError, TypeError):
        raise InvalidInput("this cursor is not one of ours", field="cursor") from None


def _start(
    places: list[tuple[str, State]],
    cursor: tuple[str, State, calls.Cursor | None] | None,
    names: Sequence[str],
    states: Sequence[State],
) -> tuple[int, calls.Cursor | None]:
    """Where a page begins. A queue that came since the last page does not shift the place."""
    if cursor is None:
        return 0, None
    queue, state, inner = cursor
    if state not in states:
        raise InvalidInput("this cursor belongs to another list", field="cursor")
    if (queue, state) in places:
        return places.index((queue, state)), inner
    return sum(1 for name in names if name < queue) * len(states), None
