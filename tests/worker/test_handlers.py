"""The built-in handlers: what they do, what they refuse, and that they cannot be made to hang."""

import asyncio
import gzip
import io
import json
import logging
import ssl
import subprocess
import sys
import types
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import httpcore
import pytest
from pydantic import BaseModel, ConfigDict

import taskq_worker.handlers as handlers_package
from taskq_worker.handlers import (
    DuplicateHandler,
    Handler,
    HandlerContext,
    HandlerSettings,
    HttpStatusError,
    HttpTransportError,
    PayloadInvalid,
    RedirectRefused,
    TargetRefused,
    discover,
    registry,
)
from taskq_worker.handlers._net import refusal
from taskq_worker.handlers.http_call import HttpCallHandler
from taskq_worker.handlers.print import PrintHandler

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


@pytest.fixture
async def web() -> AsyncIterator[Server]:
    started = Server()
    await started.start()
    yield started
    await started.stop()


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


# --- print ---------------------------------------------------------------------------------------


async def printed(message: Any) -> str:
    out = io.StringIO()
    handler = PrintHandler(out)
    result = await handler.run(handler.parse({"message": message}), Context())
    assert result == {"printed": message}
    return out.getvalue()


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("hello, wörld ✓", "hello, wörld ✓"),
        ("", ""),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        (2**80, str(2**80)),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\r\x08\x9b31m\u2028\u202e\ud800", "\\r\\x08\\x9b31m\\u2028\\u202e\\ud800"),
        ({"\x1b\u202e": "\n"}, '{"\\u001b\\u202e": "\\n"}'),
    ],
)
async def test_print_writes_one_harmless_line(message: Any, line: str) -> None:
    """F83: control signs do not reach the terminal."""
    assert await printed(message) == line + "\n"


async def test_print_uses_the_stdout_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    await PrintHandler().run(PrintHandler.parse({"message": "seen"}), Context())
    assert capsys.readouterr().out == "seen\n"


async def test_print_survives_an_ascii_stdout() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    await PrintHandler(out).run(PrintHandler.parse({"message": "é✓"}), Context())
    assert raw.getvalue() == b"\\xe9\\u2713\n"


@pytest.mark.parametrize("payload", [{}, {"message": 1, "more": 2}, [], None, "x"])
def test_print_payload_is_checked(payload: Any) -> None:
    with pytest.raises(PayloadInvalid):
        PrintHandler.parse(payload)


# --- http_call: what it does ---------------------------------------------------------------------


async def test_get(web: Server) -> None:
    web.replies["/a"] = answer("grüß".encode(), "200 Fine", X_One="1")
    result = await call(url=web.url("/a?q=1"), headers={"X-Mine": "me"})
    assert result.pop("elapsed_ms") >= 0
    assert result == {
        "status": 200,
        "reason": "Fine",
        "headers": {"content-length": "6", "x-one": "1"},
        "body": "grüß",
        "truncated": False,
        "url": web.url("/a?q=1"),
        "redirects": 0,
    }
    [request] = web.requests
    assert (request.method, request.target) == ("GET", "/a?q=1")
    assert request.headers["host"] == f"127.0.0.1:{web.port}"
    assert request.headers["x-mine"] == "me"


@pytest.mark.parametrize("method", ["get", "Post", "PUT", "patch", "DELETE", "OPTIONS"])
async def test_methods_in_any_case(web: Server, method: str) -> None:
    web.replies["/"] = answer(b"ok")
    await call(url=web.url(), method=method)
    assert web.requests[0].method == method.upper()


