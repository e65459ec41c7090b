"""What a client may do to its connection: offer another protocol, send on unasked, hang up behind a second
request, trail headers after its body."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from support.served import serving
from taskq.keys import Keys
from taskq.settings import load_settings
from taskq.store import AsyncStore
from taskq_api import protocol
from taskq_api.app import create_app

BODY = b'{"job_type":"echo"}'
POST = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """Bytes over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """(status, head and body) of the next answer."""
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            body = await self._reader.readexactly(int(length[1])) if length else b""
        return int(head.split()[1]), head + body

    async def ended(self) -> bool:
        """Waits until the server has ended the connection."""
        async with asyncio.timeout(10):
            while await self._reader.read(65536):
                pass
        return True


Connect = Callable[[int], Awaitable[Client]]


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[AsyncStore]:
    store = AsyncStore.from_url(redis_url, Keys())
    yield store
    await store.close()


async def stored(store: AsyncStore) -> int:
    return len(await store.redis.keys("taskq:{default}:job:*"))


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[Client] = []

    async def connect(port: int) -> Client:
        made.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return made[-1]

    yield connect
    for client in made:
        client.writer.close()
        await asyncio.gather(client.writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_that_offers_h2c_is_heard_in_http_1(
    connect: Connect, redis_url: str, store: AsyncStore, apart: bool, chunked: bool
) -> None:
    """Java's HttpClient offers it with its first request, with a body or without."""
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(BODY)
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY) if chunked else BODY
    async with serving(create_app(load_settings(redis_url=redis_url))) as port:
        client = await connect(port)
        client.send(POST + H2C + framing + b"\r\n\r\n")
        if apart:
            await client.writer.drain()
            other = await connect(port)
            other.send(GET)
            assert (await other.answer())[0] == 200
        client.send(body)
        assert (await client.answer())[0] == 201
        # And goes on over the same connection, also with another offer and with two requests at once.
        client.send(2 * GET.replace(b"\r\n\r\n", b"\r\n" + H2C + b"\r\n") + GET)
        assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 200]
        client.send(POST + framing + b"\r\n\r\n" + body)
        assert (await client.answer())[0] == 201
    assert await stored(store) == 2


async def test_trailers_are_no_headers(connect: Connect, redis_url: str, store: AsyncStore) -> None:
    settings = load_settings(redis_url=redis_url, api_keys="sesame")
    async with serving(create_app(settings)) as port:
        client = await connect(port)
        client.send(
            POST
            + b"Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n"
            + b"%x\r\n%s\r\n0\r\nAuthorization: Bearer sesame\r\n\r\n" % (len(BODY), BODY)
        )
        assert (await client.answer())[0] == 401
    assert await stored(store) == 0


async def test_a_refused_body_is_not_listened_to_for_ever(connect: Connect, redis_url: str) -> None:
    settings = load_settings(redis_url=redis_url, api_keys="sesame")
    async with serving(create_app(settings)) as port:
        client = await connect(port)
        client.send(POST + b"Content-Length: 1000000\r\n\r\n" + BODY)
        status, answer = await client.answer()
        assert (status, b"connection: close" in answer.lower()) == (401, True)
        assert await client.ended()


async def test_an_empty_line_keeps_no_connection_open(
    connect: Connect, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENT_SECONDS", 1.0)
    async with serving(create_app(load_settings(redis_url=redis_url))) as port:
        client = await connect(port)
        client.send(GET)
        assert (await client.answer())[0] == 200
        client.send(b"\r\n")
        assert await client.ended()


async def test_a_hang_up_behind_a_second_request_is_one(
    connect: Connect, redis_url: str, store: AsyncStore
) -> None:
    """The poll that waits takes no job for a client that is gone."""
    async with serving(create_app(load_settings(redis_url=redis_url))) as port:
        client = await connect(port)
        body = b'{"job_types":["echo"],"wait":30}'
        client.send(
            POST.replace(b"/jobs", b"/leases")
            + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            + GET
        )
        async with asyncio.timeout(10):
            while not await store.redis.zcard("taskq:workers"):
                await asyncio.sleep(0.01)
            client.writer.transport.abort()
            while await store.redis.zcard("taskq:workers"):
                await asyncio.sleep(0.01)
        other = await connect(port)
        other.send(POST + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        assert (await other.answer())[0] == 201
        other.send(GET.replace(b"/health", b"/queues/default"))
        status, answer = await other.answer()
        assert (status, b'"queued":1' in answer) == (200, True)


async def test_paths_below_a_mount_are_one_route_to_metrics(api: Any) -> None:
    """There may be any number of them."""
    for i in range(5):
        assert (await api.http.get(f"/assets/no-such-{i}")).status_code == 404
    page = (await api.http.get("/metrics")).text
    assert "no-such" not in page
    assert re.search(r'taskq_api_requests_total\{[^}]*route="/assets"[^}]*\} 5', page)
