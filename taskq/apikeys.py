"""API keys: who may ask the REST API for what, for which queues and job types, and how often.

``<namespace>:keys`` is a hash: id -> JSON of one key, without its secret; ``<namespace>:keys:used`` tells
when each was last used. A token is ``tq_<id>_<secret>``. Its secret is 192 random bits, and what is stored is
the SHA-256 of the token: a slow hash only makes words that people choose harder to guess, and nobody guesses
192 bits; it would let anybody keep the API busy with wrong tokens.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taskq.calls import TEN_YEARS_MS
from taskq.errors import BrokenKey, InvalidInput, KeyNotFound, TaskqError
from taskq.ids import check_job_type, check_key, check_queue
from taskq.store import AsyncStore, time_ms, translate

MAX_KEYS = 1000
"""So that every API process can hold all of them, and look for changes every two seconds."""
MAX_NAMES = 100
"""Queues or job types that one key may list."""
SECRET_BYTES = 24

_ID = re.compile(r"[a-z0-9]{1,32}\Z")
_RATE = re.compile(r"([1-9]\d{0,6})/(s|m|h)\Z")
_PERIODS = {"s": 1_000, "m": 60_000, "h": 3_600_000}


class Scope(StrEnum):
    """What a key may do. None of them includes another."""

    SUBMIT = "submit"
    """Store jobs."""
    READ = "read"
    """Look at jobs, queues, workers and statistics; payloads and results left out."""
    PAYLOAD = "payload"
    """See payloads and results in what ``read`` shows."""
    WORK = "work"
    """Lease jobs, with their payloads, and report how they ended."""
    OPERATE = "operate"
    """Cancel, retry, change, delete and purge jobs; pause and set queues."""
    ADMIN = "admin"
    """Make and revoke keys, read the audit trail, repair."""


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Rate:
    """``requests`` in ``period_ms``: so many at once, refilled evenly."""

    requests: int
    period_ms: int

    @classmethod
    def parse(cls, text: object) -> "Rate":
        """Of ``100/s``, ``600/m`` or ``5000/h``. Raises ``InvalidInput``."""
        found = _RATE.match(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidInput(
                f"rate {ascii(text)[:40]} must be a number and a unit, such as 100/s, 600/m or 5000/h",
                field="rate",
            )
        return cls(int(found[1]), _PERIODS[found[2]])

    def __str__(self) -> str:
        unit = next(unit for unit, ms in _PERIODS.items() if ms == self.period_ms)
        return f"{self.requests}/{unit}"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored. Times are ms by Redis's clock; None for a list means all, for a time never."""

    id: str
    name: str
    digest: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    job_types: frozenset[str] | None = None
    rate: Rate | None = None
    created_at: int | None = None
    expires_at: int | None = None
    used_at: int | None = None

    def expired(self, now_ms: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now_ms

    def dump(self) -> str:
        """The JSON that is stored."""
        fields = {
            "name": self.name,
            "sha256": self.digest,
            "scopes": sorted(self.scopes),
            "queues": None if self.queues is None else sorted(self.queues),
            "job_types": None if self.job_types is None else sorted(self.job_types),
            "rate": None if self.rate is None else str(self.rate),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None})


def parse_key(key_id: str, data: bytes, used: bytes | None = None) -> ApiKey:
    """The key that was stored. Raises ``InvalidInput`` for what a foreign hand wrote: it opens nothing."""
    try:
        fields = json.loads(data)
        return ApiKey(
            id=key_id,
            name=str(fields["name"]),
            digest=_digest(fields["sha256"]),
            # A scope of a later version is not for this one to grant.
            scopes=frozenset(Scope(word) for word in fields["scopes"] if word in ALL_SCOPES),
            queues=_names(fields.get("queues")),
            job_types=_names(fields.get("job_types")),
            rate=None if fields.get("rate") is None else Rate.parse(fields["rate"]),
            created_at=_time(fields.get("created_at")),
            expires_at=_time(fields.get("expires_at")),
            used_at=int(used) if used and used.isdigit() else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"key {key_id!r} cannot be read: {type(error).__name__}") from None


def _digest(value: Any) -> str:
    if len(bytes.fromhex(value)) != hashlib.sha256().digest_size:
        raise ValueError("no SHA-256")
    return str(value)


