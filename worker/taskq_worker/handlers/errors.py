"""What a built-in handler raises, in one small tree.

``retryable`` tells the worker whether another attempt can help; ``code`` is stable and is what
metrics and the error groups count. The texts are for people and carry neither header values nor
user names, passwords or query strings of URLs::

    HandlerError              handler_error        base
    ├── PayloadInvalid        payload_invalid      never retried
    ├── TargetRefused         target_refused       never retried
    ├── RedirectRefused       redirect_refused     never retried
    ├── HttpStatusError       http_status          retried for 408, 425, 429 and 5xx
    └── HttpTransportError    dns_failed, connect_failed, tls_failed, timeout, connection_lost
                              or protocol_error; retried
"""

from typing import Literal

RETRYABLE_STATUS = frozenset({408, 425, 429})

TransportCode = Literal[
    "dns_failed", "connect_failed", "tls_failed", "timeout", "connection_lost", "protocol_error"
]


class HandlerError(Exception):
    """A handler failed for a reason it can name.

    ``retry_after_seconds`` is the other side's wish for the earliest next attempt, or None.
    """

    code: str = "handler_error"
    retryable: bool = True
    retry_after_seconds: float | None = None


class PayloadInvalid(HandlerError):
    """The payload does not fit the handler's model; the text names fields, never their values."""

    code = "payload_invalid"
    retryable = False


class TargetRefused(HandlerError):
    """The URL, or one it redirected to, leads to an address this worker must not call."""

    code = "target_refused"
    retryable = False


class RedirectRefused(HandlerError):
    """The server redirected too often or to something that is not a URL."""

    code = "redirect_refused"
    retryable = False


class HttpStatusError(HandlerError):
    """The server answered, with a status that does not count as success.

    ``status`` is the HTTP status; ``retry_after_seconds`` is set for a 429 or 503 that carried
    Retry-After (at most one hour).
    """

    code = "http_status"

    def __init__(
        self, message: str, *, status: int, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = status in RETRYABLE_STATUS or status >= 500
        self.retry_after_seconds = retry_after_seconds


class HttpTransportError(HandlerError):
    """No usable answer came: name resolution, connecting, TLS, time or the protocol failed."""

    def __init__(self, message: str, *, code: TransportCode) -> None:
        super().__init__(message)
        self.code = code
