"""Carries calls over a connection: the one place where sockets, lost connections and server errors are.

``Store`` (sync) and ``AsyncStore`` share all decisions and differ only in how they wait. A call whose
connection broke is sent again: every transition may be repeated (that is the scripts' contract), so a
retry here can neither double nor lose a job.
"""

import asyncio
import contextlib
import functools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import redis
import redis.asyncio
import redis.exceptions as rx

from taskq.calls import Call
from taskq.connection import AsyncRedis, connect, connect_async, pipelined
from taskq.errors import BrokenKey, OutOfMemory, TaskqError, Unavailable
from taskq.keys import Keys
from taskq.lua import Script

T = TypeVar("T")

RETRY_CAP_SECONDS = 2.0
RETRY_SECONDS = 5.0
"""How long a client tries again before it gives up with ``Unavailable``."""
MOST_CALLS = 64
"""Calls of one async client that are under way at once. More gain nothing, as the server runs one at a
time; the others wait in order."""
ROOM_SECONDS = 10.0
"""How long a call waits for its turn among them, before it gives up with ``Unavailable``."""

_BY_WORD = {
    "LOADING": "loading",
    "BUSY": "busy",
    "READONLY": "readonly",
    "NOREPLICAS": "noreplicas",
    "MISCONF": "misconf",
    "MASTERDOWN": "readonly",
    "UNBLOCKED": "readonly",
    "TRYAGAIN": "tryagain",
    "CLUSTERDOWN": "connection",
}


def translate(error: Exception) -> TaskqError:
    """The library's error for one of redis-py's: the seam where foreign errors end."""
    text = str(error)
    word = text.split(" ", 1)[0].lstrip("-")
    if isinstance(error, rx.OutOfMemoryError) or word == "OOM" or "OOM command not allowed" in text:
        return OutOfMemory(
            "Redis is at maxmemory and takes no new work; free memory or raise maxmemory"
        )
    if isinstance(error, (rx.AuthenticationError, rx.AuthorizationError)) or word in (
        "NOAUTH",
        "WRONGPASS",
    ):
        return Unavailable(
            "Redis refused the login; check the user and password in the URL", reason="auth"
        )
    if isinstance(error, rx.ReadOnlyError):
        word = "READONLY"
    if isinstance(error, rx.BusyLoadingError):
        word = "LOADING"
    if word in _BY_WORD:
        return Unavailable(f"Redis cannot take the call now: {text[:200]}", reason=_BY_WORD[word])
    if isinstance(error, (rx.TimeoutError, TimeoutError)):
        return Unavailable("Redis did not answer in time", reason="timeout")
    if isinstance(error, (rx.ConnectionError, ConnectionError, OSError)):
        return Unavailable(f"Redis is not reachable: {text[:200]}", reason="connection")
    if word == "BROKEN_KEY":
        return BrokenKey(
            f"the key {text.partition(' ')[2]!r} has the wrong type: run `taskq doctor`"
        )
    if isinstance(error, rx.ResponseError) and "BROKEN_KEY" in text:
        return BrokenKey(f"{text[:200]}: run `taskq doctor`")
    return TaskqError(f"Redis answered an error: {text[:300]}")


def _may_repeat(error: TaskqError) -> bool:
    # Out of memory is the caller's to know at once; a wrong password does not heal by itself.
    return isinstance(error, Unavailable) and error.reason not in ("oom", "auth")


def retry_delay(tries: int) -> float:
    """Seconds before try number ``tries`` + 1: grows, is capped at 2 s, and is spread."""
    return min(RETRY_CAP_SECONDS, 0.02 * 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)


class _Repeats(Generic[T]):
    """The call to send at each try: what was sent once may have been done."""

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._sent = False

    def next(self) -> Call[T]:
        if self._sent and self._call.again is not None:
            self._call = self._call.again()
        self._sent = True
        return self._call


def time_ms(clock: Sequence[Any]) -> int:
    """The ms since the epoch that an answer to TIME stands for."""
    seconds, microseconds = clock
    return int(seconds) * 1000 + int(microseconds) // 1000


def _evalsha(call: Call[Any]) -> tuple[Any, ...]:
    return ("EVALSHA", call.script.sha, 1, call.prefix, *call.args)


def _eval(call: Call[Any], body: str) -> tuple[Any, ...]:
    return ("EVAL", body, 1, call.prefix, *call.args)


