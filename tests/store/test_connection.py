"""Async connections: what is packed in C, and what is sent without a timeout where none is needed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.exceptions as rx

from support.faults import stopped
from taskq.connection import connect, connect_async
from taskq.embedded import EmbeddedServer
from taskq.errors import ConfigError


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Any]:
    client = connect_async(redis_url, socket_timeout=0.3)
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    "value", [b"\x00\xff\r\n", "gr\u00fc\u00dfe", 7, -1, 2.5, b"", "x" * 3_000_000]
)
async def test_values_arrive_as_they_are(client: Any, value: Any) -> None:
    wanted = value if isinstance(value, bytes) else str(value).encode()
    assert await client.execute_command("ECHO", value) == wanted
    pipe = client.pipeline(transaction=False)
    assert await pipe.execute_command("ECHO", value).execute() == [wanted]


async def test_a_command_of_two_words_is_two_arguments(client: Any) -> None:
    assert await client.execute_command("CONFIG GET", "maxmemory")


@pytest.mark.parametrize("value", [None, [1], True])
async def test_what_has_no_form_is_refused_and_the_connection_goes_on(
    client: Any, value: Any
) -> None:
    with pytest.raises(rx.DataError):
        await client.execute_command("ECHO", value)
    assert await client.execute_command("ECHO", "x") == b"x"


async def test_a_write_that_stands_still_times_out() -> None:
    """The server takes nothing any more: what the kernel cannot hold waits for a while only."""
    with EmbeddedServer() as server:
        client = connect_async(server.url, socket_timeout=0.3)
        await client.ping()
        with stopped(server.pid), pytest.raises(rx.TimeoutError):
            async with asyncio.timeout(5):
                await client.execute_command("ECHO", b"x" * 20_000_000)
        assert await client.execute_command("ECHO", "x") == b"x"
        await client.aclose()


async def test_a_connection_that_was_closed_meanwhile_is_a_lost_connection(
    client: Any, redis_url: str
) -> None:
    """And the next call gets a new one."""
    await client.ping()
    (connection,) = client.connection_pool._available_connections
    with connect(redis_url) as other:
        other.client_kill_filter(_type="normal", skipme=True)
    connection._writer.transport.abort()

    async def ping() -> None:
        await connection.send_command("PING")
        await connection.read_response()

    with pytest.raises(rx.ConnectionError):
        await ping()
    assert await client.ping()


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("the handler is closed")])
async def test_a_write_that_fails_ends_the_connection(client: Any, error: Exception) -> None:
    await client.ping()
    (connection,) = client.connection_pool._available_connections

    def failing(_: Any) -> None:
        raise error

    connection._writer.writelines = failing
    with pytest.raises(rx.ConnectionError, match="cannot write"):
        await client.ping()
    assert not connection.is_connected
    assert await client.ping()


@pytest.mark.parametrize("make", [connect, connect_async])
def test_a_wrong_url_is_an_error_of_the_configuration(make: Any) -> None:
    with pytest.raises(ConfigError, match="URL"):
        make("http://localhost")
