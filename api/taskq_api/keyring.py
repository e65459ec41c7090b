"""The API keys as this process knows them: all of Redis's, read every two seconds, and those of the settings.

So a key that is known costs no call, and neither does a wrong one. Nothing is decided on what is older than
five seconds: that is how long a revoked key may still be used.
"""

import asyncio
import hmac
import logging
import time
from dataclasses import dataclass

from taskq.apikeys import ApiKey, digest, good, pairs, parse_key, token_id
from taskq.calls import throttle
from taskq.errors import InvalidInput, TaskqError
from taskq.store import AsyncStore, time_ms
from taskq_api.access import OPEN, Access
from taskq_api.errors import Refused

logger = logging.getLogger("taskq.api")

REFRESH_SECONDS = 2.0
STALE_SECONDS = 5.0
USED_SECONDS = 60.0
"""How often a key's last use is written, at most."""
_NOBODY = digest(b"")
"""Compared with where an id is unknown, so that it takes the same time."""


@dataclass(frozen=True, slots=True)
class _Known:
    data: bytes
    key: ApiKey
    digest: bytes
    access: Access


@dataclass(frozen=True, slots=True)
class _Listed:
    """A key of the settings: it may do everything, and never ends."""

    digest: bytes
    access: Access


class KeyRing:
    """Finds the key of a token. ``tokens`` are those of the settings."""

    def __init__(self, store: AsyncStore, tokens: tuple[str, ...]) -> None:
        self._store = store
        self._listed = [_listed(i, token) for i, token in enumerate(tokens, 1)]
        self._known: dict[str, _Known] = {}
        self._closed = bool(tokens)
        self._read_at = float("-inf")
        self._now_ms = 0
        self._reading: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._rates: dict[str, tuple[float, float]] = {}

    @property
    def closed(self) -> bool:
        """Whether a key is asked for. Once it is, it is until the process ends: when the last key is
        revoked the door does not open by itself."""
        return self._closed

    @property
    def known(self) -> bool:
        """Whether the keys were ever read."""
        return self._read_at > 0

    @property
    def stale(self) -> bool:
        return time.monotonic() - self._read_at > STALE_SECONDS

    async def fresh(self) -> None:
        """Reads the keys if what is known is too old to decide on. Raises ``Unavailable``, ``BrokenKey``."""
        if self.stale:
            # Who waits shares one look; whoever goes away does not end it for the others.
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self.read())
            await asyncio.shield(self._reading)

    async def read(self) -> None:
        """Reads the keys now. Raises ``Unavailable``, ``BrokenKey``."""
        began = time.monotonic()
        names = self._store.keys
        clock, stored = good(await self._store.pipeline([("TIME",), ("HGETALL", names.api_keys)]))
        found = pairs(stored)
        self._known = {
            key_id: known
            for key_id, data in found.items()
            if (known := self._parse(key_id, data)) is not None
        }
        self._used = {i: at for i, at in self._used.items() if i in self._known}
        self._rates = {i: at for i, at in self._rates.items() if i in self._known}
        if found and not self._closed:
            logger.warning("there are API keys now: from here on every request needs one")
        self._closed = self._closed or bool(found)
        self._now_ms = time_ms(clock)
        self._read_at = began

    def _parse(self, key_id: str, data: bytes) -> _Known | None:
        known = self._known.get(key_id)
        if known is not None and known.data == data:
            return known
        try:
            key = parse_key(key_id, data)
        except InvalidInput as error:
            logger.warning("%s; it opens nothing", error)
            return None
        return _Known(data, key, bytes.fromhex(key.digest), Access.of(key))

    def now_ms(self) -> float:
        """By Redis's clock, as it was at the last look."""
        return self._now_ms + (time.monotonic() - self._read_at) * 1000

    def find_listed(self, shown: bytes) -> Access | None:
        """The key of the settings whose token has this digest."""
        # All are compared, so that the time tells neither whether one fits nor which.
        fits = [key for key in self._listed if hmac.compare_digest(shown, key.digest)]
        return fits[0].access if fits else None

    def find(self, token: bytes, shown: bytes) -> tuple[Access | None, bool]:
        """(the stored key of a token, whether it has expired)."""
        known = self._known.get(token_id(token))
        fits = hmac.compare_digest(shown, _NOBODY if known is None else known.digest)
        if known is None or not fits:
            return None, False
        if known.key.expired(self.now_ms()):
            return None, True
        self._used[known.key.id] = self.now_ms()
        return known.access, False

    def key_of(self, access: Access) -> ApiKey | None:
        """The stored key that a request has shown; None for one of the settings, or for none."""
        known = self._known.get(access.owner)
        return known.key if known is not None and known.access == access else None

    async def check_again(self, access: Access) -> None:
        """For answers that take long: raises ``Refused`` ``unauthorized`` where the key has been revoked or
        has expired since the request came in, or where keys are asked for only since then."""
        if any(key.access == access for key in self._listed):
            return
        await self.fresh()
        known = self._known.get(access.owner)
        if access == OPEN and not self._closed:
            return
        if known is None or known.access != access or known.key.expired(self.now_ms()):
            raise Refused("unauthorized", "this API key is not valid any more")

    async def wait_for(self, access: Access) -> float:
        """Takes a request from a key's rate: seconds until the next one is allowed, 0 if this one is.

        The rate holds over all API processes. What this one alone has let through is counted here too: a
        client far over its rate is not told so by Redis each time, and while Redis is away it is all that is
        known.
        """
        rate = access.rate
        if rate is None:
            return 0.0
        now, period = time.monotonic(), rate.period_ms / 1000
        full_at, refused_until = self._rates.get(access.owner, (now, now))
        if refused_until > now:
            return refused_until - now
        after = max(full_at, now) + period / rate.requests
        if after - now - period > 1e-6:
            return after - now - period
        call = throttle(self._store.keys.rate(access.owner), rate.requests, rate.period_ms)
        try:
            wait = await self._store.run(call, retry_seconds=0)
        except TaskqError:
            wait = 0.0
        self._rates[access.owner] = (full_at if wait else after, now + wait)
        return wait

    async def run(self) -> None:
        """Keeps what is known fresh, and writes when keys were last used, until it is cancelled."""
        while True:
            try:
                await self.read()
                await self.write_used()
            except TaskqError as error:
                logger.debug("API keys could not be read: %s", error)
            await asyncio.sleep(REFRESH_SECONDS)

    async def write_used(self) -> None:
        """Writes when keys were used, of each at most once a minute."""
        now = time.monotonic()
        due = {
            i: ms for i, ms in self._used.items() if now - self._written.get(i, -1e9) > USED_SECONDS
        }
        self._used = {i: ms for i, ms in self._used.items() if i not in due}
        if due:
            self._written = {i: at for i, at in self._written.items() if i in self._known}
            self._written |= dict.fromkeys(due, now)
            flat = [part for i, ms in due.items() for part in (i, int(ms))]
            await self._store.pipeline([("HSET", self._store.keys.keys_used, *flat)])


def _listed(place: int, token: str) -> _Listed:
    shown = digest(token.encode())
    # The owner is what it was before keys had ids: idempotency keys of that time go on.
    return _Listed(shown, Access(f"env:{place}", owner=shown.hex()[:16]))
