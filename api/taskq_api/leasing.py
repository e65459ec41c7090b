"""Leases over HTTP: whose one is, its renewal, its runs and its end.

A lease is one worker id for one claim. All facts stand in Redis, so that any API process serves any
request about it.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from taskq import calls, leases
from taskq.errors import BrokenKey, InvalidInput, LeaseLost, LeaseNotFound, TaskqError
from taskq.ids import check_queue
from taskq.keys import QueueKeys
from taskq.model import HeldReply, HeldRun, LeaseRecord, OverdueRun
from taskq.registry import ANY_TYPE, WorkerInfo, now_ms
from taskq_api.access import Access
from taskq_api.deps import Services

SPARE_MS = 10_000
"""So long a client's poll counts as alive after it should have ended."""


class Desk:
    """Leases of one API key."""

    def __init__(self, its: Services, access: Access) -> None:
        self.its = its
        self.store = its.client.store
        self.access = access
        self.owner = access.owner

    def keys(self, lease: LeaseRecord) -> QueueKeys:
        return self.store.keys.queue(queue_of(lease))

    async def find(self, lease_id: str) -> LeaseRecord:
        """The lease of this id. Raises ``LeaseNotFound``, also for one of another API key."""
        queue = lease_id.rpartition(":")[0]
        with contextlib.suppress(InvalidInput):
            keys = self.store.keys.queue(check_queue(queue))
            name = leases.name_of(lease_id)
            fields = ("lease", "worker", "owner", "label", "lease_ms", "claim")
            (found,) = await self.store.pipeline([("HMGET", keys.lease(name), *fields)])
            if not isinstance(found, Exception) and found[0] is not None:
                texts = [(value or b"").decode(errors="replace") for value in found]
                if texts[2] == self.owner and texts[4].isdecimal():
                    lease, worker, owner, label, lease_ms, claim = texts
                    return LeaseRecord(name, lease, worker, owner, label, int(lease_ms), claim)
        raise LeaseNotFound(
            "no such lease: it never was, was another API key's, or ran out long ago; drop its jobs and "
            "claim anew with POST /leases"
        )

    async def beat(self, lease: LeaseRecord) -> tuple[HeldReply, list[HeldRun]]:
        """Renews: (what is held now, runs that were past their time and are ended). Raises ``LeaseLost``."""
        keys = self.keys(lease)
        (beat,) = await self.store.run(calls.heartbeat(keys, [(lease.worker, lease.lease_ms, 0)]))
        if beat.status == "LOST":
            raise lost()
        if beat.status != "OK":
            raise BrokenKey("leases or processing has the wrong type: run `taskq doctor`")
        held = await self.live(lease)
        late = await self.end_overdue(lease, held)
        await self.renewed(lease, len(held.runs) - len(late))
        return held, late

    async def held(self, lease: LeaseRecord) -> HeldReply:
        """What the lease holds, nothing where it is lost; runs past their time are ended first."""
        found = await self.store.run(calls.held(self.keys(lease), lease.worker))
        late = {run.job.fence for run in await self.end_overdue(lease, found)}
        runs = tuple(run for run in found.runs if run.job.fence not in late)
        return HeldReply(found.status, found.now, found.lease_until, runs)

    async def live(self, lease: LeaseRecord, *, full: bool = False) -> HeldReply:
        """What the lease holds; ``full`` with payloads. Raises ``LeaseLost``."""
        found = await self.store.run(calls.held(self.keys(lease), lease.worker, full=full))
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
            await self.store.run(calls.fail(self.keys(lease), worker, failures))
        return late

    async def left(self, lease: LeaseRecord) -> int:
        """How many runs the lease still holds, after reports: of one that is over nothing more is shown."""
        (n,) = await self.store.pipeline([("LLEN", self.keys(lease).processing(lease.worker))])
        left = n if isinstance(n, int) else 0
        await self.renewed(lease, left)
        return left

    async def hand_back(self, lease: LeaseRecord, reason: str) -> int:
        """Ends the lease; answers how many of its jobs went back. Burns nothing."""
        call = calls.reap(
            self.keys(lease), lease_ms=lease.lease_ms, targets=[(lease.worker, "none", reason)]
        )
        reaped = await self.store.run(call)
        await self.forget(lease)
        return reaped.jobs

    async def renewed(self, lease: LeaseRecord, busy: int) -> None:
        """After a sign of life: the record stays, and the worker is shown with what it holds."""
        if not busy:
            await self.forget(lease)
            return
        keep_ms = lease.lease_ms + leases.KEEP_MS
        await self.store.pipeline([("PEXPIRE", self.keys(lease).lease(lease.name), keep_ms)])
        with contextlib.suppress(TaskqError):
            await self.its.registry.seen(lease.worker, busy, lease.lease_ms + SPARE_MS)

    async def told(
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
            await self.its.registry.tell(about, ttl_ms=ttl_ms)

    async def forget(self, lease: LeaseRecord, *, record: bool = False) -> None:
        """The lease holds nothing, and never will again."""
        keys = self.keys(lease)
        with contextlib.suppress(TaskqError):
            commands: list[tuple[Any, ...]] = [("ZREM", keys.deadlines, lease.worker)]
            if record:
                commands.append(("DEL", keys.lease(lease.name)))
            await self.store.pipeline(commands)
            await self.its.registry.forget(lease.worker)


def queue_of(lease: LeaseRecord) -> str:
    return lease.lease.rpartition(":")[0]


def lost() -> LeaseLost:
    return LeaseLost(
        "this lease has run out or was handed back: stop its runs, their jobs are others' now; "
        "claim anew with POST /leases (with another Idempotency-Key)"
    )