def _names(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError("no list of names")
    return frozenset(value)


def _time(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError("no time")
    return value


def digest(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token).digest()


def token_id(token: bytes) -> str:
    """The id that a token names; '' for what is no token of ours."""
    parts = token.split(b"_", 2)
    if len(parts) != 3 or parts[0] != b"tq":
        return ""
    return parts[1].decode("ascii", errors="replace")


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """What a new key may do. Lists that are empty or None mean all; ``expires_ms`` from now."""

    name: str
    scopes: Sequence[str]
    queues: Sequence[str] | None = None
    job_types: Sequence[str] | None = None
    rate: str | None = None
    expires_ms: int | None = None

    def parameters(self) -> dict[str, Any]:
        """What the audit trail says of it."""
        said = {
            "name": self.name,
            "scopes": [*self.scopes],
            "queues": [*(self.queues or ())],
            "job_types": [*(self.job_types or ())],
            "rate": self.rate,
            "expires_seconds": None if self.expires_ms is None else self.expires_ms / 1000,
        }
        return {name: value for name, value in said.items() if value}

    def key(self, key_id: str, token_digest: str, now_ms: int) -> ApiKey:
        """The key, checked. Raises ``InvalidInput`` naming the field."""
        scopes = _scopes(self.scopes)
        queues = _list(self.queues, check_queue, "queues")
        job_types = _list(self.job_types, check_job_type, "job_types")
        if Scope.ADMIN in scopes and (queues is not None or job_types is not None):
            raise InvalidInput(
                "a key of scope admin could make itself another: it takes no list of queues or job types",
                field="scopes",
            )
        if self.expires_ms is not None and not 0 < self.expires_ms <= TEN_YEARS_MS:
            raise InvalidInput("expires must be more than 0 and at most ten years", field="expires")
        return ApiKey(
            id=key_id,
            name=check_key(self.name, "name"),
            digest=token_digest,
            scopes=scopes,
            queues=queues,
            job_types=job_types,
            rate=None if self.rate is None else Rate.parse(self.rate),
            created_at=now_ms,
            expires_at=None if self.expires_ms is None else now_ms + self.expires_ms,
        )


def _scopes(words: Sequence[str]) -> frozenset[Scope]:
    known = ", ".join(Scope)
    for word in words:
        if word not in ALL_SCOPES:
            raise InvalidInput(f"no scope {ascii(word)[:40]}: there are {known}", field="scopes")
    if not words:
        raise InvalidInput(f"a key needs at least one scope: {known}", field="scopes")
    return frozenset(Scope(word) for word in words)


def _list(names: Iterable[str] | None, check: Any, field: str) -> frozenset[str] | None:
    checked = frozenset(check(name) for name in names or ())
    if len(checked) > MAX_NAMES:
        raise InvalidInput(f"{field} may name {MAX_NAMES} at most", field=field)
    return checked or None


class KeyStore:
    """Makes, lists and revokes keys."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def create(self, wanted: KeyRequest) -> tuple[ApiKey, str]:
        """(key, token): the token cannot be had again. Raises ``InvalidInput``, ``Unavailable``."""
        wanted.key("0", "", 0)  # refuses before anything is asked
        name = self._store.keys.api_keys
        clock, there = good(await self._store.pipeline([("TIME",), ("HLEN", name)]))
        if there >= MAX_KEYS:
            raise InvalidInput(f"there are {MAX_KEYS} keys already; revoke those that are not used")
        key_id = secrets.token_hex(6)
        token = f"tq_{key_id}_{secrets.token_hex(SECRET_BYTES)}"
        key = wanted.key(key_id, digest(token.encode()).hex(), time_ms(clock))
        data = key.dump()
        (made,) = good(await self._store.pipeline([("HSETNX", name, key_id, data)]))
        if not made:
            # Sent again after a lost answer it is ours; anybody else's would not have our digest.
            (stored,) = good(await self._store.pipeline([("HGET", name, key_id)]))
            if stored != data.encode():
                raise TaskqError("the id of the new key is taken; try again")
        return key, token

    async def list(self) -> list[ApiKey]:
        """All keys, oldest first; what cannot be read is left out. Raises ``Unavailable``."""
        names = self._store.keys
        stored, used = good(
            await self._store.pipeline([("HGETALL", names.api_keys), ("HGETALL", names.keys_used)])
        )
        when = pairs(used)
        keys = []
        for key_id, data in pairs(stored).items():
            try:
                keys.append(parse_key(key_id, data, when.pop(key_id, None)))
            except InvalidInput:
                continue
        gone = [key_id for key_id in when if key_id not in pairs(stored)]
        if gone:  # a use that was noted while the key was revoked
            await self._store.pipeline([("HDEL", names.keys_used, *gone)])
        return sorted(keys, key=lambda key: (key.created_at or 0, key.id))

    async def revoke(self, key_id: str) -> str:
        """Deletes a key and answers its name; API processes refuse it within five seconds.

        Raises ``KeyNotFound``, ``Unavailable``.
        """
        names = self._store.keys
        if not _ID.match(key_id):
            raise KeyNotFound(key_id[:100])
        stored, gone, _ = good(
            await self._store.pipeline(
                [
                    ("HGET", names.api_keys, key_id),
                    ("HDEL", names.api_keys, key_id),
                    ("HDEL", names.keys_used, key_id),
                ]
            )
        )
        if not gone:
            raise KeyNotFound(key_id)
        try:
            return parse_key(key_id, stored or b"").name
        except InvalidInput:
            return ""

    async def count(self) -> int:
        """How many keys there are. Raises ``Unavailable``."""
        (there,) = good(await self._store.pipeline([("HLEN", self._store.keys.api_keys)]))
        return int(there)


def good(replies: Sequence[Any]) -> Sequence[Any]:
    """The replies of a pipeline, or the first that is an error, raised."""
    for reply in replies:
        if isinstance(reply, Exception):
            if "WRONGTYPE" in str(reply):
                raise BrokenKey("the hash of API keys has the wrong type: run `taskq doctor`")
            raise translate(reply)
    return replies


def pairs(reply: Any) -> dict[str, bytes]:
    """A hash of an answer, in either of the client's forms."""
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(errors="replace"): value for name, value in items}
