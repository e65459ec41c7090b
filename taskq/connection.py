"""Connections to Redis, made in one place: which options they have, and that they never retry by themselves.

Repeating is the store's, which knows what is safe.
"""

import functools
from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio
import redis.backoff
import redis.exceptions as rx
from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from taskq.errors import ConfigError
from taskq.wire import Wire, pack

MOST_ON_WIRE = 256
"""Commands at once that share a connection with all other calls; what asks for more gets one of the pool."""


def connect(url: str, **options: Any) -> "redis.Redis":
    """A sync client. Raises ``ConfigError``."""
    try:
        return redis.Redis.from_url(
            url, **{**_options(url), "retry": Retry(redis.backoff.NoBackoff(), 0), **options}
        )
    except ValueError as error:
        raise ConfigError(f"the Redis URL is wrong: {error}") from None


class AsyncRedis(redis.asyncio.Redis):
    """redis-py's client, with a ``wire`` for what never blocks on the server."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        pool: Any = self.connection_pool
        pool.connection_class = _quick(pool.connection_class)
        self.wire = Wire(lambda: make_connection(self))
        self._resp2 = str(pool.connection_kwargs.get("protocol")) == "2"

    async def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What ``pipelined`` answers, for commands that never block, over the wire where it can."""
        if len(commands) > MOST_ON_WIRE or not self._resp2:
            return await pipelined(self, commands)
        forms: Any = self.response_callbacks
        return [
            forms[name](reply) if (name := command[0]) in forms and not _failed(reply) else reply
            for command, reply in zip(commands, await self.wire.ask_all(commands), strict=True)
        ]

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        try:
            await self.wire.close()
        finally:
            await super().aclose(close_connection_pool)


def connect_async(url: str, **options: Any) -> AsyncRedis:
    """A client for one event loop. Raises ``ConfigError``."""
    retry = AsyncRetry(redis.backoff.NoBackoff(), 0)
    try:
        client: Any = AsyncRedis.from_url(url, **{**_options(url), "retry": retry, **options})
    except ValueError as error:
        raise ConfigError(f"the Redis URL is wrong: {error}") from None
    assert isinstance(client, AsyncRedis)
    return client


def make_connection(client: "redis.asyncio.Redis", **options: Any) -> Any:
    """A connection of the client's kind that its pool does not know, not yet connected.

    It speaks RESP2 whatever the URL asks for: RESP3 has messages that answer nobody.
    """
    pool: Any = client.connection_pool
    return pool.connection_class(**{**pool.connection_kwargs, **options, "protocol": 2})


async def pipelined(
    client: "redis.asyncio.Redis", commands: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """The answers to commands in one round trip over a connection of the pool, in redis-py's forms.

    An error of a single command stands in its place, but for those that are about the connection (no login,
    a server that is loading): these are raised. For any client, and for commands that may block.
    """
    if isinstance(client, AsyncRedis):
        client.wire.check_open()
    pipe: Any = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return list(await pipe.execute(raise_on_error=False))


class _Quick:
    """Before redis-py's async connection: without two costs that its sync one has not, or not so high."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """By hiredis: redis-py's own loop copies all that is packed so far for each argument, and a claim
        or a batch of submissions has hundreds."""
        if b" " in (command := _bytes(args[0])):
            args = (*command.split(), *args[1:])
        return [pack(args)]

    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> None:
        """Without a timeout, and before Python 3.12 a task for it, where nothing is left to wait for."""
        plain = super().send_packed_command  # type: ignore[misc]
        if self.health_check_interval or not (self.is_connected and isinstance(command, list)):
            await plain(command, check_health)
            return
        writer = self._writer
        if writer.get_extra_info("ssl_object") is not None:
            # What waits below the encryption cannot be seen.
            await plain(command, check_health)
            return
        try:
            writer.writelines(command)
            waits = writer.transport.get_write_buffer_size()
        except (OSError, RuntimeError) as error:  # the latter is uvloop's for a closed transport
            await self.disconnect(nowait=True)
            raise rx.ConnectionError(f"cannot write to Redis: {error}") from error
        if waits:
            await plain([], check_health)


@functools.cache
def _quick(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (_Quick, kind), {})


def _failed(reply: Any) -> bool:
    return isinstance(reply, rx.RedisError)


def _bytes(command: str | bytes) -> bytes:
    return command.encode() if isinstance(command, str) else command


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": 10.0,
        "socket_connect_timeout": 5.0,
        "max_connections": 200,
    }
    if not url.startswith("unix"):
        options["socket_keepalive"] = True
    return options
