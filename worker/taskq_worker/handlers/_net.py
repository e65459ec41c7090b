"""Which addresses may be called, and a transport that calls exactly those.

Checking a name and then handing the name to an HTTP library resolves it twice, and the second
answer may differ from the one that was checked. Here a name is resolved once, every address of the
answer is judged, and the connection is dialled to one of these addresses; the name stays in the
Host header, in TLS SNI and in the certificate check.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import httpcore
import httpx

from taskq_worker.handlers._text import shown_name
from taskq_worker.handlers.errors import HttpTransportError, TargetRefused

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host name and port to addresses in order of preference; raises OSError."""

_MAX_DIALLED = 8
_NAME = re.compile(r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")

# Listed here and not left to `is_global`, whose answers differ between Python versions.
_REFUSED_V4 = {
    ipaddress.IPv4Network(net): why
    for net, why in {
        "0.0.0.0/8": "an unspecified",
        "10.0.0.0/8": "a private",
        "100.64.0.0/10": "a carrier-grade NAT",
        "127.0.0.0/8": "a loopback",
        "169.254.0.0/16": "a link-local",
        "172.16.0.0/12": "a private",
        "192.0.0.0/24": "a reserved",
        "192.0.2.0/24": "a reserved",
        "192.88.99.0/24": "a reserved",
        "192.168.0.0/16": "a private",
        "198.18.0.0/15": "a reserved",
        "198.51.100.0/24": "a reserved",
        "203.0.113.0/24": "a reserved",
        "224.0.0.0/4": "a multicast",
        "240.0.0.0/4": "a reserved",
    }.items()
}
_REFUSED_V6 = {
    ipaddress.IPv6Network(net): why
    for net, why in {
        "::/128": "an unspecified",
        "::1/128": "a loopback",
        "fc00::/7": "a private",
        "fe80::/10": "a link-local",
        "fec0::/10": "a private",
        "ff00::/8": "a multicast",
        "2001::/23": "a tunnelled or reserved",  # Teredo, ORCHID, benchmarking
        "2001:db8::/32": "a reserved",
        "2002::/16": "a tunnelled",  # 6to4
        "3fff::/20": "a reserved",
    }.items()
}
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_host(text: str) -> bool:
    """Whether `text` is a host name in ASCII or an IP address without zone and brackets."""
    if ":" not in text:
        return _NAME.fullmatch(text) is not None
    try:
        return "%" not in text and ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def refusal(address: str) -> str | None:
    """Why `address` must not be called ("a loopback", ...), or None for a public one.

    IPv4-mapped and NAT64 addresses are judged by the IPv4 address inside; 6to4 and Teredo, being
    tunnels into anywhere, are refused as a whole. A translation prefix of the site's own (RFC 6052)
    looks like any public address and cannot be recognised. Raises ValueError for a non-address.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is None:
            found = (why for net, why in _REFUSED_V6.items() if ip in net)
            return next(found, None if ip in _GLOBAL_V6 else "a reserved")
        ip = inner
    return next((why for net, why in _REFUSED_V4.items() if ip in net), None)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver, off the event loop."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


async def checked_addresses(
    host: str, port: int, *, resolver: Resolver, allow_private: bool
) -> Sequence[str]:
    """The addresses of `host`, all of them allowed.

    Raises `TargetRefused` if any is not, `HttpTransportError` (dns_failed) if there are none.
    """
    addresses = _without_dns(host) or await _by_dns(host, port, resolver)
    for address in addresses:
        why = None if allow_private else refusal(address)
        if why is not None:
            where = host if host == address else f"{host} ({address})"
            raise TargetRefused(
                f"refused to call {shown_name(where)}: it is {why} address, "
                "which this worker does not allow (TASKQ_HTTP_CALL_ALLOW_PRIVATE)"
            )
    return addresses


def _without_dns(host: str) -> Sequence[str]:
    """Addresses that need no resolver, empty for an ordinary name.

    Literals in every spelling the C library takes (``2130706433``, ``0x7f.1``), and names under
    ``localhost``, which RFC 6761 binds to loopback.
    """
    name = host.removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return ("127.0.0.1", "::1")
    try:
        return (str(ipaddress.ip_address(name)),)
    except ValueError:
        pass
    try:
        return (socket.inet_ntoa(socket.inet_aton(name)),)
    except OSError:
        return ()


async def _by_dns(host: str, port: int, resolver: Resolver) -> Sequence[str]:
    try:
        addresses = await resolver(host, port)
    except OSError as exc:
        reason = exc.strerror or "the resolver failed"
    except UnicodeError:
        reason = "the name is not valid"
    else:
        if addresses:
            return addresses
        reason = "the name has no address"
    text = f"could not resolve {shown_name(host)}: {reason}"
    raise HttpTransportError(text, code="dns_failed") from None


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """Dials the given addresses in turn, whatever name httpcore asks for."""

    def __init__(self, addresses: Sequence[str], dialler: httpcore.AsyncNetworkBackend) -> None:
        self._addresses = addresses[:_MAX_DIALLED]
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        # Each address gets its share of the time, so that one that never answers leaves some over.
        share = None if timeout is None else timeout / len(self._addresses)
        for address in self._addresses[:-1]:
            try:
                return await self._dialler.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._dialler.connect_tcp(
            self._addresses[-1], port, share, local_address, socket_options
        )


class PinnedTransport(httpx.AsyncBaseTransport):
    """Sends requests to the given addresses only; raises httpcore's exceptions.

    Used without `httpx.AsyncClient`: so there is no proxy or .netrc from the environment, no cookie
    jar, no redirect that was not checked, and no log line with the whole URL in it.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        ssl_context: ssl.SSLContext | None,
        dialler: httpcore.AsyncNetworkBackend,
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=1,
            retries=0,
            network_backend=_PinnedBackend(addresses, dialler),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` and return once the response head is there; the body is unread."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Stream(response),
            extensions=response.extensions,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._pool.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()
