"""ASGI middleware at the door: what a request may be before any route sees it."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Iterable
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskq.errors import PayloadTooLarge
from taskq_api.errors import problem

DRAIN_SECONDS = 3.0
DRAIN_PAUSE_SECONDS = 0.25
"""A refused upload is read on (and thrown away) for so long: a connection that is closed over unread
bytes is reset, and then the client loses the answer."""

JUDGED_PAIRS = 256
JUDGED_LENGTH = 300

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE = (b"cache-control", b"no-store")
_STRICT = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_FOR_DOCS = (
    b"content-security-policy",
    # Swagger UI sets styles of its own in the page; scripts come from files only.
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)
DOCS_PATH = "/docs"
_FOR_DASHBOARD = (
    b"content-security-policy",
    # No script and no style but from our files, and no text that becomes code by any other way.
    b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'",
)


def _policy(path: str) -> tuple[bytes, bytes]:
    """What a browser may load for an answer at this path."""
    if path == DOCS_PATH:
        return _FOR_DOCS
    return _FOR_DASHBOARD if path == "/" or path.startswith("/ui/") else _STRICT


class SecurityHeaders:
    """Adds to every answer what keeps browsers from guessing, framing and caching it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        extra = [*_HEADERS, _policy(scope["path"])]

        def adding(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *extra]
                if all(name != b"cache-control" for name, _ in message["headers"]):
                    headers.append(_NO_STORE)
                message["headers"] = headers
            return send(message)

        await self.app(scope, receive, adding)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class SameOrigin:
    """Refuses requests that a web page of somebody else may have caused, where no key protects.

    A page can make the browser of somebody on this machine send requests to a loopback port. ``Origin``
    tells a foreign page; ``Host`` tells one whose name was pointed at this machine (DNS rebinding).
    With ``check_host`` off (an open port that is meant to be reached by other names) only the former.
    ``origins`` are foreign pages that the settings let in.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], check_host: bool, origins: Iterable[str] = ()
    ) -> None:
        self.app = app
        self._origins = frozenset(origins)
        self._hosts = LOOPBACK_NAMES | {host.strip("[]").lower() for host in hosts}
        self._check_host = check_host
        self._judged: dict[tuple[str, str | None], str | None] = {}
        """What became of a pair of ``Host`` and ``Origin``: a client sends the same ones each time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            code = self._judge(*_host_and_origin(scope))
            if code is not None:
                what = "Host" if code == "forbidden_host" else "Origin"
                refused = problem(
                    code,
                    f"this {what} is refused while the API runs without keys; "
                    "use localhost, or set TASKQ_API_KEYS",
                )
                await turn_away(refused, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _judge(self, host: str, origin: str | None) -> str | None:
        pair = host, origin
        if len(host) + len(origin or "") > JUDGED_LENGTH:
            return self._refusal(host, origin)
        if pair not in self._judged:
            if len(self._judged) >= JUDGED_PAIRS:
                self._judged.clear()
            self._judged[pair] = self._refusal(host, origin)
        return self._judged[pair]

    def _refusal(self, host: str, origin: str | None) -> str | None:
        name, port = _name_and_port(f"http://{host}")
        if self._check_host and name not in self._hosts:
            return "forbidden_host"
        if origin is None or origin in self._origins:
            return None
        origin_name, origin_port = _name_and_port(origin)
        both_here = name in self._hosts and origin_name in self._hosts
        if origin_name and origin_port == port and (origin_name == name or both_here):
            return None
        return "forbidden_origin"


def _host_and_origin(scope: Scope) -> tuple[str, str | None]:
    host, origin = "", None
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
    return host, origin


def _name_and_port(url: str) -> tuple[str, int]:
    """('', 0) for what is no plain origin; the port is the scheme's where none is named."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", 0
    if parts.scheme not in ("http", "https") or parts.path or parts.query or "@" in parts.netloc:
        return "", 0
    return parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


class BodyLimit:
    """Lets through JSON bodies of at most ``max_bytes``, counted while they are read."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self.app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        length, chunked, is_json = _body_headers(scope)
        if not length and not chunked:
            await self.app(scope, receive, send)
            return
        body = _Body(receive, send, self._max)
        if length > self._max:
            refused = problem(
                "payload_too_large", too_large(self._max), headers={"Connection": "close"}
            )
            await refused(scope, body.receive, body.send)
        elif not is_json:
            refused = problem(
                "unsupported_media_type",
                "send the body as plain `Content-Type: application/json` in UTF-8",
                headers={"Connection": "close", "Accept": "application/json"},
            )
            await refused(scope, body.receive, body.send)
        else:
            await self.app(scope, body.receive, body.send)


async def turn_away(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request whose body, if it has one, nobody reads: the connection ends with it."""
    length, chunked, _ = _body_headers(scope)
    if not length and not chunked:
        await response(scope, receive, send)
        return
    response.headers["Connection"] = "close"
    body = _Body(receive, send, length)
    await response(scope, body.receive, body.send)


def too_large(max_bytes: int) -> str:
    return f"the body is larger than the limit of {max_bytes} bytes"


def _body_headers(scope: Scope) -> tuple[int, bool, bool]:
    """(length, whether it comes in chunks, whether it is plain JSON)."""
    length, chunked, is_json, encoded = 0, False, False, False
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = int(value) if value.isdigit() else 0
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"content-type":
            is_json = _is_json(value)
        elif name == b"content-encoding":
            encoded = value.strip().lower() not in (b"", b"identity")
    return length, chunked, is_json and not encoded


def _is_json(content_type: bytes) -> bool:
    if content_type == b"application/json":
        return True
    kind, _, parameters = content_type.lower().partition(b";")
    charset = parameters.replace(b'"', b"").strip()
    return kind.strip() == b"application/json" and charset in (b"", b"charset=utf-8")


class _Body:
    """The receive and send of one request with a body."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._max = max_bytes
        self._seen = 0
        self._unread = True

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._unread = message.get("more_body", False)
            self._seen += len(message.get("body", b""))
            if self._seen > self._max:
                raise PayloadTooLarge(too_large(self._max))
        else:
            self._unread = False
        return message

    def send(self, message: Message) -> Awaitable[None]:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        return self._end(message) if last and self._unread else self._send(message)

    async def _end(self, message: Message) -> None:
        # The whole answer goes out at once; only its formal end waits.
        await self._send({**message, "more_body": True})
        await self._drain()
        await self._send({"type": "http.response.body", "body": b""})

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._unread:
                    async with asyncio.timeout(DRAIN_PAUSE_SECONDS):
                        message = await self._receive()
                    self._unread = message.get("more_body", False)
