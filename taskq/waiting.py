"""One pub/sub connection an event loop, shared by all who wait for the end of a job."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import redis

from taskq.connection import make_connection
from taskq.store import AsyncStore, retry_delay

LINGER_SECONDS = 10.0
"""How long the connection is kept when nobody waits."""


class Waiters:
    """Wakes waiters when a message comes on their channel, and when their subscription begins.

    A notice may be lost with its connection; waiters look again by themselves from time to time. One task
    owns the connection: waiters only say what they want, so that one that is cancelled leaves nothing
    half done, and nobody writes to a connection that somebody else is just making anew.
    """

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._events: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._changed = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set when the subscription begins, and by each message on ``channel``."""
        event = asyncio.Event()
        self._events[channel].add(event)
        self._changed.set()
        if self._owner is None or self._owner.done():
            self._owner = asyncio.create_task(self._own())
        try:
            yield event
        finally:
            self._events[channel].discard(event)
            if not self._events[channel]:
                del self._events[channel]
                self._changed.set()

    async def _own(self) -> None:
        """Connects, again and again, for as long as somebody waits."""
        tries = 0
        while self._events:
            # It is silent most of the time: no timeout of a read must end it.
            connection = make_connection(self._store.redis, socket_timeout=None)
            try:
                await connection.connect()
                tries = 0
                await self._follow(connection)
            except (redis.RedisError, OSError):
                await asyncio.sleep(retry_delay(tries))
                tries += 1
            finally:
                await connection.disconnect(nowait=True)

    async def _follow(self, connection: Any) -> None:
        """Subscribes to what is waited for and passes messages on, until nobody waits for a while."""
        subscribed: set[str] = set()
        read: asyncio.Task[Any] = asyncio.create_task(connection.read_response())
        try:
            while True:
                self._changed.clear()
                wanted = set(self._events)
                if wanted - subscribed:
                    await connection.send_command("SUBSCRIBE", *(wanted - subscribed))
                if subscribed - wanted:
                    await connection.send_command("UNSUBSCRIBE", *(subscribed - wanted))
                subscribed = wanted
                changed = asyncio.create_task(self._changed.wait())
                done, _ = await asyncio.wait(
                    {read, changed},
                    timeout=None if wanted else LINGER_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changed.cancel()
                if not done:
                    return
                if read in done:
                    self._pass_on(read.result())
                    read = asyncio.create_task(connection.read_response())
        finally:
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)

    def _pass_on(self, message: Any) -> None:
        kind, channel = message[0], message[1]
        if kind in (b"message", b"subscribe"):
            for event in self._events.get(channel.decode(), ()):
                event.set()

    async def close(self) -> None:
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.gather(self._owner, return_exceptions=True)
