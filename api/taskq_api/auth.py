"""The door: who a request is from, told by ``Authorization: Bearer`` and by nothing else.

Keys are those of the settings (``TASKQ_API_KEYS``: all scopes, no end) and those stored in Redis
(``taskq keys create``). Where there is none, the API is open to this machine, and ``Host`` and ``Origin`` are
checked instead. It is closed from the moment that a first key is seen, within two seconds of its making.
"""

import math
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from taskq.apikeys import digest
from taskq.errors import ConfigError, TaskqError, Unavailable
from taskq.settings import Settings
from taskq_api import errors
from taskq_api.access import ACCESS, BLIND, OPEN, Access
from taskq_api.errors import problem
from taskq_api.keyring import KeyRing
from taskq_api.limits import SameOrigin, is_loopback, turn_away
from taskq_api.tries import FailedTries, peer_of

OPEN_PATHS = frozenset({"/", "/favicon.svg", "/health", "/ready"})
"""What probes ask for, and the door of the dashboard; never needs a key."""
_PAGES = ("/ui/", "/assets/")
BLIND_PATHS = frozenset({"/metrics"})
"""What answers, without what is stored, on what was last known of keys while Redis is away."""


def is_open(path: str) -> bool:
    """Whether a path needs no key: probes, and the files of the dashboard, which are the same for
    everybody."""
    return path in OPEN_PATHS or path.startswith(_PAGES)


def listed_keys(settings: Settings) -> tuple[str, ...]:
    """The keys of the settings. Raises ``ConfigError`` where the setting holds none."""
    if settings.api_keys is None:
        return ()
    keys = [key.strip() for key in settings.api_keys.get_secret_value().split(",")]
    if not any(keys):
        raise ConfigError("TASKQ_API_KEYS holds no key; give keys separated by commas, or unset it")
    return tuple(key for key in keys if key)


def needs_keys(settings: Settings) -> bool:
    """Whether it may only be started if there are keys in Redis: nothing else closes the door."""
    return (
        settings.api_keys is None and not settings.allow_open and not is_loopback(settings.api_host)
    )


def check_bind(settings: Settings, *, keys_stored: bool) -> None:
    """Refuses to be open to the network by accident. Raises ``ConfigError``."""
    if needs_keys(settings) and not keys_stored:
        raise ConfigError(
            f"{settings.api_host} is reachable from other machines: make a key with `taskq keys create`, "
            "or set TASKQ_API_KEYS, or listen on 127.0.0.1, or say TASKQ_ALLOW_OPEN=1 if only trusted "
            "clients reach the port"
        )


class Door:
    """Lets through requests that show a key, or where none is asked for those that no foreign page sent.

    Where it may not be open, it stays closed when the last key is gone.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        self._closed = needs_keys(settings)
        self._open = SameOrigin(
            app,
            hosts=[settings.api_host],
            check_host=is_loopback(settings.api_host),
            origins=settings.origins,
        )
        self._tries = FailedTries()
        self._tell = errors.Teller()
        self._proven: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        ring: KeyRing = scope["app"].state.services.ring
        try:
            refused = await self._refusal(scope, ring)
        except TaskqError as error:
            self._tell(error)
            refused = errors.answer(error)
        if refused is not None:
            await turn_away(refused, scope, receive, send)
        elif scope.get(ACCESS) is OPEN or (is_open(scope["path"]) and self._is_open_to_all(ring)):
            await self._open(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_open_to_all(self, ring: KeyRing) -> bool:
        return ring.known and not (self._closed or ring.closed)

    async def _refusal(self, scope: Scope, ring: KeyRing) -> Any:
        """The answer to a request that stays outside; None for one that has its ``Access`` now."""
        if is_open(scope["path"]):
            return None
        if not (self._closed or ring.closed):
            await _know(scope, ring)
            if not ring.closed:
                scope[ACCESS] = OPEN
                return None
        token = _bearer(scope)
        shown = digest(token)
        access, expired = ring.find_listed(shown), False
        if access is None:
            await _know(scope, ring)
            access, expired = ring.find(token, shown)
        peer = peer_of(scope.get("client"))
        wait = self._tries.wait_for(peer)
        # What is right goes in past wrong keys from the same address: many clients may be behind one proxy.
        # Only keys of the settings, which people choose, must have been right before: a guess that hits
        # does not go in.
        guessed = access is None or (access.who not in self._proven and not access.is_stored)
        if wait and guessed:
            return _later(
                "too_many_failures",
                "too many wrong keys came from this address; wait, and check the key",
                wait,
            )
        if access is None:
            if token:
                self._tries.note(peer)
            return _unauthorized(expired)
        self._prove(access)
        scope[ACCESS] = access
        wait = await ring.wait_for(access)
        if wait:
            return _later("rate_limited", f"this API key may send {access.rate} requests", wait)
        return None

    def _prove(self, access: Access) -> None:
        if access.who not in self._proven:
            if len(self._proven) > 10_000:  # of keys that were revoked since
                self._proven.clear()
            self._proven.add(access.who)


async def _know(scope: Scope, ring: KeyRing) -> None:
    """The keys are known well enough to decide on after this. Raises ``Unavailable``, ``BrokenKey``."""
    try:
        await ring.fresh()
    except Unavailable:
        if scope["path"] not in BLIND_PATHS:
            raise
        scope[BLIND] = True


def _bearer(scope: Scope) -> bytes:
    """The token that a request shows; b'' for none."""
    given: bytes = next((v for name, v in scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = given.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _unauthorized(expired: bool) -> Any:
    detail = (
        "this API key has expired; an operator makes a new one with `taskq keys create`"
        if expired
        else "send a key as `Authorization: Bearer <key>`"
    )
    return problem("unauthorized", detail)


def _later(code: str, detail: str, seconds: float) -> Any:
    return problem(code, detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})