async def test_head_has_no_body(web: Server) -> None:
    web.replies["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: gzip\r\n\r\n"
    result = await call(url=web.url(), method="HEAD")
    assert (result["body"], result["truncated"]) == ("", False)
    assert result["headers"]["content-length"] == "5000"


@pytest.mark.parametrize(
    ("extra", "sent", "content_type"),
    [
        ({"json": {"n": 2**70, "s": "é\ud800"}}, None, "application/json"),
        ({"json": None}, b"null", "application/json"),
        ({"body": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"body": "a=1", "headers": {"content-type": "a/b"}}, b"a=1", "a/b"),
        ({}, b"", None),
    ],
)
async def test_bodies(
    web: Server, extra: dict[str, Any], sent: bytes | None, content_type: str | None
) -> None:
    web.replies["/"] = answer()
    await call(url=web.url(), method="POST", **extra)
    [request] = web.requests
    if sent is None:
        assert json.loads(request.body) == extra["json"]
    else:
        assert request.body == sent
    assert request.headers.get("content-type") == content_type


async def test_userinfo_becomes_basic_auth_and_is_not_shown(web: Server) -> None:
    web.replies["/"] = answer()
    result = await call(url=f"http://me:{SECRET}@127.0.0.1:{web.port}/")
    assert web.requests[0].headers["authorization"].startswith("Basic ")
    assert result["url"] == web.url()


async def test_charset_and_broken_text(web: Server) -> None:
    web.replies["/latin"] = answer(b"\xe9", Content_Type="text/plain; charset=ISO-8859-1")
    web.replies["/odd"] = answer(b"ab\xff", Content_Type="text/plain; charset=zip")
    assert (await call(url=web.url("/latin")))["body"] == "é"
    assert (await call(url=web.url("/odd")))["body"] == "ab\ufffd"


async def test_response_headers_are_capped(web: Server) -> None:
    many = {f"X{n}": "v" * 600 for n in range(80)} | {"A": "w" * 5000}
    web.replies["/"] = answer(b"", "200 OK", **dict(reversed(many.items())))
    headers = (await call(url=web.url()))["headers"]
    assert len(headers) == 64
    assert len(headers["a"]) == 1024


async def test_environment_is_not_trusted(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.replies["/"] = answer(b"direct")
    assert (await call(url=web.url()))["body"] == "direct"


# --- http_call: limits ---------------------------------------------------------------------------


async def test_endless_body_is_cut(web: Server) -> None:
    """F84: a body without end is cut."""
    web.replies["/"] = endless
    result = await call(url=web.url())
    assert result["truncated"] is True
    assert result["body"] == "y" * 65_536
    await asyncio.wait_for(web.client_gone.wait(), 5)


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True)])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_cap_is_exact(web: Server, size: int, truncated: bool, packed: bool) -> None:
    body = b"z" * size
    web.replies["/"] = (
        answer(gzip.compress(body), Content_Encoding="gzip") if packed else answer(body)
    )
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_body_bytes=100))
    result = await call(handler, url=web.url())
    assert (len(result["body"]), result["truncated"]) == (min(size, 100), truncated)


async def test_cut_inside_a_character_leaves_no_replacement(web: Server) -> None:
    web.replies["/"] = answer("aé".encode())
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_body_bytes=2))
    assert (await call(handler, url=web.url()))["body"] == "a"


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    piece = bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])


async def test_gzip_bomb_costs_what_is_kept(web: Server) -> None:
    web.replies["/"] = answer(bomb(64 << 20), Content_Encoding="gzip")
    result = await call(url=web.url())
    assert result["truncated"] is True
    assert result["body"] == "\0" * 65_536


async def test_inflate_never_makes_more_than_asked() -> None:
    from taskq_worker.handlers._body import _Inflate

    assert len(_Inflate("gzip").feed(bomb(16 << 20), 1000)) == 1000


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0"),
        ("deflate", zlib.compress(b"one two")),
        ("deflate", zlib.compress(b"one two")[2:-4]),
    ],
    ids=["gzip", "deflate", "raw deflate"],
)
async def test_compressed_bodies(web: Server, encoding: str, packed: bytes) -> None:
    web.replies["/"] = answer(packed, Content_Encoding=encoding)
    assert (await call(url=web.url()))["body"] == "one two"


@pytest.mark.parametrize(
    "packed",
    [b"not gzip at all", gzip.compress(b"x" * 500)[:20]],
    ids=["something else", "cut short"],
)
async def test_damaged_compression_is_an_error(web: Server, packed: bytes) -> None:
    web.replies["/"] = answer(packed, Content_Encoding="gzip")
    with pytest.raises(HttpTransportError) as caught:
        await call(url=web.url())
    assert caught.value.code == "protocol_error"


