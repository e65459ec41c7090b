"""Leases: a worker over HTTP claims under one, renews it and hands it back.

A lease is one worker id for one claim. All facts stand in Redis, so that any API process serves any
request about it. What happens when a process dies between two steps:

1. its record is written (``lease``): nothing is claimed; the record runs out by itself;
2. jobs are claimed under its worker id: nobody knows of them, so they are *lost* when the lease runs out;
   a repeat of the request with the same idempotency key meets the same record and the same claim before;
3. ``settle`` says whether the jobs go to the client or back; of several requests the first word stands;
4. the answer is on its way: a client that does not get it asks again with its key, or lets the lease run out.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from taskq import calls, codec, leases
from taskq.errors import (
    BrokenKey,
    IdempotencyConflict,
    InvalidInput,
    LeaseLost,
    LeaseNotFound,
    TaskqError,
)
from taskq.ids import check_job_type, check_key, check_queue, deterministic_ulid
from taskq.keys import QueueKeys
from taskq.model import Claimed, HeldReply, HeldRun, LeaseRecord, OverdueRun
from taskq.registry import ANY_TYPE, WorkerInfo, now_ms
from taskq_api.auth import OWNER
from taskq_api.connection import Connection, first_of
from taskq_api.deps import Services
from taskq_api.errors import Refused
from taskq_api.schemas import LeaseRequest
from taskq_api.schemas.leases import LEASE_DEFAULT, WAIT_MAX

TRIES = 5
"""Leases that one request may open, where others with its key hand theirs back at the same time."""
SPARE_MS = 10_000
"""So long a client's poll counts as alive after it should have ended."""


