"""One pub/sub connection an event loop, shared by all who wait for the end of a job."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import redis

from taskq.aio import end_tasks
from taskq.store import AsyncStore, retry_delay


class Waiters:
    """Wakes waiters when a message comes on their channel.

    A notice may be lost with its connection; waiters look again by themselves from time to time.
    """

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._events: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._pubsub: Any = None
        self._reader: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set by each message on ``channel`` from now on."""
        event = asyncio.Event()
        self._events[channel].add(event)
        try:
            await self._subscribe(channel)
            yield event
        finally:
            self._events[channel].discard(event)
            if not self._events[channel]:
                del self._events[channel]
                with contextlib.suppress(redis.RedisError, OSError):
                    await self._pubsub.unsubscribe(channel)

    async def _subscribe(self, channel: str) -> None:
        if self._pubsub is None:
            self._pubsub = self._store.redis.pubsub()
        await self._store.retrying(lambda: self._pubsub.subscribe(channel))
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        tries = 0
        while self._events:
            try:
                message = await self._pubsub.get_message(timeout=1.0)
                tries = 0
            except (redis.RedisError, OSError):
                # redis-py subscribes again when it reconnects; what was said meanwhile is looked up.
                await asyncio.sleep(retry_delay(tries))
                tries += 1
                continue
            if message is not None and message["type"] in ("message", "subscribe"):
                for event in self._events.get(message["channel"].decode(), ()):
                    event.set()

    async def close(self) -> None:
        await end_tasks(self._reader)
        if self._pubsub is not None:
            await self._pubsub.aclose()