async def test_slow_drip_ends_at_the_deadline(web: Server) -> None:
    """F84: a body that trickles ends in time."""
    web.replies["/"] = drip
    with pytest.raises(HttpTransportError, match=r"within 0\.2 seconds") as caught:
        await call(url=web.url(), timeout=0.2)
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)
    await asyncio.wait_for(web.client_gone.wait(), 5)


async def test_the_deadline_spans_redirects(web: Server) -> None:
    web.replies["/"] = redirect("/slow")
    web.replies["/slow"] = drip
    with pytest.raises(HttpTransportError, match="GET http"):
        await call(url=web.url(), timeout=0.2)


async def test_a_resolver_that_hangs_ends_at_the_deadline() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(HttpTransportError) as caught:
        await call(HttpCallHandler(OPEN, resolver=never), url="http://slow.test/", timeout=0.05)
    assert caught.value.code == "timeout"


async def test_cancellation_passes_through(web: Server) -> None:
    web.replies["/"] = drip
    task = asyncio.ensure_future(call(url=web.url()))
    while not web.requests:
        await asyncio.wait([task], timeout=0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(web.client_gone.wait(), 5)


async def test_timeout_above_the_workers_limit_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match="at most 300"):
        await call(url="http://127.0.0.1/", timeout=301)


# --- http_call: redirects ------------------------------------------------------------------------


async def test_redirects_are_followed_and_their_bodies_not_read(web: Server) -> None:
    async def heavy(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /b?x=1\r\nContent-Length: 99999999\r\n\r\n")
        await writer.drain()
        await web.client_gone.wait()

    web.replies |= {"/a": heavy, "/b": answer(b"end")}
    result = await call(url=web.url("/a"))
    assert (result["body"], result["redirects"]) == ("end", 1)
    assert result["url"] == web.url("/b?x=1")


async def test_redirects_not_followed_on_request(web: Server) -> None:
    web.replies["/"] = redirect("/b")
    result = await call(url=web.url(), follow_redirects=False)
    assert (result["status"], result["headers"]["location"]) == (302, "/b")


@pytest.mark.parametrize(("limit", "fine"), [(3, True), (2, False), (0, False)])
async def test_redirect_limit(web: Server, limit: int, fine: bool) -> None:
    web.replies |= {"/": redirect("/1"), "/1": redirect("/2"), "/2": redirect("/3")}
    web.replies["/3"] = answer(b"end")
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_redirects=limit))
    if fine:
        assert (await call(handler, url=web.url()))["redirects"] == 3
        return
    with pytest.raises(RedirectRefused) as caught:
        await call(handler, url=web.url())
    assert not caught.value.retryable
    assert len(web.requests) == limit + 1


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        ("301 Moved", "POST", "GET", False),
        ("302 Found", "POST", "GET", False),
        ("302 Found", "PUT", "PUT", True),
        ("303 See Other", "PUT", "GET", False),
        ("303 See Other", "HEAD", "HEAD", True),
        ("307 Temporary", "POST", "POST", True),
        ("308 Permanent", "POST", "POST", True),
    ],
)
async def test_methods_across_redirects(
    web: Server, status: str, method: str, then: str, keeps_body: bool
) -> None:
    web.replies |= {"/": redirect("/b", status), "/b": answer()}
    await call(url=web.url(), method=method, body="text", headers={"X-Keep": "1"})
    second = web.requests[1]
    assert second.method == then
    assert second.body == (b"text" if keeps_body else b"")
    assert ("content-type" in second.headers) is keeps_body
    assert second.headers["x-keep"] == "1"


CREDENTIALS = {"Authorization": "Bearer t", "cookie": "a=b", "X-Api-Key": "k", "X-Plain": "p"}


async def test_same_origin_redirect_keeps_credentials(web: Server) -> None:
    web.replies |= {"/": redirect("/b"), "/b": answer()}
    await call(url=web.url(), headers=CREDENTIALS)
    assert web.requests[1].headers["authorization"] == "Bearer t"


