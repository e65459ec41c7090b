"""Renews the leases of all children from outside, and lets go of one that shows no sign of life.

So a job that holds its interpreter for minutes costs its neighbours nothing; and what is answered to a beat
(ids that are lost, jobs to stop, lists that differ) is passed on to the child it concerns.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import taskq_worker
from taskq import calls
from taskq.keys import Keys
from taskq.registry import Registry, WorkerInfo, now_ms
from taskq.store import AsyncStore, retry_delay
from taskq_worker.failures import understand
from taskq_worker.member import Counter, Member, SeatRecord
from taskq_worker.process import reap_orphans
from taskq_worker.throttle import Throttle

logger = logging.getLogger("taskq.supervisor")


class Beats:
    """``replace_id(member, seat number, lost id)`` gives a seat a new id; ``wished("quiet" or "stop")``
    is what people ask of the worker."""

    def __init__(
        self,
        members: Sequence[Member],
        keys: Keys,
        stores: tuple[AsyncStore, AsyncStore],
        registry: Registry,
        *,
        host: str,
        slots: int,
        lease_seconds: float,
        replace_id: Callable[[Member, int, str], Awaitable[None]],
        starting: asyncio.Lock,
        wished: Callable[[str], None],
    ) -> None:
        self._members = members
        self._keys = keys
        self._store, self._blocking = stores
        self._registry = registry
        self._host = host
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._lease_ms = round(lease_seconds * 1000)
        self._beat_seconds = lease_seconds / 3
        self._replace_id = replace_id
        self._starting = starting
        self._wished = wished
        self._nudge = asyncio.Event()
        self._throttle = Throttle(logger)

    def now(self) -> None:
        """Asks for a beat at once."""
        self._nudge.set()

    async def run(self) -> None:
        last = time.monotonic()
        while True:
            now = time.monotonic()
            if now - last > 2 * self._beat_seconds:
                # We were stopped ourselves.
                for member in self._members:
                    member.process.forget_silence()
            last = now
            try:
                await self._beat()
            except Exception as error:
                failure = understand(error)
                self._throttle.warning("cannot renew leases: %s", failure)
                await asyncio.sleep(retry_delay(3))
                continue
            self._nudge.clear()
            with contextlib.suppress(TimeoutError):
                # Not wait_for: Python 3.11's loses a cancellation that meets the end of the wait.
                async with asyncio.timeout(self._beat_seconds):
                    await self._nudge.wait()

    async def _beat(self) -> None:
        by_queue: dict[str, list[tuple[Member, SeatRecord, tuple[int, int, int]]]] = {}
        for member in self._members:
            if not self._shows_life(member):
                continue
            for seat in member.seats.values():
                held = member.process.page.seat(seat.number)
                if held[0] or held[1]:
                    by_queue.setdefault(seat.queue, []).append((member, seat, held))
        for queue, beats in by_queue.items():
            items = [(seat.worker, self._lease_ms, running) for _, seat, (running, _, _) in beats]
            answers = await self._store.once(calls.heartbeat(self._keys.queue(queue), items))
            for (member, seat, held), beat in zip(beats, answers, strict=True):
                await self._answered(member, seat, held, beat)
        for member in self._members:
            if member.ready:
                await self.tell(member)

    async def _answered(
        self, member: Member, seat: SeatRecord, held: tuple[int, int, int], beat: Any
    ) -> None:
        if member.seats.get(seat.number) is not seat:
            return
        running, under_way, ended = held
        if beat.status == "LOST":
            if member.process.page.seat(seat.number)[2] != ended:
                # A job has ended while the beat was on its way: its list may be empty for that. An id that
                # really is lost will be so at the next beat, and its claims are refused meanwhile.
                return
            await self._replace_id(member, seat.number, seat.worker)
            return
        if beat.cancel:
            member.process.channel.send("cancel", seat=seat.number, ids=list(beat.cancel))
        seat.off_beats = seat.off_beats + 1 if beat.length != running + under_way else 0
        if seat.off_beats >= 2:
            seat.off_beats = 0
            member.process.channel.send("reconcile", seat=seat.number)

    def _shows_life(self, member: Member) -> bool:
        """False, and the child is killed, when it stands still; a busy one is waited for.

        A loop that does not tick while the process uses its core is in one long call: its neighbours keep
        their leases, until the earliest deadline among its jobs is past.
        """
        now = time.monotonic()
        if not member.ready:
            return True
        silent = member.process.silent_seconds(now)
        used_cpu = member.process.used_cpu()
        if silent < self._lease_seconds:
            return True
        deadline = member.process.page.earliest_deadline
        if used_cpu and not (deadline and now > deadline):
            return True
        counter: Counter = "crashes"
        reason = "held its process past a timeout" if used_cpu else "process stood still"
        if member.process.stopped():
            counter, reason = "lost", "process stopped"
        member.verdict = (counter, reason)
        logger.error("child %d: no life for %.1f s: %s", member.process.pid, silent, reason)
        member.process.kill_tree()
        return False

    async def listen_for_nudges(self) -> None:
        """A cancel is heard at once instead of with the next beat."""
        tries = 0
        while True:
            names = [
                self._keys.queue(seat.queue).control(seat.worker)
                for member in self._members
                for seat in member.seats.values()
            ]
            # What people ask of a worker goes by the name of its record.
            names += [
                self._keys.queue(member.queues[0]).control(member.name)
                for member in self._members
                if member.ready and member.queues
            ]
            if not self._starting.locked():
                reap_orphans({member.process.pid for member in self._members}, kill=False)
            if not names:
                await asyncio.sleep(0.2)
                continue
            try:
                nudge = await self._blocking.redis.blpop(names, 1.0)
                tries = 0
            except Exception as error:
                self._throttle.warning("cannot listen: %s", understand(error))
                await asyncio.sleep(retry_delay(tries))
                tries += 1
                continue
            if nudge is not None:
                self._nudge.set()

    async def tell(self, member: Member, schemas: dict[str, Any] | None = None) -> None:
        seats = member.seats.values()
        state = "stopping" if member.leaving else "quiet" if member.quiet else "running"
        wish = await self._registry.tell(
            WorkerInfo(
                id=member.name,
                host=self._host,
                pid=member.process.pid,
                supervisor_pid=os.getpid(),
                version=taskq_worker.__version__,
                started_at=member.started_at,
                seen_at=now_ms(),
                state=state,
                queues=tuple(member.queues),
                types=tuple(member.types),
                slots=self._slots,
                busy=sum(member.process.page.seat(seat.number)[0] for seat in seats),
                memory_bytes=member.memory_bytes,
                counted=member.counted,
            ),
            schemas,
        )
        if wish:
            self._wished(wish)
