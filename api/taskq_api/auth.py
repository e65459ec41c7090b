"""API keys: a list in the settings, shown by clients as ``Authorization: Bearer``."""

import hashlib
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from taskq.errors import ConfigError
from taskq.settings import Settings
from taskq_api.errors import problem
from taskq_api.limits import is_loopback

OPEN_PATHS = frozenset({"/health", "/ready"})
"""What probes ask for; never needs a key."""

OWNER = "taskq.owner"
"""Where a request's scope holds who sent it: '' where no key is asked for."""


def key_digests(settings: Settings) -> tuple[bytes, ...]:
    """SHA-256 of each key. Raises ``ConfigError`` where the setting holds none."""
    if settings.api_keys is None:
        return ()
    keys = [key.strip() for key in settings.api_keys.get_secret_value().split(",")]
    if not any(keys):
        raise ConfigError("TASKQ_API_KEYS holds no key; give keys separated by commas, or unset it")
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys if key)


def check_bind(settings: Settings) -> None:
    """Refuses to be open to the network by accident. Raises ``ConfigError``."""
    if settings.api_keys is None and not settings.allow_open and not is_loopback(settings.api_host):
        raise ConfigError(
            f"{settings.api_host} is reachable from other machines: set TASKQ_API_KEYS, "
            "or listen on 127.0.0.1, or say TASKQ_ALLOW_OPEN=1 if only trusted clients reach the port"
        )


class KeyAuth:
    """Lets through requests that show one of the keys."""

    def __init__(self, app: ASGIApp, *, digests: tuple[bytes, ...]) -> None:
        self.app = app
        self._digests = digests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        owner = self._owner(scope)
        if owner is None:
            refused = problem(
                "unauthorized",
                "send a key as `Authorization: Bearer <key>`",
                headers={"WWW-Authenticate": 'Bearer realm="taskq"'},
            )
            await refused(scope, receive, send)
            return
        scope[OWNER] = owner
        await self.app(scope, receive, send)

    def _owner(self, scope: Scope) -> str | None:
        """A name for the key that was shown, which does not tell the key; None for a wrong one."""
        given = next((v for name, v in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        shown = hashlib.sha256(key.strip()).digest()
        # All are compared, so that the time tells neither whether one fits nor which.
        fits = [hmac.compare_digest(shown, digest) for digest in self._digests]
        if scheme.lower() != b"bearer" or not any(fits):
            return None
        return shown.hex()[:16]
