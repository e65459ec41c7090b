"""Bulk actions: cancel, retry, delete or edit all jobs that a filter matches, page by page.

An action is written down in its queue (``bulk_start.lua``) and carried out by whoever holds it, one runner
at a time. Every page is bounded and done before it is counted, and each move may be repeated; so when a
runner dies, the next one goes on from the last page that was counted. It is about the jobs of the moment of
its start: what ends or comes later is left alone, so that a job which fails again is not retried twice.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskq import calls
from taskq.errors import (
    BrokenKey,
    BulkNotFound,
    IdempotencyConflict,
    InvalidInput,
    QueueFull,
    TaskqError,
    Unavailable,
)
from taskq.ids import UlidFactory, check_queue, split_id
from taskq.inspector import Inspector
from taskq.keys import QueueKeys
from taskq.model import Job
from taskq.selection import BulkFilter, check_filter, matching
from taskq.states import State
from taskq.store import AsyncStore

PAGE = 100
"""Entries that a page looks at, at most: the server is busy with it for a few milliseconds."""
LEASE_MS = 10_000
PREVIEW_PAGES = 10


@dataclass(frozen=True, slots=True)
class Bulk:
    """A bulk action as it stands. ``state`` is running, done, stopped or failed; times are ms.

    ``done`` jobs were changed, ``skipped`` matched but could not be (they had moved on, or another holds
    their unique key).
    """

    id: str
    queue: str
    action: str
    filter: BulkFilter
    state: str
    priority: int | None
    per_second: int | None
    cutoff: int
    finished_at: int | None
    looked: int
    matched: int
    done: int
    skipped: int
    error: str | None
    cursor: str
    step: int
    fence: int

    @classmethod
    def parse(cls, queue: str, ulid: str, fields: dict[str, str]) -> "Bulk":
        def number(name: str) -> int | None:
            text = fields.get(name, "")
            return int(text) if text.lstrip("-").isdigit() else None

        return cls(
            id=f"{queue}:{ulid}",
            queue=queue,
            action=fields.get("action", ""),
            filter=BulkFilter.parse(queue, fields.get("filter", "{}")),
            state=fields.get("state", ""),
            priority=number("priority"),
            per_second=number("per_second"),
            cutoff=number("cutoff") or 0,
            finished_at=number("finished_at"),
            looked=number("looked") or 0,
            matched=number("matched") or 0,
            done=number("done") or 0,
            skipped=number("skipped") or 0,
            error=fields.get("error"),
            cursor=fields.get("cursor", ""),
            step=number("step") or 0,
            fence=number("fence") or 0,
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """How many jobs a filter matches: exact where ``complete``, else of the first ``looked``."""

    matched: int
    looked: int
    complete: bool
    sample: tuple[str, ...]


class Bulks:
    """Starts, carries on, stops and shows bulk actions."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._new_ulid = UlidFactory()

    def _keys(self, queue: str) -> QueueKeys:
        return self._store.keys.queue(queue)

    async def preview(self, action: str, wanted: BulkFilter) -> Preview:
        """Counts what the action would be about. Raises ``InvalidInput``."""
        wanted = check_filter(action, wanted)
        plain = not (wanted.job_type or wanted.fingerprint or wanted.ids)
        matched = looked = 0
        sample: list[str] = []
        cursor, complete = "", False
        for _ in range(PREVIEW_PAGES):
            jobs, seen, cursor = await matching(self._store, wanted, cursor, 1000)
            matched, looked = matched + len(jobs), looked + seen
            sample += [job.id for job in jobs[: 10 - len(sample)]]
            if complete := not cursor:
                break
        if plain and wanted.since is None and wanted.before is None and not complete:
            info = await Inspector(self._store).queue(wanted.queue)
            matched, complete = sum(info.counts.get(s.value, 0) for s in wanted.states), True
        return Preview(matched, looked, complete, tuple(sample))

    async def start(
        self,
        action: str,
        wanted: BulkFilter,
        *,
        priority: int | None = None,
        per_second: int | None = None,
        bulk_id: str | None = None,
    ) -> Bulk:
        """Writes an action down; ``run`` carries it out. ``bulk_id`` (a ULID) makes a repeat the same one.

        ``priority`` goes with ``edit``; ``per_second`` bounds the pace.
        Raises ``InvalidInput``, ``QueueFull``, ``IdempotencyConflict``.
        """
        wanted = check_filter(action, wanted)
        if (action == "edit") != (priority is not None):
            raise InvalidInput("priority goes with the action edit", field="priority")
        facts: dict[str, str | int] = {"action": action, "filter": wanted.text()}
        if priority is not None:
            facts["priority"] = calls.check_priority(priority)
        if per_second is not None:
            facts["per_second"] = per_second
        ulid = bulk_id or self._new_ulid()
        word = await self._store.run(calls.bulk_start(self._keys(wanted.queue), ulid, facts))
        if word == "FULL":
            raise QueueFull(f"queue {wanted.queue!r} has 20 bulk actions under way; wait for one")
        if word == "BROKEN_KEY":
            raise BrokenKey(
                f"a key of queue {wanted.queue!r} has the wrong type: run `taskq doctor`"
            )
        bulk = await self.get(f"{wanted.queue}:{ulid}")
        said = (bulk.action, bulk.filter.text(), bulk.priority, bulk.per_second)
        if said != (action, wanted.text(), priority, per_second):
            raise IdempotencyConflict("this idempotency key was used for another bulk action")
        return bulk

    async def get(self, bulk_id: str) -> Bulk:
        """How an action stands. Raises ``BulkNotFound``."""
        queue, ulid = _place(bulk_id)
        found = await self._store.run(calls.bulk_show(self._keys(queue), ulid))
        if not found:
            raise BulkNotFound(bulk_id)
        return Bulk.parse(queue, *found[0])

    async def list(self, queue: str) -> list[Bulk]:
        """The actions of a queue that go on, and the last 100 that ended."""
        found = await self._store.run(calls.bulk_show(self._keys(check_queue(queue))))
        return [Bulk.parse(queue, ulid, fields) for ulid, fields in found]

    async def stop(self, bulk_id: str) -> Bulk:
        """Ends an action where it is; one that has ended stays as it is. Raises ``BulkNotFound``."""
        queue, ulid = _place(bulk_id)
        if await self._store.run(calls.bulk_stop(self._keys(queue), ulid)) == "NOT_FOUND":
            raise BulkNotFound(bulk_id)
        return await self.get(bulk_id)

    async def run(self, bulk_id: str, *, seconds: float = float("inf")) -> str:
        """Carries an action on for so long: ``ENDED``, ``HELD`` by another, ``NOT_FOUND`` or ``MORE``."""
        queue, ulid = _place(bulk_id)
        keys, runner = self._keys(queue), secrets.token_hex(8)
        until = time.monotonic() + seconds
        taken = await self._store.run(calls.bulk_take(keys, ulid, runner, lease_ms=LEASE_MS))
        if isinstance(taken, str):
            return taken
        bulk = Bulk.parse(queue, ulid, taken)
        try:
            return await self._pages(keys, ulid, bulk, until)
        except Unavailable:
            raise
        except TaskqError as error:
            await self._store.run(calls.bulk_stop(keys, ulid, error=str(error)[:500]))
            return "ENDED"

    async def _pages(self, keys: QueueKeys, ulid: str, bulk: Bulk, until: float) -> str:
        # What ends (or comes) after its start is not its own.
        edge = bulk.cutoff + 1
        if bulk.filter.before is not None:
            edge = min(edge, bulk.filter.before)
        wanted, cursor = replace(bulk.filter, before=edge), bulk.cursor
        size = PAGE if bulk.per_second is None else min(PAGE, bulk.per_second)
        step = bulk.step
        while True:
            began = time.monotonic()
            jobs, looked, cursor = await matching(self._store, wanted, cursor, size)
            matched, done = await _act(self._store, keys, bulk, jobs)
            step += 1
            over = time.monotonic() >= until
            word = await self._store.run(
                calls.bulk_step(
                    keys,
                    ulid,
                    fence=bulk.fence,
                    step=step,
                    cursor=cursor,
                    looked=looked,
                    matched=matched,
                    done=done,
                    skipped=matched - done,
                    last=not cursor,
                    # Given back with the last page, so that the next runner need not wait.
                    lease_ms=0 if over else LEASE_MS,
                )
            )
            if word != "OK":
                return "HELD" if word == "STALE" else word
            if over:
                return "MORE"
            if bulk.per_second is not None and matched:
                await asyncio.sleep(max(0.0, began + matched / bulk.per_second - time.monotonic()))

    async def carry_on(self, queue: str, *, seconds: float) -> int:
        """Runs what nobody runs in a queue: the janitor's duty. Answers how many it took over."""
        keys = self._keys(queue)
        (ids,) = await self._store.pipeline([("ZRANGE", keys.bulks, 0, -1)])
        taken = 0
        for ulid in [] if isinstance(ids, Exception) else ids:
            word = await self.run(f"{queue}:{ulid.decode(errors='replace')}", seconds=seconds)
            taken += word in ("ENDED", "MORE")
        return taken


