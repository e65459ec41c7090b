"""HTTP/1.1 as uvicorn speaks it over httptools, with the bounds that httptools has not: on the size of a
request's head (its URL and headers) and on how long a client may take to send one. An answer is one write."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from taskq_api.errors import document_bytes

MAX_HEAD_BYTES = 32_768
JOINED_BYTES = 65_536
"""Of head and first piece of body: more is not copied only to be one write."""
SILENT_SECONDS = 15.0
"""For a whole head, and between two pieces of a body."""


class _Joiner:
    """A transport that sends the head of an answer and the body that follows at once as one: two writes
    are two packets, and wake the client twice. A head alone waits for no more than a turn of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        head, self._head = self._head, None
        if head is None:
            # No harm where a body begins like this: it waits for a turn, too.
            if data.startswith(b"HTTP/1.1 "):
                self._head = data
                self._loop.call_soon(self._send)
            else:
                self._transport.write(data)
        elif len(head) + len(data) <= JOINED_BYTES:
            self._transport.write(head + data)
        else:
            self._transport.write(head)
            self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _in_head = False
    """Headers that come now are the request's; later ones are trailers, which change nothing."""
    _offered = False
    """The request offers to go on in another protocol, which is not taken up."""
    _muted = False
    """The parser is told what it needs to know for the rest of a request that another one has begun."""
    _running: RequestResponseCycle | None = None
    _head = 0
    """Bytes since the last head was complete, and of a body since its last piece."""
    _too_large = False
    _since: float | None = None
    """Since when the rest of a request is waited for."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        joined: Any = _Joiner(transport, self.loop)
        super().connection_made(joined)
        self._since = time.monotonic()
        self._timer = self.loop.call_later(SILENT_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvicorn tells only the request that came last, and not the one that is answered now.
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        if self._since is None and (self._running is None or self._running.response_complete):
            self._since = time.monotonic()
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        # What this piece has completed was counted out again meanwhile.
        if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse()

    def _feed(self, data: "bytes | memoryview") -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._begin_anew()
                data = memoryview(data)[upgrade.args[0] :]
            else:
                return

    def _begin_anew(self) -> None:
        """Goes on in HTTP/1.1, which a client that offers h2c must take: some do so in each first request.
        The parser has left out the body, so a new one, told how long it is, reads it and what comes after."""
        framing = [
            b"%s: %s\r\n" % header
            for header in self.headers
            if header[0] in (b"content-length", b"transfer-encoding")
        ]
        self._offered, self._muted = False, True
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        if self._muted:
            return
        self._in_head = True
        self._since = time.monotonic()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._in_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._muted:
            self._muted = False
            return
        self._offered = self.parser.should_upgrade()
        # Only with so many bytes at hand can the head be among them that is too large.
        if self._head > MAX_HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD_BYTES:
                self._too_large = True
                raise ValueError("the head is too large")  # ends the parser, then comes the answer
        self._head = 0
        self._since = time.monotonic()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        self._since = time.monotonic()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offered:
            return
        self._head = 0
        self._since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        self._head = 0
        body = document_bytes(
            "head_too_large", f"URL and headers may have {MAX_HEAD_BYTES} bytes together"
        )
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
            b"content-type: application/problem+json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        self.transport.close()

    def _look(self) -> None:
        """Hangs up on a client that has begun a request and does not go on."""
        silent = 0.0 if self._since is None else time.monotonic() - self._since
        if silent >= SILENT_SECONDS and not self.flow.read_paused:
            self.transport.close()
        else:
            self._timer = self.loop.call_later(max(1.0, SILENT_SECONDS - silent), self._look)
