"""Claims over HTTP: a long poll that ends with jobs under a lease.

What happens when a process dies between two steps:

1. its record is written (``lease``): nothing is claimed; the record runs out by itself;
2. jobs are claimed under its worker id: nobody knows of them, so they are *lost* when the lease runs out;
   a repeat of the request with the same idempotency key meets the same record and the same claim before;
3. ``settle`` says whether the jobs go to the client or back; of several requests the first word stands;
4. the answer is on its way: a client that does not get it asks again with its key, or lets the lease run out.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from taskq import calls, codec, leases
from taskq.errors import IdempotencyConflict
from taskq.ids import check_job_type, check_key, check_queue, deterministic_ulid
from taskq.model import Claimed, LeaseRecord
from taskq_api.access import Access
from taskq_api.connection import Connection, first_of
from taskq_api.errors import Refused
from taskq_api.leasing import SPARE_MS, Desk, lost
from taskq_api.schemas import LeaseRequest
from taskq_api.schemas.leases import LEASE_DEFAULT, WAIT_MAX

TRIES = 5
"""Leases that one request may open, where others with its key hand theirs back at the same time."""


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
    def of(cls, asked: LeaseRequest, access: Access, key: str | None) -> "Wanted":
        """Raises ``InvalidInput``, ``QueueNotFound`` and ``Refused`` ``forbidden_job_type``."""
        queue = check_queue("default" if asked.queue is None else asked.queue)
        access.check_queue(queue)
        allowed = access.types(asked.job_types)
        types = None if allowed is None else tuple(sorted({check_job_type(n) for n in allowed}))
        lease_seconds = LEASE_DEFAULT if asked.lease_seconds is None else asked.lease_seconds
        lease_ms = round(lease_seconds * 1000)
        if key is not None:
            key = deterministic_ulid(access.owner, queue, check_key(key, "idempotency_key"))
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


class Claiming:
    """Claims of one API key."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._its = desk.its
        self._store = desk.store

    async def jobs(self, wanted: Wanted, connection: Connection, stop: asyncio.Event) -> Given:
        """Jobs under a lease. Raises ``IdempotencyConflict``, ``LeaseLost`` (of a repeat that comes late)."""
        until = time.monotonic() + wanted.wait
        for _ in range(TRIES):
            lease = await self._open(wanted)
            if lease.claim == "answered":
                return await self._again(lease)
            given = await self._poll(lease, wanted, connection, stop, until)
            if given is not None and not given.jobs:
                await self._desk.forget(lease, record=not wanted.key)
                return Given()
            if given is not None and await self._settle(lease, given, connection):
                spared_ms = lease.lease_ms + SPARE_MS
                await self._desk.told(lease, wanted.job_types, len(given.jobs), spared_ms)
                return given
        return Given()

    async def _open(self, wanted: Wanted) -> LeaseRecord:
        fresh = leases.make(wanted.queue, self._desk.owner, wanted.label, wanted.lease_ms)
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
        held = await self._desk.live(lease, full=True)
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
        keys, told = self._desk.keys(lease), False
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
                await self._desk.told(lease, wanted.job_types, 0, round(left * 1000) + SPARE_MS)
            async with self._its.polls.waiting(keys, wanted.job_types) as work:
                await first_of(work, connection.gone, stop, timeout=left)
            await self._check_again(lease, wanted)

    async def _check_again(self, lease: LeaseRecord, wanted: Wanted) -> None:
        """Raises ``Refused`` ``unauthorized``: a key that was revoked meanwhile takes no jobs."""
        try:
            await self._its.ring.check_again(self._desk.access)
        except Refused:
            await self._desk.forget(lease, record=not wanted.key)
            raise

    async def _settle(self, lease: LeaseRecord, given: Given, connection: Connection) -> bool:
        """Whether the jobs are the client's now. Else they are back in line."""
        if await connection.is_gone():
            if await self._close(lease):
                await self._desk.hand_back(lease, "its client was gone")
            return False
        keys = self._desk.keys(lease)
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
            await self._desk.hand_back(lease, "its record was gone")
        return word == "ANSWERED"

    async def _close(self, lease: LeaseRecord) -> bool:
        """Whether the jobs may be handed back: not if another request with this key was answered."""
        word = await self._store.run(
            calls.settle(
                self._desk.keys(lease), lease.name, "closed", look_at=0, keep_ms=leases.KEEP_MS
            )
        )
        return word != "ANSWERED"