def _place(bulk_id: str) -> tuple[str, str]:
    try:
        return split_id(bulk_id)
    except InvalidInput:
        raise BulkNotFound(bulk_id[:100]) from None


async def _act(
    store: AsyncStore, keys: QueueKeys, bulk: Bulk, jobs: Sequence[Job]
) -> tuple[int, int]:
    """(matched, done) of one page. What a page that was not counted has done already is not matched again."""
    if bulk.action == "edit":
        jobs = [job for job in jobs if job.priority != bulk.priority]
    if bulk.action == "cancel":
        jobs = [job for job in jobs if not job.cancel_requested]
    if bulk.action == "retry":
        # A fence is at least the time of its claim, so these have run since the start.
        jobs = [job for job in jobs if (job.fence or 0) <= bulk.cutoff]
    if not jobs:
        return 0, 0
    ulids = [job.ulid for job in jobs]
    good: set[str]
    words: list[Any]
    if bulk.action == "retry":
        seen = [(job.ulid, "" if job.fence is None else str(job.fence)) for job in jobs]
        words, good = await _send(store, calls.retry(keys, seen)), {"QUEUED"}
    elif bulk.action == "cancel":
        running = State.RUNNING in bulk.filter.states
        call = calls.cancel(keys, ulids, waiting_only=not running)
        words, good = await _send(store, call), {"CANCELLED", "CANCELLING"}
    elif bulk.action == "delete":
        fences = [job.fence or 0 for job in jobs]
        words, good = await _send(store, calls.delete(keys, ulids, fences=fences)), {"DELETED"}
    else:
        edits = [(ulid, bulk.priority, None) for ulid in ulids]
        words, good = await _send(store, calls.edit(keys, edits)), {"OK"}
    return len(jobs), sum(word in good for word, _ in words)


async def _send(store: AsyncStore, call: calls.Call[Any]) -> list[Any]:
    words: list[Any] = await store.run(call)
    return words
