"""A lane: up to 250 slots of a child with their seats, a fetcher and a committer.

A list of running ids is walked when one leaves it, so a worker id should not hold more than that.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from taskq.context import Context
from taskq.ids import join_id
from taskq.model import Claimed
from taskq.store import AsyncStore
from taskq.tasks import Task
from taskq_worker.committer import Committer
from taskq_worker.fetcher import Fetcher
from taskq_worker.options import STUBBORN_SECONDS
from taskq_worker.outcome import of_exception
from taskq_worker.reporter import Reporter
from taskq_worker.runner import Runner
from taskq_worker.runs import Released, Run
from taskq_worker.seat import LostId, Seat

logger = logging.getLogger("taskq.worker")

MAX_SLOTS = 250


class Lane:
    def __init__(
        self,
        *,
        slots: int,
        seats: Sequence[Seat],
        tasks: dict[str, Task[Any, Any]],
        runner: Runner,
        stores: "tuple[AsyncStore, AsyncStore, AsyncStore]",
        lease_ms: int,
        state: Any,
        reporter: Reporter,
        lost_id: LostId,
        ended: Callable[[Run], None],
    ) -> None:
        self.slots = slots
        self.seats = {seat.queue: seat for seat in seats}
        self.runs: dict[Context, Run] = {}
        self._tasks = tasks
        self._runner = runner
        self._state = state
        self._reporter = reporter
        self._ended = ended
        claiming, blocking, reporting = stores
        self.committer = Committer(reporting, reporter, self._acknowledged)
        self.fetcher = Fetcher(
            claiming,
            blocking,
            list(seats),
            list(tasks),
            lease_ms=lease_ms,
            free=self.free,
            start_jobs=self.start_jobs,
            lost_id=lost_id,
        )

    def free(self) -> int:
        """Slots to fill. While reports pile up (Redis is away) nothing more is taken."""
        if len(self.committer) > 2 * self.slots:
            return 0
        return self.slots - len(self.runs)

    def start_jobs(self, seat: Seat, worker: str, jobs: Sequence[Claimed]) -> None:
        """Starts what was claimed, or hands it back when the lane is stopping."""
        earliest = math.inf
        for claimed in jobs:
            task = self._tasks[claimed.job_type]
            timeout_ms = claimed.timeout_ms
            if timeout_ms is None:
                timeout_ms = round(task.defaults.timeout * 1000)
            context = Context(
                job_id=join_id(seat.queue, claimed.ulid),
                job_type=claimed.job_type,
                queue=seat.queue,
                attempt=claimed.attempts,
                failures=claimed.failures,
                fence=int(claimed.fence),
                created_at=claimed.created_at,
                state=self._state,
            )
            run = Run(claimed, seat, worker, context, timeout_ms / 1000)
            context._tell = partial(self._reporter.tell, run)
            if not claimed.suspect:
                # A suspect may have to wait for its turn: its clock starts with its process.
                run.start_clock()
                if run.deadline is not None and run.deadline < earliest:
                    earliest = run.deadline
            older = seat.find(claimed.ulid)
            if seat.worker == worker:
                seat.running[claimed.ulid] = run
            else:
                run.context._ask_to_stop("lease_lost")
            self.runs[context] = run
            if self.fetcher.stopping:
                run.outcome = Released("stop")
                self._over(run)
            else:
                run.task = asyncio.create_task(self._run(run, older))
        if earliest < math.inf:
            seat.bring_forward(earliest + STUBBORN_SECONDS)
        seat.publish()

    async def _run(self, run: Run, older: Run | None) -> None:
        run.started = True
        try:
            if older is not None:
                # The first run of a job must be over before the second begins.
                await older.over.wait()
        except asyncio.CancelledError as error:
            run.outcome = of_exception(run, None, error)
        else:
            run.outcome = await self._runner.outcome(run)
        finally:
            # Whatever happens above, the slot comes back.
            self._over(run)

    def _over(self, run: Run) -> None:
        if run.outcome is None:
            logger.critical("job %s: ended without an outcome, please report it", run.job_id)
            run.outcome = Released("internal error")
        run.over.set()
        del self.runs[run.context]
        run.seat.drop(run)
        run.seat.ended += 1
        if not run.written_off:
            run.seat.committing[run.claimed.fence + run.claimed.ulid] = run
            self.committer.add(run)
        self.fetcher.slot_freed.set()
        self._ended(run)

    def _acknowledged(self, run: Run) -> None:
        run.seat.committing.pop(run.claimed.fence + run.claimed.ulid, None)
        if len(self.committer) <= 2 * self.slots:
            self.fetcher.slot_freed.set()
