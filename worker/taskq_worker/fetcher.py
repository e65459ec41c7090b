"""Claims jobs for one lane: as many as it has free slots, from the queue whose head comes first.

Nothing is taken ahead of a free slot, so the order stays the server's. When nothing waits, it blocks on
the wake lists of its types, and looks by itself when the next delayed job is due.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from taskq import calls
from taskq.errors import Unavailable
from taskq.model import Claimed, ClaimReply
from taskq.store import AsyncStore, retry_delay
from taskq_worker.failures import understand
from taskq_worker.seat import LostId, Seat
from taskq_worker.throttle import Throttle

logger = logging.getLogger("taskq.worker")

UNKNOWN, EMPTY = -math.inf, math.inf
LOOK_SECONDS = 0.25
"""A busy lane with several queues looks at the heads of all of them this often."""
PATIENCE = 5
"""Tries of a claim that fails by itself and not for the connection, before its worker id is given up."""
MIN_BLOCK_SECONDS, MAX_BLOCK_SECONDS = 0.01, 1.0


class Fetcher:
    """``start_jobs(seat, worker id, jobs)`` is given what was claimed; ``free`` tells the free slots."""

    def __init__(
        self,
        store: AsyncStore,
        blocking: AsyncStore,
        seats: Sequence[Seat],
        job_types: Sequence[str],
        *,
        lease_ms: int,
        free: Callable[[], int],
        start_jobs: Callable[[Seat, str, Sequence[Claimed]], None],
        lost_id: LostId,
    ) -> None:
        self._store = store
        self._blocking = blocking
        self._seats = seats
        self._types = list(job_types)
        self._lease_ms = lease_ms
        self._free = free
        self._start_jobs = start_jobs
        self._lost_id = lost_id
        # Half of the slots a call: the server works on one half while this process runs the other.
        self._chunk = max(10, -(-free() // 2))
        self._heads = {seat.queue: UNKNOWN for seat in seats}
        self._dues: dict[str, float] = {}
        self._throttle = Throttle(logger)
        self._looked_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.claims = self.claimed = 0
        """Claims that took jobs, and how many."""
        self.slot_freed = asyncio.Event()
        self.stopping = False
        self.quiet = False
        self.idle = True
        """No claim is under way; what a stop waits for."""

    async def run(self) -> None:
        while not self.stopping:
            if self._free() <= 0 or self.quiet:
                self.slot_freed.clear()
                await self.slot_freed.wait()
                continue
            seats = [seat for seat in self._seats if seat.worker is not None]
            if not seats:
                await self._wait_for_id()
                continue
            if len(seats) > 1:
                await self._look(seats)
            best = min(seats, key=lambda seat: self._heads[seat.queue])
            if self._heads[best.queue] == EMPTY:
                await self._block(seats)
                continue
            others = [self._heads[s.queue] for s in seats if s is not best]
            upper = min(others, default=EMPTY)
            await self._claim(best, upper if upper != EMPTY else None)

    async def _wait_for_id(self) -> None:
        waits = [asyncio.ensure_future(seat.has_id.wait()) for seat in self._seats]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _look(self, seats: Sequence[Seat]) -> None:
        """Learns the heads that are unknown, and now and then all of them."""
        now = self._loop.time()
        if now - self._looked_at > LOOK_SECONDS:
            unknown = list(seats)
            self._looked_at = now
        else:
            unknown = [seat for seat in seats if self._heads[seat.queue] == UNKNOWN]
        if unknown:
            await asyncio.gather(*(self._claim(seat, None, most=0) for seat in unknown))

    async def _claim(self, seat: Seat, upper: float | None, most: int | None = None) -> None:
        worker = seat.worker
        if most is None:
            most = min(self._free(), self._chunk)
        if worker is None or self.stopping:
            return
        if most > 0:
            seat.call = seat.answered + 1
            seat.calls_under_way += 1
            seat.publish()
        self.idle = False
        try:
            reply = await self._answer(seat, worker, most, upper)
        finally:
            self.idle = True
            if most > 0:
                seat.calls_under_way -= 1
        if reply is None:
            return
        if reply.status != "OK":
            self._refused(seat, worker, reply)
            return
        if most > 0 and seat.worker == worker:
            seat.answered = seat.call
        self._heads[seat.queue] = EMPTY if reply.next_score is None else reply.next_score
        if reply.next_due is None:
            self._dues.pop(seat.queue, None)
        else:
            self._dues[seat.queue] = self._loop.time() + (reply.next_due - reply.now) / 1000
        if reply.jobs:
            self.claims += 1
            self.claimed += len(reply.jobs)
            self._start_jobs(seat, worker, reply.jobs)
            if len(reply.jobs) < most and reply.next_score is not None and upper is None:
                # Cut short by bytes: there is more at once.
                self._heads[seat.queue] = reply.next_score
        elif most > 0:
            seat.publish()

    async def _answer(
        self, seat: Seat, worker: str, most: int, upper: float | None
    ) -> ClaimReply | None:
        """Sends the claim, with the same number, until an answer arrives or the id is taken away."""
        call = calls.claim(
            seat.keys,
            worker,
            seat.call,
            most,
            self._types,
            lease_ms=self._lease_ms,
            upper=upper,
        )
        tries = 0
        while True:
            try:
                return await self._store.once(call)
            except Exception as error:
                failure = understand(error)
                self._throttle.warning("queue %s: cannot claim: %s", seat.queue, failure)
                if not isinstance(failure, Unavailable) and tries >= PATIENCE:
                    # It is not the connection: this id's claim can never be answered.
                    return ClaimReply("LOST")
            if seat.worker != worker or (self.stopping and most == 0):
                return None
            await asyncio.sleep(retry_delay(tries))
            tries += 1

    def _refused(self, seat: Seat, worker: str, reply: ClaimReply) -> None:
        if reply.status == "TOO_OLD":
            logger.error(
                "queue %s asks for a newer taskq (protocol above %d); not served",
                seat.queue,
                calls.PROTOCOL,
            )
            self._heads[seat.queue] = EMPTY
        else:
            # LOST, or STALE after this id's calls were mixed up: both mean that this id is over.
            self._heads[seat.queue] = UNKNOWN
            self._lost_id(seat, worker)

    async def _block(self, seats: Sequence[Seat]) -> None:
        """Sleeps until something may have become claimable."""
        names = {seat.keys.wake(job_type): seat.queue for seat in seats for job_type in self._types}
        dues = [self._dues[seat.queue] for seat in seats if seat.queue in self._dues]
        due_in = min(dues, default=math.inf) - self._loop.time()
        # What is due already could not be moved to its line: looking at once again would only spin.
        timeout = MAX_BLOCK_SECONDS
        if due_in > 0:
            timeout = max(MIN_BLOCK_SECONDS, min(MAX_BLOCK_SECONDS, due_in))
        try:
            woken: Any = await self._blocking.redis.blpop(list(names), timeout)
        except Exception as error:
            self._throttle.warning("cannot wait for jobs: %s", understand(error))
            await asyncio.sleep(retry_delay(1))
            woken = None
        if woken is not None:
            self._heads[names[woken[0].decode()]] = UNKNOWN
        else:
            for seat in seats:
                self._heads[seat.queue] = UNKNOWN
