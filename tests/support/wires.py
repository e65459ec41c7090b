"""Wires of ``taskq.wire`` to a server, real or scripted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import redis

from taskq import wire
from taskq.connection import connect_async

Go = Callable[[Coroutine[Any, Any, None]], None]


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[wire.Wire]:
    client = connect_async(url, **options)
    try:
        yield client.wire
    finally:
        await client.aclose()


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(URL, what came) of a server that answers ``+OK`` to the login and ``answer`` to the rest."""
    came: list[bytes] = []
    open_: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.add(writer)
        while data := await reader.read(65536):
            logins = data.count(b"SETINFO")
            writer.write(b"+OK\r\n" * logins if logins else answer(data))
            if not logins:
                came.append(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", came
    finally:
        server.close()
        for writer in open_:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await server.wait_closed()


def connections(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("clients")["connected_clients"]) - 1  # type: ignore[index]
