"""Waits for work on behalf of long polls: one look for all clients that wait for the same types of a queue.

A wake token is given to one of them, the one that has waited longest. Tokens may be lost (a process dies, a
client is gone by then), so each group also looks by itself, as workers do: the cost of idle clients is one
blocking read a second for each kind of them, however many there are.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import redis

from taskq import calls
from taskq.aio import end_tasks
from taskq.errors import InvalidInput
from taskq.ids import check_job_type
from taskq.keys import QueueKeys
from taskq.store import AsyncStore, retry_delay, translate

logger = logging.getLogger("taskq.api")

MIN_BLOCK_SECONDS, MAX_BLOCK_SECONDS = 0.01, 1.0
LOOK_SECONDS = 0.25
"""Between two looks for clients that take any type: there is no list that they could all block on."""
WOKEN_AT_ONCE = 8
YIELD_SECONDS = 0.05
"""So long those who were woken have to claim before there is another look."""
MOST_TYPES = 2000
_LOOKER = "http-look"


class Polls:
    """One per process. ``blocking`` carries the reads that wait, over connections of their own."""

    def __init__(self, store: AsyncStore, blocking: AsyncStore) -> None:
        self._store = store
        self._blocking = blocking
        self._groups: dict[tuple[str, tuple[str, ...]], _Group] = {}

    async def types(self, keys: QueueKeys, wanted: Sequence[str] | None) -> list[str]:
        """The types to claim: those that are wanted, or all that wait now."""
        if wanted is not None:
            return list(wanted)
        await self._store.run(calls.promote(keys, 200))
        (page,) = await self._store.pipeline([("SSCAN", keys.lines, 0, "COUNT", MOST_TYPES)])
        if isinstance(page, Exception):
            raise translate(page)
        return [name for raw in page[1] if (name := _type(raw))][:MOST_TYPES]

    @contextlib.asynccontextmanager
    async def waiting(
        self, keys: QueueKeys, wanted: Sequence[str] | None
    ) -> AsyncIterator["asyncio.Event"]:
        """An event that is set when there may be work for one more."""
        key = (keys.queue, ("",) if wanted is None else tuple(sorted(set(wanted))))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self, keys, wanted, lambda _: self._groups.pop(key))
        event = group.join()
        try:
            yield event
        finally:
            group.leave(event)

    async def block(self, keys: QueueKeys, wanted: Sequence[str], seconds: float) -> bool:
        """Waits for a wake token; False when none came."""
        names = [keys.wake(job_type) for job_type in wanted]
        client: Any = self._blocking.redis
        try:
            return await client.blpop(names, seconds) is not None
        except (redis.RedisError, OSError):
            # Perhaps there are more kinds of clients than connections: then the looks have to do.
            await asyncio.sleep(seconds)
            return False

    async def look(self, keys: QueueKeys, wanted: Sequence[str] | None) -> tuple[bool, float]:
        """(whether something waits, seconds until something is due)."""
        types = await self.types(keys, wanted)
        reply = await self._store.run(calls.claim(keys, _LOOKER, 0, 0, types, lease_ms=1000))
        due = MAX_BLOCK_SECONDS
        if reply.next_due is not None and reply.next_due > reply.now:
            due = (reply.next_due - reply.now) / 1000
        return reply.next_score is not None, due

    async def close(self) -> None:
        await end_tasks(*(group.task for group in self._groups.values()))
        await self._blocking.close()


class _Group:
    """Clients that wait for the same."""

    def __init__(
        self,
        polls: Polls,
        keys: QueueKeys,
        wanted: Sequence[str] | None,
        over: Callable[["_Group"], Any],
    ) -> None:
        self._polls = polls
        self._keys = keys
        self._wanted = wanted
        self._waiters: deque[asyncio.Event] = deque()
        self._over = over
        self.task = asyncio.create_task(self._run())

    def join(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiters.append(event)
        return event

    def leave(self, event: asyncio.Event) -> None:
        with contextlib.suppress(ValueError):
            self._waiters.remove(event)

    def wake(self, most: int) -> None:
        for _ in range(min(most, len(self._waiters))):
            self._waiters.popleft().set()

    async def _run(self) -> None:
        """Looks for as long as somebody waits. What fails is tried again."""
        tries, due = 0, MAX_BLOCK_SECONDS
        try:
            while self._waiters:
                try:
                    due = await self._round(due)
                    tries = 0
                except Exception as error:
                    if tries == 0:
                        logger.warning("cannot wait for jobs of %s: %s", self._keys.queue, error)
                    await asyncio.sleep(retry_delay(tries))
                    tries += 1
        finally:
            self._over(self)

    async def _round(self, due: float) -> float:
        """Waits for a token, then looks; answers when the next job is due, in seconds."""
        token = False
        if self._wanted is None:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            seconds = max(MIN_BLOCK_SECONDS, min(MAX_BLOCK_SECONDS, due))
            token = await self._polls.block(self._keys, self._wanted, seconds)
        # Also after a token: it may only tell of a job that is due sooner than others.
        waits, due = await self._polls.look(self._keys, self._wanted)
        if waits:
            self.wake(1 if token else WOKEN_AT_ONCE)
            if not token:
                await asyncio.sleep(YIELD_SECONDS)
        return due


def _type(raw: bytes) -> str | None:
    try:
        return check_job_type(raw.decode())
    except (UnicodeDecodeError, InvalidInput):
        return None
