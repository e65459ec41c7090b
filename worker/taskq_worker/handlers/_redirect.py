"""One request of a call, and how RFC 9110 turns it into the next when it is redirected."""

import re
from dataclasses import dataclass, field

import httpx

from taskq_worker.handlers._http_payload import HttpCallPayload, parse_url
from taskq_worker.handlers._text import shown_url
from taskq_worker.handlers.errors import RedirectRefused, TargetRefused

REDIRECTS = frozenset({301, 302, 303, 307, 308})

# Authorization and Cookie as RFC 9110 asks, and what people name their own secrets.
_CREDENTIAL = re.compile(
    r"auth|cookie|token|secret|api-?key|access-?key|passw|signature|credential|session",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Hop:
    """One request. `url` has no user information left; `headers` are as they will be sent."""

    method: str
    url: httpx.URL
    headers: Headers = field(repr=False)
    content: bytes | None = field(repr=False)

    @property
    def port(self) -> int:
        """The port to dial."""
        return self.url.port or _DEFAULT_PORTS[self.url.scheme]

    @property
    def host(self) -> str:
        """The host to resolve, in ASCII."""
        return self.url.raw_host.decode("ascii")

    @property
    def shown(self) -> str:
        """Method and URL, for messages."""
        return f"{self.method} {shown_url(self.url)}"

    def request(self, timeout: float) -> httpx.Request:
        """As httpx sends it; `timeout` (seconds) is for connecting."""
        return httpx.Request(
            self.method,
            self.url,
            headers=[
                (name.encode("ascii"), value.encode("latin-1")) for name, value in self.headers
            ],
            content=self.content,
            extensions={
                "timeout": {"connect": timeout},
                # Without the dot of an absolute name, which no certificate has.
                "sni_hostname": self.host.removesuffix("."),
            },
        )


def first_hop(payload: HttpCallPayload) -> Hop:
    """The request that the payload describes; user information in the URL becomes basic auth."""
    url = parse_url(payload.url)
    body = payload.content()
    headers = dict(payload.headers)
    given = {name.lower() for name in headers}
    defaults = {
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "taskq",
    }
    if body is not None:
        defaults["Content-Type"] = body[1]
    if url.userinfo:
        defaults["Authorization"] = basic_auth(url)
    headers.update({name: value for name, value in defaults.items() if name.lower() not in given})
    headers["Connection"] = "close"
    return Hop(
        payload.method, without_userinfo(url), tuple(headers.items()), body[0] if body else None
    )


def next_hop(hop: Hop, status: int, location: str) -> Hop:
    """Where a redirect of `hop` leads.

    303 becomes GET (HEAD stays), so does a POST after 301 or 302, and then the body and what
    describes it go; 307 and 308 repeat the request. Another origin gets no credentials. User
    information in `location` is ignored: it is the server's word, not the caller's.
    Raises `TargetRefused` for a scheme that is not HTTP, `RedirectRefused` for no URL at all.
    """
    try:
        joined = hop.url.join(location)
    except (httpx.InvalidURL, ValueError):
        raise RedirectRefused(f"{hop.shown} redirects to something that is no URL") from None
    if joined.scheme not in {"http", "https"}:
        raise TargetRefused(f"{hop.shown} redirects to a URL that is neither http nor https")
    try:
        url = without_userinfo(parse_url(str(joined)))
    except ValueError as exc:
        raise RedirectRefused(f"{hop.shown} redirects to a bad URL: {exc}") from None
    method, headers, content = hop.method, hop.headers, hop.content
    if (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST"):
        method, content = "GET", None
        headers = tuple(pair for pair in headers if not _describes_body(pair[0]))
    if _origin(url) != _origin(hop.url):
        headers = tuple(pair for pair in headers if not _CREDENTIAL.search(pair[0]))
    return Hop(method, url, headers, content)


def without_userinfo(url: httpx.URL) -> httpx.URL:
    """`url` without user name and password."""
    return url.copy_with(userinfo=b"") if url.userinfo else url


def basic_auth(url: httpx.URL) -> str:
    """The Authorization value for the user information of `url`."""
    pair = httpx.BasicAuth(url.username, url.password)
    request = next(pair.auth_flow(httpx.Request("GET", "http://localhost/")))
    return request.headers["Authorization"]


def _describes_body(name: str) -> bool:
    return name.lower().startswith("content-") or name.lower() in {"digest", "repr-digest"}


def _origin(url: httpx.URL) -> tuple[str, bytes, int]:
    return url.scheme, url.raw_host, url.port or _DEFAULT_PORTS[url.scheme]