class Store:
    """Sync carrier; safe over threads (each call takes a connection of the pool)."""

    def __init__(
        self, client: "redis.Redis", keys: Keys, *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self.redis = client
        self._execute: Callable[..., Any] = client.execute_command
        self._pubsub: Callable[[], Any] = client.pubsub
        self.keys = keys
        self.retry_seconds = retry_seconds
        self._known_queues: set[str] = set()

    @classmethod
    def from_url(
        cls, url: str, keys: Keys, *, retry_seconds: float = RETRY_SECONDS, **options: Any
    ) -> "Store":
        return cls(connect(url, **options), keys, retry_seconds=retry_seconds)

    def run(self, call: Call[T]) -> T:
        """Sends a call and answers its values. Raises ``Unavailable`` after ``retry_seconds`` of trying."""
        tries = _Repeats(call)
        return self.retrying(lambda: self._once(tries.next()))

    def _once(self, call: Call[T]) -> T:
        try:
            reply = self._execute(*_evalsha(call))
        except rx.NoScriptError:
            reply = self._execute(*_eval(call, _body(self.redis, call.script)))
        return call.parse(reply)

    def retrying(self, action: Callable[[], T]) -> T:
        """Does ``action`` (which must be safe to repeat) until it succeeds or time runs out."""
        until = time.monotonic() + self.retry_seconds
        tries = 0
        while True:
            try:
                return action()
            except (redis.RedisError, OSError) as error:
                failure = translate(error)
                pause = retry_delay(tries)
                tries += 1
                if not _may_repeat(failure) or time.monotonic() + pause > until:
                    raise failure from error
                time.sleep(pause)

    def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Plain reads in one round trip; an error of a single command stands in its place."""

        def action() -> list[Any]:
            pipe: Any = self.redis.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute(raise_on_error=False))

        return self.retrying(action)

    def know_queue(self, queue: str) -> None:
        """Enters the queue in the registry before its first job: janitors find their work by it."""
        if queue not in self._known_queues:
            self.retrying(lambda: self.redis.sadd(self.keys.queues, queue))
            self._known_queues.add(queue)

    def wait_message(
        self, channel: str, over: Callable[[], bool], timeout: float | None, recheck_seconds: float
    ) -> bool:
        """Waits until ``over()``: asked at first, after each message on ``channel``, and now and then.

        False when ``timeout`` seconds ran out.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pubsub = self._pubsub()
        try:
            self.retrying(lambda: pubsub.subscribe(channel))
            while not over():
                pause = recheck_seconds
                if until is not None:
                    pause = min(pause, until - time.monotonic())
                    if pause <= 0:
                        return False
                self.retrying(functools.partial(pubsub.get_message, timeout=pause))
            return True
        finally:
            pubsub.close()

    def close(self) -> None:
        self.redis.close()


class AsyncStore:
    """Async carrier, for one event loop."""

    def __init__(
        self, client: "redis.asyncio.Redis", keys: Keys, *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self.redis = client
        # fakeredis, for one, has no wire.
        self._ask: Callable[..., Awaitable[Any]] = self._ask_pool
        self._ask_all: Callable[..., Awaitable[list[Any]]] = functools.partial(pipelined, client)
        if isinstance(client, AsyncRedis):
            self._ask, self._ask_all = client.wire.ask, client.ask_all
        self.keys = keys
        self.retry_seconds = retry_seconds
        self.errors: Counter[str] = Counter()
        """Calls that failed, by the reason of ``Unavailable`` (``error``: another one), tries included."""
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._known_queues: set[str] = set()

    @classmethod
    def from_url(
        cls, url: str, keys: Keys, *, retry_seconds: float = RETRY_SECONDS, **options: Any
    ) -> "AsyncStore":
        return cls(connect_async(url, **options), keys, retry_seconds=retry_seconds)

    async def run(self, call: Call[T], *, retry_seconds: float | None = None) -> T:
        """Sends a call and answers its values. Raises ``Unavailable`` after ``retry_seconds`` of trying."""
        tries = _Repeats(call)
        return await self.retrying(lambda: self.once(tries.next()), retry_seconds=retry_seconds)

    async def once(self, call: Call[T]) -> T:
        """Sends a call once; redis-py's errors pass through."""
        await self._enter()
        try:
            try:
                reply = await self._ask(*_evalsha(call))
            except rx.NoScriptError:
                reply = await self._ask(*_eval(call, _body(self.redis, call.script)))
        except (redis.RedisError, OSError) as error:
            self._count(error)
            raise
        finally:
            self._room.release()
        return call.parse(reply)

    async def _ask_pool(self, *words: Any) -> Any:
        client: Any = self.redis
        return await _cancellable(client.execute_command(*words))

    async def _enter(self) -> None:
        """Takes a place among the calls under way. Raises ``Unavailable`` where none becomes free in time."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            self.errors["timeout"] += 1
            raise Unavailable(
                f"{MOST_CALLS} calls wait for Redis already, and none was answered in time",
                reason="timeout",
            ) from None

    def _count(self, error: Exception) -> None:
        failure = translate(error)
        self.errors[failure.reason if isinstance(failure, Unavailable) else "error"] += 1

    async def retrying(
        self, action: Callable[[], Awaitable[T]], *, retry_seconds: float | None = None
    ) -> T:
        """Does ``action`` (which must be safe to repeat) until it succeeds or time runs out."""
        until = time.monotonic() + (self.retry_seconds if retry_seconds is None else retry_seconds)
        tries = 0
        while True:
            try:
                return await action()
            except (redis.RedisError, OSError) as error:
                failure = translate(error)
                pause = retry_delay(tries)
                tries += 1
                if not _may_repeat(failure) or time.monotonic() + pause > until:
                    raise failure from error
                await asyncio.sleep(pause)

    async def know_queue(self, queue: str) -> None:
        """Enters the queue in the registry before its first job: janitors find their work by it."""
        if queue not in self._known_queues:
            await self.retrying(lambda: self._ask("SADD", self.keys.queues, queue))
            self._known_queues.add(queue)

    async def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Plain commands in one round trip, which may be sent more than once; an error of a single one stands
        in its place.

        They share a connection with all calls: what may block on the server goes over ``block``.
        """
        return await self.retrying(lambda: self._asked(self._ask_all, commands))

    async def read(
        self, commands: Sequence[tuple[Any, ...]], calls: Sequence[Call[T]]
    ) -> tuple[list[Any], list[T]]:
        """Plain reads, and calls that change nothing, in one round trip. An error of a command stands in its
        place; a call that fails is sent again by itself, and raises what ``run`` does."""
        replies = await self.pipeline([*commands, *map(_evalsha, calls)])
        told = replies[len(commands) :]
        failed = [i for i, reply in enumerate(told) if isinstance(reply, Exception)]
        answers: dict[int, T] = {}
        if failed:
            # Most likely the server does not know the script: the first call brings it.
            first, *rest = failed
            answers[first] = await self.run(calls[first])
            again = await asyncio.gather(*(self.run(calls[i]) for i in rest))
            answers.update(zip(rest, again, strict=True))
        parsed = [
            answers[i] if i in answers else call.parse(reply)
            for i, (call, reply) in enumerate(zip(calls, told, strict=True))
        ]
        return replies[: len(commands)], parsed

    async def clock_ms(self) -> int:
        """The server's clock: ms since the epoch."""
        (clock,) = await self.pipeline([("TIME",)])
        if isinstance(clock, Exception):
            raise translate(clock)
        return time_ms(clock)

    async def block(self, *command: Any) -> Any:
        """The answer to a command that the server may keep for a while, over a connection of its own."""

        async def action() -> Any:
            (answer,) = await self._asked(pipelined, self.redis, [command])
            if isinstance(answer, Exception):
                raise answer
            return answer

        return await self.retrying(action)

    async def _asked(self, ask: Callable[..., Awaitable[list[Any]]], *args: Any) -> list[Any]:
        await self._enter()
        try:
            return await _cancellable(ask(*args))
        except (redis.RedisError, OSError) as error:
            self._count(error)
            raise
        finally:
            self._room.release()

    def abandon(self) -> None:
        """Closes the sockets when the event loop is closed already: nothing can be awaited on it."""
        pool: Any = self.redis.connection_pool
        for connection in [
            *getattr(pool, "_available_connections", ()),
            *getattr(pool, "_in_use_connections", ()),
        ]:
            _drop(getattr(getattr(connection, "_writer", None), "transport", None))
            connection._writer = connection._reader = None
        if isinstance(self.redis, AsyncRedis):
            _drop(self.redis.wire.transport)

    async def close(self) -> None:
        await self.redis.aclose()


def _drop(transport: Any) -> None:
    """Closes the socket of a transport whose loop is closed."""
    # uvloop has closed its own with the loop; asyncio's are closed under their transports.
    with contextlib.suppress(AttributeError):
        sock, transport._sock, transport._closing = transport._sock, None, True
        sock.close()


async def _cancellable(reply: Awaitable[T]) -> T:
    """Awaits redis-py so that a cancellation is always raised.

    It sends under ``asyncio.wait_for``, which before Python 3.12 drops one that comes at the moment when the
    bytes are out; whoever cancelled would wait for ever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    value = await reply
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return value


def _body(client: Any, script: Script) -> str:
    """The text to load. fakeredis cannot read the ``#!lua`` line; real servers need its flags."""
    return script.plain if type(client).__module__.startswith("fakeredis") else script.body