async def test_cross_origin_redirect_drops_credentials(web: Server) -> None:
    web.replies |= {"/": redirect(web.url("/b", host="u:pw@localhost")), "/b": answer()}
    result = await call(url=web.url(), headers=CREDENTIALS)
    second = web.requests[1].headers
    assert second["host"] == f"localhost:{web.port}"
    assert not {"authorization", "cookie", "x-api-key"} & second.keys()
    assert second["x-plain"] == "p"
    assert result["url"] == web.url("/b", host="localhost")


@pytest.mark.parametrize("location", ["ftp://example.com/", "file:///etc/passwd", "gopher://x:1/"])
async def test_redirect_to_another_scheme_is_refused(web: Server, location: str) -> None:
    """F84: a redirect to file: or gopher: is not followed."""
    web.replies["/"] = redirect(location)
    with pytest.raises(TargetRefused):
        await call(url=web.url())


@pytest.mark.parametrize("location", ["http://", "http://x:99999/", "http://[::1/"])
async def test_redirect_to_no_url_is_an_error(web: Server, location: str) -> None:
    web.replies["/"] = redirect(location)
    with pytest.raises(RedirectRefused):
        await call(url=web.url())


# --- http_call: targets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:6379/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::a00:1]/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://127。0。0。1/",
        "http://localhost/",
        "http://LOCALHOST.:6379",
        "http://a.localhost/",
        f"http://example.com:{SECRET}@127.0.0.1/",
        "http://example.com%2F@10.0.0.1/",
        "https://192.168.1.1/",
    ],
)
async def test_odd_spellings_of_inner_targets_are_refused(url: str) -> None:
    """F84: whatever an address is written like."""

    async def no_dns(host: str, port: int) -> Sequence[str]:
        raise AssertionError(f"{host} needs no resolver")

    dialler = Dialler()
    with pytest.raises(TargetRefused) as caught:
        await call(HttpCallHandler(resolver=no_dns, dialler=dialler), url=url)
    assert not caught.value.retryable
    assert SECRET not in str(caught.value)
    assert dialler.dialled == []


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.31.0.1",
        "192.168.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.88.99.1",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fe80::1%lo",
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2001:0:4136::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "3fff::1",
        "100::1",
        "5f00::1",
        "4000::1",
    ],
)
def test_refused_addresses(address: str) -> None:
    """F84: what is not public."""
    assert refusal(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.32.0.1",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2606:4700::1111",
        "2a00:1450::1",
        "2001:4860:4860::8888",
    ],
)
def test_public_addresses(address: str) -> None:
    assert refusal(address) is None


async def test_one_inner_address_among_public_ones_refuses_all() -> None:
    names, dialler = Names(mixed_test=[[PUBLIC, "10.0.0.5"]]), Dialler()
    with pytest.raises(TargetRefused, match=r"mixed\.test"):
        await call(HttpCallHandler(resolver=names, dialler=dialler), url="http://mixed.test/")
    assert dialler.dialled == []


async def test_dns_that_flips_cannot_reach_inside(web: Server) -> None:
    """F84: the address that was checked is the one that is called, at each attempt."""
    names, dialler = Names(flip_test=[[PUBLIC], ["127.0.0.1"]]), Dialler()
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    web.replies["/"] = answer(b"public")
    url = web.url(host="flip.test")
    assert (await call(handler, url=url))["body"] == "public"
    assert names.asked == ["flip.test"]
    assert dialler.dialled == [PUBLIC]
    assert web.requests[0].headers["host"] == f"flip.test:{web.port}"
    with pytest.raises(TargetRefused):  # the second attempt is checked as the first was
        await call(handler, url=url)
    assert dialler.dialled == [PUBLIC]


