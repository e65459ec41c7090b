"""A seat: one queue as served by one lane of a child, under one worker id at a time.

Worker ids are single use. When one is lost, the seat gets a new one from the supervisor and goes on.
"""

import asyncio
from collections.abc import Callable

from taskq.keys import QueueKeys
from taskq_worker.runs import Run
from taskq_worker.shared import SharedPage


class Seat:
    """Bookkeeping of what is held here: every claimed job whose exit is not yet acknowledged."""

    def __init__(self, number: int, keys: QueueKeys, page: SharedPage) -> None:
        self.number = number
        self.keys = keys
        self.queue = keys.queue
        self.worker: str | None = None
        self.has_id = asyncio.Event()
        self.call = 0
        """Number of the last claim sent; ``answered`` of the last whose answer arrived."""
        self.answered = 0
        self.running: dict[str, Run] = {}
        self.lost: dict[str, Run] = {}
        """Runs whose id was lost, until they are over."""
        self.committing: dict[str, Run] = {}
        self.calls_under_way = 0
        self.ended = 0
        """Runs that are over; told before their reports are sent."""
        self._page = page

    def take_id(self, worker: str) -> None:
        self.worker = worker
        self.call = self.answered = 0
        self.has_id.set()

    def lose_id(self) -> list[Run]:
        """The id is dead: answers the runs that were under it. Nothing is claimed until a new one comes."""
        lost = list(self.running.values())
        self.lost.update(self.running)
        self.running = {}
        self.worker = None
        self.has_id.clear()
        self.publish()
        return lost

    def find(self, ulid: str) -> Run | None:
        """A run of this job that is not over yet."""
        return self.running.get(ulid) or self.lost.get(ulid)

    def drop(self, run: Run) -> None:
        for runs in (self.running, self.lost):
            if runs.get(run.claimed.ulid) is run:
                del runs[run.claimed.ulid]

    def held(self) -> list[tuple[str, str]]:
        """(ulid, fence) of all that is held under the present id."""
        runs = [*self.running.values(), *self.committing.values()]
        return [(r.claimed.ulid, r.claimed.fence) for r in runs if r.worker == self.worker]

    def bring_forward(self, deadline: float) -> None:
        """Tells the supervisor of a deadline before the job starts."""
        self._page.bring_forward(deadline)

    def publish(self) -> None:
        """Tells the supervisor what is held.

        Called before a report is sent: a job whose report is on its way may be gone from the server's list
        already, so it must count as 'under way' by then, not as running.
        """
        self._page.set_seat(
            self.number,
            len(self.running),
            len(self.committing) + self.calls_under_way,
            self.ended,
        )


LostId = Callable[[Seat, str], None]
"""Called with a seat and the id that the server refused."""
