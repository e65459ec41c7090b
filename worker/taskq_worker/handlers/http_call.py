"""`http_call`: call a URL, without letting a job reach into the worker's own network."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import ClassVar, Self

import httpcore
import httpx

from taskq_worker.handlers._body import BadBody, Body, read_body
from taskq_worker.handlers._http_payload import HttpCallPayload, parse_url
from taskq_worker.handlers._net import PinnedTransport, Resolver, checked_addresses, resolve
from taskq_worker.handlers._redirect import REDIRECTS, Hop, basic_auth, first_hop, next_hop
from taskq_worker.handlers._text import masked, one_line
from taskq_worker.handlers.base import JSON, Handler, HandlerContext, HandlerSettings
from taskq_worker.handlers.errors import (
    HttpStatusError,
    HttpTransportError,
    PayloadInvalid,
    RedirectRefused,
)

_MAX_HEADERS = 64
_MAX_HEADER_CHARS = 1_024
_MAX_RETRY_AFTER_SECONDS = 3_600.0
_EXCERPT_CHARS = 200


class HttpCallHandler(Handler[HttpCallPayload]):
    """Makes one HTTP call and returns status, headers and the beginning of the body.

    The whole call, redirects and body included, ends within the payload's ``timeout``; so the
    worker's own limit need not be set. Every hop's host is resolved once, judged, and dialled at
    the judged address. Compressed bodies are limited by what comes out of them.

    `resolver`, `dialler` and `ssl_context` are there for tests and for operators with a resolver or
    a certificate authority of their own.
    """

    name: ClassVar[str] = "http_call"
    payload_model = HttpCallPayload

    def __init__(
        self,
        settings: HandlerSettings | None = None,
        *,
        resolver: Resolver = resolve,
        dialler: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings or HandlerSettings()
        self._resolver = resolver
        self._dialler = dialler or httpcore.AnyIOBackend()
        self._ssl_context = ssl_context

    @classmethod
    def from_settings(cls, settings: HandlerSettings) -> Self:
        return cls(settings)

    async def run(self, payload: HttpCallPayload, ctx: HandlerContext) -> JSON:
        """The result: status, reason, headers, body, truncated, elapsed_ms, url, redirects.

        ``url`` is the last one called, ``redirects`` how many were followed, ``body`` text;
        ``headers`` are in lower case, at most 64 of at most 1,024 characters each. Raises
        `PayloadInvalid`, `TargetRefused`, `RedirectRefused`, `HttpStatusError` and
        `HttpTransportError`.
        """
        limit = self._settings.http_max_timeout_seconds
        if payload.timeout > limit:
            raise PayloadInvalid(f"timeout: must be at most {limit:g} seconds on this worker")
        started = time.monotonic()
        hop = first_hop(payload)
        deadline = asyncio.timeout(payload.timeout)
        try:
            async with deadline:
                hop, redirects, response, body = await self._follow(hop, payload, ctx)
        except TimeoutError:
            if not deadline.expired():
                raise
            text = f"no complete answer to {hop.shown} within {payload.timeout:g} seconds"
            raise HttpTransportError(text, code="timeout") from None
        text = body.text(response.headers.get("content-type", ""))
        _check_status(payload, hop, response, text)
        return {
            "status": response.status_code,
            "reason": response.reason_phrase[:_EXCERPT_CHARS],
            "headers": _kept_headers(response.headers),
            "body": text,
            "truncated": body.truncated,
            "elapsed_ms": round((time.monotonic() - started) * 1000),
            "url": str(hop.url),
            "redirects": redirects,
        }

    async def _follow(
        self, hop: Hop, payload: HttpCallPayload, ctx: HandlerContext
    ) -> tuple[Hop, int, httpx.Response, Body]:
        """Send, and go where redirects lead; the body of a redirect is not read."""
        limit = self._settings.http_max_redirects if payload.follow_redirects else 0
        for redirects in range(limit + 1):
            async with self._exchange(hop, payload.timeout) as response:
                ctx.log(f"{hop.shown}: {response.status_code}")
                location = response.headers.get("location")
                status = response.status_code
                if not payload.follow_redirects or status not in REDIRECTS or location is None:
                    return hop, redirects, response, await self._read(hop, response)
            hop = next_hop(hop, status, location)
        raise RedirectRefused(f"{hop.shown} would be redirect {limit + 1}, {limit} are allowed")

    @asynccontextmanager
    async def _exchange(self, hop: Hop, timeout: float) -> AsyncIterator[httpx.Response]:
        """Check the target, send the request, yield the response, close the connection."""
        addresses = await checked_addresses(
            hop.host,
            hop.port,
            resolver=self._resolver,
            allow_private=self._settings.http_allow_private,
        )
        context = self._tls() if hop.url.scheme == "https" else None
        async with PinnedTransport(addresses, context, self._dialler) as transport:
            with _plain_errors(hop):
                response = await transport.handle_async_request(hop.request(timeout))
            try:
                yield response
            finally:
                await response.aclose()

    async def _read(self, hop: Hop, response: httpx.Response) -> Body:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        limit = self._settings.http_max_body_bytes
        with _plain_errors(hop):
            try:
                return await read_body(response.aiter_raw(), encoding, limit)
            except BadBody as exc:
                text = f"the answer to {hop.shown} is broken: {exc}"
                raise HttpTransportError(text, code="protocol_error") from None

    def _tls(self) -> ssl.SSLContext:
        # Made at the first https call: loading the authorities takes some 20 ms.
        if self._ssl_context is None:
            self._ssl_context = httpx.create_ssl_context(trust_env=False)
        return self._ssl_context


@contextmanager
def _plain_errors(hop: Hop) -> Iterator[None]:
    """Turn httpcore's exceptions into `HttpTransportError` in plain words.

    Without the original as cause: its text may quote what was sent.
    """
    try:
        yield
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
        raise _connect_error(hop, exc) from None
    except (httpcore.NetworkError, httpcore.TimeoutException):
        text = f"the connection broke during {hop.shown}"
        raise HttpTransportError(text, code="connection_lost") from None
    except httpcore.ProtocolError:
        text = f"the server did not answer {hop.shown} in valid HTTP"
        raise HttpTransportError(text, code="protocol_error") from None


def _connect_error(hop: Hop, exc: Exception) -> HttpTransportError:
    """What the operating system or TLS said, found at the end of the chain of causes."""
    where = f"{one_line(hop.host)} port {hop.port}"
    reason = "timed out" if isinstance(exc, httpcore.ConnectTimeout) else "it failed"
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            detail = getattr(cause, "verify_message", None) or cause.reason or "handshake failed"
            return HttpTransportError(f"no TLS with {where}: {detail}", code="tls_failed")
        if isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno)  # asyncio puts a sentence of its own in strerror
        cause = cause.__cause__ or cause.__context__
    return HttpTransportError(f"could not connect to {where}: {reason}", code="connect_failed")


def _check_status(payload: HttpCallPayload, hop: Hop, response: httpx.Response, text: str) -> None:
    status = response.status_code
    expected = payload.expected_status
    if (status < 400) if expected is None else (status in expected):
        return
    excerpt = one_line(masked(text, _secrets(payload))[:_EXCERPT_CHARS].strip())
    answer = one_line(f"{status} {response.reason_phrase[:_EXCERPT_CHARS]}".strip())
    raise HttpStatusError(
        f"{hop.shown} answered {answer}{': ' if excerpt else ''}{excerpt}",
        status=status,
        retry_after_seconds=_retry_after(response) if status in {429, 503} else None,
    )


def _secrets(payload: HttpCallPayload) -> Iterator[str]:
    """What a server might echo in an error page and must not get into a message."""
    url = parse_url(payload.url)
    values = list(payload.headers.values())
    if url.userinfo:
        yield from (url.userinfo.decode("ascii"), url.password)
        values.append(basic_auth(url))
    for value in values:
        yield value
        yield value.rpartition(" ")[2]  # the token after "Bearer"


def _kept_headers(headers: httpx.Headers) -> dict[str, JSON]:
    pairs = list(headers.items())[:_MAX_HEADERS]
    return {name[:_MAX_HEADER_CHARS]: value[:_MAX_HEADER_CHARS] for name, value in pairs}


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds from now, from 0 to one hour; None if the header is absent or makes no sense."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:10]), _MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(value)
        seconds = (at - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_SECONDS)