async def test_dns_that_flips_between_redirects(web: Server) -> None:
    names, dialler = Names(flip_test=[[PUBLIC], ["127.0.0.1"]]), Dialler()
    web.replies |= {"/": redirect("/again"), "/again": answer(b"inside")}
    with pytest.raises(TargetRefused):
        await call(HttpCallHandler(resolver=names, dialler=dialler), url=web.url(host="flip.test"))
    assert dialler.dialled == [PUBLIC]


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/", "http://inside.test/", "//127.0.0.1:1/", "http://0x7f.1"],
)
async def test_redirect_to_an_inner_target_is_refused(web: Server, location: str) -> None:
    """F84: each redirect is checked as the first address was."""
    names, dialler = Names(out_test=[[PUBLIC]], inside_test=[["10.9.8.7"]]), Dialler()
    web.replies["/"] = redirect(location)
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    with pytest.raises(TargetRefused):
        await call(handler, url=web.url(host="out.test"))
    assert dialler.dialled == [PUBLIC]


async def test_the_next_address_is_tried(web: Server) -> None:
    names = Names(two_test=[["2606:4700::1", PUBLIC]])
    dialler = Dialler(dead=["2606:4700::1"])
    web.replies["/"] = answer(b"ok")
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    assert (await call(handler, url=web.url(host="two.test")))["body"] == "ok"
    assert dialler.dialled == ["2606:4700::1", PUBLIC]


async def test_allowed_inner_targets(web: Server) -> None:
    web.replies["/"] = answer(b"ok")
    for host in ("localhost.", "2130706433", "[::ffff:127.0.0.1]"):
        assert (await call(url=web.url(host=host)))["body"] == "ok"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server that is `pinned.test` and of a client that trusts it."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=pinned.test", "-addext", "subjectAltName=DNS:pinned.test"]
    try:
        subprocess.run(
            [*command.split(), *names, "-keyout", key, "-out", cert],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("the openssl command is not installed")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    return theirs, ssl.create_default_context(cafile=str(cert))


async def test_tls_is_verified_for_the_name_on_the_pinned_address(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    theirs, ours = certificate
    asked_for: list[str | None] = []
    theirs.sni_callback = lambda _sock, name, _context: asked_for.append(name)
    web = Server()
    await web.start(theirs)
    web.replies["/"] = answer(b"secure")
    names, dialler = Names(pinned_test=[[PUBLIC]], other_test=[[PUBLIC]]), Dialler()
    names.answers["pinned.test."] = [[PUBLIC]]
    handler = HttpCallHandler(resolver=names, dialler=dialler, ssl_context=ours)
    try:
        for host in ("pinned.test", "pinned.test."):
            result = await call(handler, url=web.url(host=host, scheme="https"))
            assert result["body"] == "secure"
        assert asked_for == ["pinned.test", "pinned.test"]
        with pytest.raises(HttpTransportError, match=r"[Hh]ostname mismatch") as caught:
            await call(handler, url=web.url(host="other.test", scheme="https"))
        assert caught.value.code == "tls_failed"
    finally:
        await web.stop()


# --- http_call: failures in plain words ----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        ("400 Bad", False),
        ("404 Not Found", False),
        ("408 T", True),
        ("425 Early", True),
        ("429 Slow", True),
        ("500 Oops", True),
        ("503 Busy", True),
    ],
)
async def test_bad_status(web: Server, status: str, retryable: bool) -> None:
    web.replies["/"] = answer(b"the \x1b[31mreason" + b"." * 500, status)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    error = caught.value
    assert (error.code, error.retryable) == ("http_status", retryable)
    assert error.status == int(status[:3])
    assert f"answered {status}: the \\x1b[31mreason" in str(error)
    assert len(str(error)) < 300


async def test_expected_status(web: Server) -> None:
    web.replies |= {"/": answer(b"", "404 Not Found"), "/ok": answer()}
    assert (await call(url=web.url(), expected_status=[404, 410]))["status"] == 404
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url("/ok"), expected_status=[201])
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("value", "status", "low", "high"),
    [
        ("7", "429 Slow", 7, 7),
        ("999999999999999", "503 Busy", 3600, 3600),
        ("in 900 s", "503 Busy", 600, 900),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "429 Slow", 0, 0),
    ],
    ids=["seconds", "far too many", "a date", "a date that is past"],
)
async def test_retry_after(web: Server, value: str, status: str, low: int, high: int) -> None:
    if value == "in 900 s":
        value = format_datetime(datetime.now(UTC) + timedelta(seconds=900), True)
    web.replies["/"] = answer(b"", status, Retry_After=value)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    assert caught.value.retry_after_seconds is not None
    assert low <= caught.value.retry_after_seconds <= high