def owner_of(request: Request) -> str:
    """Whose leases a request may use: those of its API key."""
    owner: str = request.scope.get(OWNER, "")
    return owner


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim, checked."""

    queue: str
    job_types: tuple[str, ...] | None
    most: int
    label: str
    lease_ms: int
    wait: float
    key: str
    digest: str

    @classmethod
    def of(cls, asked: LeaseRequest, owner: str, key: str | None) -> "Wanted":
        """Raises ``InvalidInput``."""
        queue = check_queue("default" if asked.queue is None else asked.queue)
        types = None
        if asked.job_types is not None:
            types = tuple(sorted({check_job_type(name) for name in asked.job_types}))
        lease_seconds = LEASE_DEFAULT if asked.lease_seconds is None else asked.lease_seconds
        lease_ms = round(lease_seconds * 1000)
        if key is not None:
            key = deterministic_ulid(owner, queue, check_key(key, "idempotency_key"))
        # Not how long it waits: a repeat may have less time left.
        said = json.dumps([types, asked.max or 1, asked.worker, lease_ms])
        return cls(
            queue,
            types,
            asked.max or 1,
            asked.worker or "",
            lease_ms,
            min(asked.wait or 0.0, WAIT_MAX),
            key or "",
            codec.digest(said.encode()),
        )


@dataclass(frozen=True, slots=True)
class Given:
    """What a claim answers: jobs with the ms (Redis's clock) at which each run began; no lease, no jobs."""

    lease: LeaseRecord | None = None
    expires_at: float | None = None
    jobs: Sequence[tuple[Claimed, float]] = ()


class Desk:
    """Leases of one API key."""

    def __init__(self, its: Services, owner: str) -> None:
        self._its = its
        self._store = its.client.store
        self._owner = owner

    def keys(self, lease: LeaseRecord) -> QueueKeys:
        return self._store.keys.queue(queue_of(lease))

    # --- claiming ---------------------------------------------------------------------------------

    async def claim(self, wanted: Wanted, connection: Connection, stop: asyncio.Event) -> Given:
        """Jobs under a lease. Raises ``IdempotencyConflict``, ``LeaseLost`` (of a repeat that comes late)."""
        until = time.monotonic() + wanted.wait
        for _ in range(TRIES):
            lease = await self._open(wanted)
            if lease.claim == "answered":
                return await self._again(lease)
            given = await self._poll(lease, wanted, connection, stop, until)
            if given is not None and not given.jobs:
                await self._forget(lease, record=not wanted.key)
                return Given()
            if given is not None and await self._settle(lease, given, connection):
                spared_ms = lease.lease_ms + SPARE_MS
                await self._told(lease, wanted.job_types, len(given.jobs), spared_ms)
                return given
        return Given()

    async def _open(self, wanted: Wanted) -> LeaseRecord:
        fresh = leases.make(wanted.queue, self._owner, wanted.label, wanted.lease_ms)
        call = calls.lease(
            self._store.keys.queue(wanted.queue),
            fresh,
            key=wanted.key,
            request=wanted.digest,
            keep_ms=wanted.lease_ms + leases.KEEP_MS,
        )
        lease = await self._store.run(call)
        if lease is None:
            raise IdempotencyConflict("this idempotency key was used for another claim")
        return lease

    async def _again(self, lease: LeaseRecord) -> Given:
        """The same lease with those of its jobs that are still its."""
        held = await self._held(lease, full=True)
        jobs = [(run.job, run.started_at or held.now) for run in held.runs]
        return Given(lease, held.lease_until, jobs)

    async def _poll(
        self,
        lease: LeaseRecord,
        wanted: Wanted,
        connection: Connection,
        stop: asyncio.Event,
        until: float,
    ) -> Given | None:
        """Claims until there are jobs, the time is over, nobody is there any more, or the process stops.

        None when this lease is over before it began: somebody has handed it back.
        """
        keys, told = self.keys(lease), False
        while True:
            if await connection.is_gone():
                return Given()
            types = await self._its.polls.types(keys, wanted.job_types)
            # One claim, and each try of it has the same number: what an earlier one took is answered again.
            call = calls.claim(
                keys, lease.worker, 1, wanted.most, types, lease_ms=wanted.lease_ms, alone=True
            )
            reply = await self._store.run(call)
            if reply.status == "TOO_OLD":
                raise Refused(
                    "not_ready", f"queue {keys.queue} asks for a newer version of this API"
                )
            if reply.status != "OK":
                if not await self._close(lease):
                    raise lost()
                return None
            if reply.jobs:
                self._its.janitor.serve(keys.queue)
                at = reply.now
                return Given(lease, at + wanted.lease_ms, [(job, at) for job in reply.jobs])
            left = until - time.monotonic()
            if left <= 0 or stop.is_set():
                return Given()
            if not told:
                told = True
                await self._told(lease, wanted.job_types, 0, round(left * 1000) + SPARE_MS)
            async with self._its.polls.waiting(keys, wanted.job_types) as work:
                await first_of(work, connection.gone, stop, timeout=left)

    async def _settle(self, lease: LeaseRecord, given: Given, connection: Connection) -> bool:
        """Whether the jobs are the client's now. Else they are back in line."""
        if await connection.is_gone():
            if await self._close(lease):
                await self.hand_back(lease, "its client was gone")
            return False
        keys = self.keys(lease)
        now = given.jobs[0][1]
        word = await self._store.run(
            calls.settle(
                keys,
                lease.name,
                "answered",
                look_at=leases.look_at((job for job, _ in given.jobs), now),
                keep_ms=lease.lease_ms + leases.KEEP_MS,
            )
        )
        if word == "GONE":
            # The record was evicted or deleted: without it nobody could report.
            await self.hand_back(lease, "its record was gone")
        return word == "ANSWERED"

    async def _close(self, lease: LeaseRecord) -> bool:
        """Whether the jobs may be handed back: not if another request with this key was answered."""
        word = await self._store.run(
            calls.settle(self.keys(lease), lease.name, "closed", look_at=0, keep_ms=leases.KEEP_MS)
        )
        return word != "ANSWERED"

    # --- what is said about a lease ---------------------------------------------------------------

    async def find(self, lease_id: str) -> LeaseRecord:
        """The lease of this id. Raises ``LeaseNotFound``, also for one of another API key."""
        queue = lease_id.rpartition(":")[0]
        with contextlib.suppress(InvalidInput):
            keys = self._store.keys.queue(check_queue(queue))
            name = leases.name_of(lease_id)
            fields = ("lease", "worker", "owner", "label", "lease_ms", "claim")
            (found,) = await self._store.pipeline([("HMGET", keys.lease(name), *fields)])
            if not isinstance(found, Exception) and found[0] is not None:
                texts = [(value or b"").decode(errors="replace") for value in found]
                if texts[2] == self._owner and texts[4].isdecimal():
                    lease, worker, owner, label, lease_ms, claim = texts
                    return LeaseRecord(name, lease, worker, owner, label, int(lease_ms), claim)
        raise LeaseNotFound(
            "no such lease: it never was, was another API key's, or ran out long ago; drop its jobs and "
            "claim anew with POST /leases"
        )

    async def beat(self, lease: LeaseRecord) -> tuple[HeldReply, list[HeldRun]]:
        """Renews: (what is held now, runs that were past their time and are ended). Raises ``LeaseLost``."""
        keys = self.keys(lease)
        (beat,) = await self._store.run(calls.heartbeat(keys, [(lease.worker, lease.lease_ms, 0)]))
        if beat.status == "LOST":
            raise lost()
        if beat.status != "OK":
            raise BrokenKey("leases or processing has the wrong type: run `taskq doctor`")
        held = await self._held(lease)
        late = await self.end_overdue(lease, held)
        await self.renewed(lease, len(held.runs) - len(late))
        return held, late

    async def held(self, lease: LeaseRecord) -> HeldReply:
        """What the lease holds, nothing where it is lost; runs past their time are ended first."""
        found = await self._store.run(calls.held(self.keys(lease), lease.worker))
        late = {run.job.fence for run in await self.end_overdue(lease, found)}
        runs = tuple(run for run in found.runs if run.job.fence not in late)
        return HeldReply(found.status, found.now, found.lease_until, runs)

    async def _held(self, lease: LeaseRecord, *, full: bool = False) -> HeldReply:
        found = await self._store.run(calls.held(self.keys(lease), lease.worker, full=full))
        if found.status == "LOST":
            raise lost()
        return found

    async def end_overdue(self, lease: LeaseRecord, held: HeldReply) -> list[HeldRun]:
        """Fails the runs that are past their time."""
        late = [run for run in held.runs if leases.is_overdue(run, held.now)]
        runs = [
            OverdueRun(lease.worker, r.job.ulid, r.job.fence, r.job.failures, r.job.max_attempts)
            for r in late
        ]
        for worker, failures in leases.timeouts(runs).items():
            await self._store.run(calls.fail(self.keys(lease), worker, failures))
        return late

    async def left(self, lease: LeaseRecord) -> int:
        """How many runs the lease still holds, after reports: of one that is over nothing more is shown."""
        (n,) = await self._store.pipeline([("LLEN", self.keys(lease).processing(lease.worker))])
        left = n if isinstance(n, int) else 0
        await self.renewed(lease, left)
        return left

    async def hand_back(self, lease: LeaseRecord, reason: str) -> int:
        """Ends the lease; answers how many of its jobs went back. Burns nothing."""
        call = calls.reap(
            self.keys(lease), lease_ms=lease.lease_ms, targets=[(lease.worker, "none", reason)]
        )
        reaped = await self._store.run(call)
        await self._forget(lease)
        return reaped.jobs

    # --- what is not needed, but good to know -----------------------------------------------------

    async def renewed(self, lease: LeaseRecord, busy: int) -> None:
        """After a sign of life: the record stays, and the worker is shown with what it holds."""
        if not busy:
            await self._forget(lease)
            return
        keep_ms = lease.lease_ms + leases.KEEP_MS
        await self._store.pipeline([("PEXPIRE", self.keys(lease).lease(lease.name), keep_ms)])
        with contextlib.suppress(TaskqError):
            await self._its.registry.seen(lease.worker, busy, lease.lease_ms + SPARE_MS)

    async def _told(
        self, lease: LeaseRecord, types: Sequence[str] | None, busy: int, ttl_ms: int
    ) -> None:
        """Shows the client among the workers for as long as it may live."""
        about = WorkerInfo(
            id=lease.worker,
            host="",
            pid=0,
            supervisor_pid=0,
            version="",
            started_at=now_ms(),
            seen_at=now_ms(),
            state="running",
            queues=(queue_of(lease),),
            types=tuple(types or (ANY_TYPE,)),
            slots=busy,
            busy=busy,
            label=lease.label,
            kind="http",
        )
        with contextlib.suppress(TaskqError):
            await self._its.registry.tell(about, ttl_ms=ttl_ms)

    async def _forget(self, lease: LeaseRecord, *, record: bool = False) -> None:
        """The lease holds nothing, and never will again."""
        keys = self.keys(lease)
        with contextlib.suppress(TaskqError):
            commands: list[tuple[Any, ...]] = [("ZREM", keys.deadlines, lease.worker)]
            if record:
                commands.append(("DEL", keys.lease(lease.name)))
            await self._store.pipeline(commands)
            await self._its.registry.forget(lease.worker)


def queue_of(lease: LeaseRecord) -> str:
    return lease.lease.rpartition(":")[0]


def lost() -> LeaseLost:
    return LeaseLost(
        "this lease has run out or was handed back: stop its runs, their jobs are others' now; "
        "claim anew with POST /leases (with another Idempotency-Key)"
    )
