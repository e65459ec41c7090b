"""A web that tests own: a server that misbehaves on demand, names that lie, and calls of ``http_call``."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpcore

from taskq_worker.handlers import HandlerSettings
from taskq_worker.handlers.http_call import HttpCallHandler

OPEN = HandlerSettings(http_allow_private=True)
PUBLIC = "93.184.216.34"
SECRET = "sesame-7391"


@dataclass
class Context:
    """A `HandlerContext` that remembers what it was told."""

    job_id: str = "default:01J"
    attempt: int = 1
    fence: int = 1
    cancelled: bool = False
    lines: list[str] = field(default_factory=list)

    def log(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, fraction: float, message: str = "") -> None:
        pass


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Reply = Callable[["Server", Request, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A real HTTP server on loopback; `replies` maps a path to raw bytes or to a coroutine."""

    def __init__(self) -> None:
        self.replies: dict[str, bytes | Reply] = {}
        self.requests: list[Request] = []
        self.client_gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ", 2)
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Request(method, target, headers, body)
            self.requests.append(request)
            reply = self.replies[target.partition("?")[0]]
            if isinstance(reply, bytes):
                writer.write(reply)
                await writer.drain()
            else:
                gone = asyncio.ensure_future(reader.read())
                gone.add_done_callback(lambda _: self.client_gone.set())
                try:
                    await reply(self, request, writer)
                finally:
                    gone.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_gone.set()
        finally:
            writer.close()


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, Location=location)


async def drip(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
    """A byte now and then, for ever: no single read is ever slow."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while not web.client_gone.is_set():
        writer.write(b"x")
        await writer.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(web.client_gone.wait(), 0.01)


async def endless(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not web.client_gone.is_set():
        writer.write(b"y" * 65_536)
        await writer.drain()


class Names:
    """A resolver with scripted answers, one per call; the last one stays."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        lists = self.answers[host]
        return lists.pop(0) if len(lists) > 1 else lists[0]


class Dialler(httpcore.AnyIOBackend):
    """Records what is dialled and connects to the local server instead of the public address."""

    def __init__(self, dead: Sequence[str] = ()) -> None:
        self.dialled: list[str] = []
        self._dead = dead

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host in self._dead:
            raise httpcore.ConnectTimeout
        return await super().connect_tcp("127.0.0.1", port, timeout, local_address, socket_options)


async def call(handler: HttpCallHandler | None = None, /, **payload: Any) -> dict[str, Any]:
    handler = handler or HttpCallHandler(OPEN)
    result = await handler.run(handler.parse(payload), Context())
    assert isinstance(result, dict)
    json.dumps(result)
    return result