@pytest.mark.parametrize(
    ("value", "status"), [("soon", "429 Slow"), ("-1", "503 B"), ("5", "500 X")]
)
async def test_no_retry_after(web: Server, value: str, status: str) -> None:
    web.replies["/"] = answer(b"", status, Retry_After=value)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    assert caught.value.retry_after_seconds is None


async def test_messages_and_logs_keep_secrets(
    web: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """F86: credentials in the URL and in headers are in no message and no log."""

    async def echo(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        shown = json.dumps(request.headers).encode()
        writer.write(answer(shown + request.target.encode(), "403 Forbidden"))
        await writer.drain()

    caplog.set_level(logging.INFO)
    web.replies["/"] = echo
    handler, context = HttpCallHandler(OPEN), Context()
    for url, headers in [
        (f"http://me:{SECRET}@127.0.0.1:{web.port}/", {"X-Other": f"v-{SECRET}"}),
        (web.url(), {"Authorization": f"Bearer {SECRET}"}),
    ]:
        payload = handler.parse({"url": url, "headers": headers})
        with pytest.raises(HttpStatusError) as caught:
            await handler.run(payload, context)
        told = f"{caught.value} {payload!r} {context.lines} {caplog.text}"
        assert SECRET not in told
        assert web.requests[-1].headers["authorization"].split()[1] not in told
    assert context.lines == [f"GET {web.url()}: 403"] * 2


async def test_name_that_does_not_resolve() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(HttpTransportError) as caught:
        await call(HttpCallHandler(resolver=unknown), url=f"http://a:{SECRET}@no.test/")
    assert str(caught.value) == "could not resolve no.test: Name or service not known"
    assert (caught.value.code, caught.value.retryable) == ("dns_failed", True)


async def test_connection_refused(web: Server) -> None:
    await web.stop()
    with pytest.raises(HttpTransportError, match=r"could not connect to 127\.0\.0\.1") as caught:
        await call(url=web.url())
    assert caught.value.code == "connect_failed"
    assert "refused" in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (b"", "protocol_error"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"h" * 300_000, "protocol_error"),
    ],
)
async def test_servers_that_talk_nonsense(web: Server, reply: bytes, code: str) -> None:
    web.replies["/"] = reply
    with pytest.raises(HttpTransportError) as caught:
        await call(url=web.url())
    assert caught.value.code == code


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"url": "/relative"},
        {"url": "ftp://example.com/"},
        {"url": "file:///etc/passwd"},
        {"url": "gopher://127.0.0.1:6379/_x"},
        {"url": "http://"},
        {"url": "http://a b/"},
        {"url": "http://x:0/"},
        {"url": "http://x:99999/"},
        {"url": "http://[fe80::1%25eth0]/"},
        {"url": "http://%31%32%37.0.0.1/"},
        {"url": "http://x/\r\nHost: y"},
        {"url": "http://①②⑦.0.0.1/"},
        {"url": "http://" + "a" * 64 + ".com/"},
        {"url": "http://x/", "method": "TRACE"},
        {"url": "http://x/", "extra": 1},
        {"url": "http://x/", "json": 1, "body": "x"},
        {"url": "http://x/", "json": float("nan")},
        {"url": "http://x/", "body": "\ud800"},
        {"url": "http://x/", "timeout": 0},
        {"url": "http://x/", "timeout": True},
        {"url": "http://x/", "timeout": "5"},
        {"url": "http://x/", "timeout": float("inf")},
        {"url": "http://x/", "expected_status": []},
        {"url": "http://x/", "expected_status": [20]},
        {"url": "http://x/", "headers": {"X": f"{SECRET}\r\nY: 1"}},
        {"url": "http://x/", "headers": {"X": f"{SECRET}☃"}},
        {"url": "http://x/", "headers": {"bad name": SECRET}},
        {"url": "http://x/", "headers": {"Host": SECRET}},
        {"url": "http://x/", "headers": {"Transfer-Encoding": "chunked"}},
        {"url": "http://x/", "headers": {"Content-Length": "1"}},
        {"url": "http://x/", "headers": {"a": SECRET, "A": SECRET}},
        {"url": f"http://u:{SECRET}@x:99999/", "headers": 5},
    ],
)
def test_http_payload_is_checked(payload: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        HttpCallHandler.parse(payload)
    assert not caught.value.retryable
    assert SECRET not in str(caught.value)


def test_payload_schema_can_be_published() -> None:
    schema = HttpCallHandler.payload_model.model_json_schema()
    assert {"json", "body", "url"} <= schema["properties"].keys()
    assert schema["additionalProperties"] is False


# --- registry ------------------------------------------------------------------------------------


class _Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ThirdParty(Handler[_Empty]):
    name: ClassVar[str] = "third_party"
    payload_model = _Empty

    async def run(self, payload: _Empty, ctx: HandlerContext) -> None:
        return None


class SecondPrint(ThirdParty):
    name: ClassVar[str] = "print"


class Nameless(Handler[_Empty]):
    payload_model = _Empty

    async def run(self, payload: _Empty, ctx: HandlerContext) -> None:
        return None


class Broken(ThirdParty):
    name: ClassVar[str] = "broken"

    @classmethod
    def from_settings(cls, settings: HandlerSettings) -> "Broken":
        raise SystemExit("no licence")


def points(monkeypatch: pytest.MonkeyPatch, **named: object) -> None:
    module = types.ModuleType("taskq_test_plugin")
    monkeypatch.setitem(sys.modules, "taskq_test_plugin", module)
    for name, value in named.items():
        setattr(module, name, value)
    found = [
        EntryPoint(name, f"taskq_test_plugin:{name}", registry.ENTRY_POINT_GROUP) for name in named
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)


def test_builtins_are_found() -> None:
    found = discover(HandlerSettings())
    assert {"print", "http_call"} <= found.keys()
    assert isinstance(found["print"], PrintHandler)
    assert found["http_call"].max_attempts == 5
    assert found["http_call"].backoff == (1.0, 2.0, 60.0, 0.5)


def test_a_builtin_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(str(sys.modules[PrintHandler.__module__].__file__)).read_text(encoding="utf-8")
    (tmp_path / "shout.py").write_text(source.replace('"print"', '"shout"'), encoding="utf-8")
    monkeypatch.setattr(handlers_package, "__path__", [*handlers_package.__path__, str(tmp_path)])
    try:
        assert "shout" in discover(HandlerSettings())
    finally:
        sys.modules.pop("taskq_worker.handlers.shout", None)


def test_entry_points_are_found_and_settings_reach_them(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, ThirdParty=ThirdParty)
    assert isinstance(discover(HandlerSettings())["third_party"], ThirdParty)


def test_broken_entry_points_leave_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points(monkeypatch, Broken=Broken, Nameless=Nameless, NotOne=int, ThirdParty=ThirdParty)
    delattr(sys.modules["taskq_test_plugin"], "Nameless")
    found = discover(HandlerSettings())
    assert {"print", "http_call", "third_party"} <= found.keys()
    for name in ("Broken", "Nameless", "NotOne"):
        assert f"handler {name} (taskq_test_plugin:{name}" in caplog.text


@pytest.mark.parametrize("cls", [Nameless, Handler, 5])
def test_incomplete_handlers_are_not_served(
    cls: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points(monkeypatch, Odd=cls)
    discover(HandlerSettings())
    assert "handler Odd" in caplog.text


def test_two_handlers_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, SecondPrint=SecondPrint)
    with pytest.raises(DuplicateHandler, match=r"'print'.*PrintHandler.*SecondPrint"):
        discover(HandlerSettings())


def test_the_same_class_twice_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, A=ThirdParty, B=ThirdParty)
    assert "third_party" in discover(HandlerSettings())


def test_missing_optional_package_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "taskq_worker.handlers.http_call")
    monkeypatch.setitem(sys.modules, "httpcore", None)
    found = discover(HandlerSettings())
    assert "print" in found
    assert "http_call" not in found
    assert "the package httpcore is missing" in caplog.text
