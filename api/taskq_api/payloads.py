"""Judges submissions by what workers have published: the schema of a job type's payload, and whether there is
such a type at all.

What workers published and which queues are strict is kept for five seconds and renewed in the background, so
that a submission costs no look of its own. A type without a schema costs nothing.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from taskq.errors import InvalidPayload, UnknownJobType
from taskq.store import AsyncStore

logger = logging.getLogger("taskq.api")

FRESH_SECONDS = 5.0
MAX_QUEUES = 1000
MAX_SCHEMA_BYTES = 65_536
MAX_CHECKED_BYTES = 32_768
"""A larger payload is left to its worker to judge: a look at every value of it would hold up others (32 KiB
of numbers take some 50 ms)."""
AGAIN_SECONDS = 0.1
"""So often at most a type that is not known is looked for anew."""

_KINDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@dataclass(slots=True)
class _Type:
    """What is known of a job type; ``problem`` says why its schema is not used."""

    text: bytes
    about: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    validator: Any = None


class Payloads:
    """``look`` before ``judge``: the one may ask Redis, the other never waits."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._types: dict[str, _Type] = {}
        self._by_digest: dict[str, tuple[Any, str | None]] = {}
        self._strict: dict[str, bool] = {}
        self._looked_at = float("-inf")
        self._renewal: asyncio.Task[None] | None = None
        self._looks: dict[str, asyncio.Task[None]] = {}

    def ready(self, queue: str, job_type: str) -> bool:
        """Whether ``judge`` can do without a look."""
        age = time.monotonic() - self._looked_at
        if age > FRESH_SECONDS and queue in self._strict:
            self._renew()
        strict = self._strict.get(queue)
        return strict is False or (strict is True and job_type in self._types)

    async def look(self, queue: str, job_type: str) -> None:
        """Learns what is needed to judge a submission. Raises ``Unavailable``."""
        if self.ready(queue, job_type):
            return
        known = queue in self._strict
        if known and time.monotonic() - self._looked_at < AGAIN_SECONDS:
            return
        if not known and len(self._strict) >= MAX_QUEUES:
            self._strict.clear()
        # Many that come at once share one look, and one refusal where Redis is away.
        look = self._looks.get(queue)
        if look is None:
            look = self._looks[queue] = asyncio.create_task(self._load([*self._strict, queue]))
            look.add_done_callback(lambda done: self._looked(queue, done))
        await asyncio.shield(look)

    def _looked(self, queue: str, look: "asyncio.Task[None]") -> None:
        self._looks.pop(queue, None)
        if not look.cancelled():
            look.exception()  # also where nobody waits for it any more

    def judge(self, queue: str, job_type: str, payload: Any, size: int) -> None:
        """Refuses a type that nobody knows where the queue is strict, and a payload that does not fit.

        ``size`` is the payload's in bytes. Raises ``UnknownJobType``, ``InvalidPayload``.
        """
        known = self._types.get(job_type)
        if known is None:
            if self._strict.get(queue):
                raise UnknownJobType(
                    f"queue {queue!r} is strict and no worker has published the job type {job_type!r}",
                    field="job_type",
                )
            return
        if known.validator is None or size > MAX_CHECKED_BYTES:
            return
        try:
            error = next(known.validator.iter_errors(payload), None)
        except Exception as failure:
            # A reference that leads nowhere, or in a circle: the worker will judge.
            known.validator, known.problem = None, f"cannot be used: {type(failure).__name__}"
            self._by_digest[_digest(known.about)] = (None, known.problem)
            logger.warning("job type %s: its schema %s", job_type, known.problem)
            return
        if error is not None:
            raise _refusal(error)

    def forget(self, queue: str) -> None:
        """Its settings have changed."""
        self._strict.pop(queue, None)

    async def problems(self) -> dict[str, str]:
        """Job types whose schema is not used, and why."""
        await self._load(list(self._strict))
        return {name: known.problem for name, known in self._types.items() if known.problem}

    async def close(self) -> None:
        running = [*self._looks.values(), *([self._renewal] if self._renewal else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _renew(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renewed())

    async def _renewed(self) -> None:
        try:
            await self._load(list(self._strict))
        except Exception as error:
            # What is known stays; the submission itself says what Redis has.
            self._looked_at = time.monotonic()
            logger.debug("cannot look at job types: %s", error)

    async def _load(self, queues: Iterable[str]) -> None:
        names = list(dict.fromkeys(queues))
        keys = self._store.keys
        commands: list[tuple[Any, ...]] = [("HGETALL", keys.types)]
        commands += [("HGET", keys.queue(name).config, "strict_types") for name in names]
        types, *strict = await self._store.pipeline(commands)
        if not isinstance(types, Exception):
            pairs = (
                types.items()
                if isinstance(types, dict)
                else zip(types[::2], types[1::2], strict=True)
            )
            self._take({name.decode(errors="replace"): text for name, text in pairs})
        for name, value in zip(names, strict, strict=True):
            self._strict[name] = value == b"1"
        self._looked_at = time.monotonic()

    def _take(self, published: dict[str, bytes]) -> None:
        for gone in self._types.keys() - published.keys():
            del self._types[gone]
        for name, text in published.items():
            known = self._types.get(name)
            if known is None or known.text != text:
                self._types[name] = self._read(name, text)

    def _read(self, name: str, text: bytes) -> _Type:
        try:
            about = json.loads(text)
        except (ValueError, RecursionError):
            return _Type(text, problem="is not readable")
        if not isinstance(about, dict) or about.get("schema") in (None, True, {}):
            return _Type(text, about if isinstance(about, dict) else {})
        known = _Type(text, about)
        digest = _digest(about)
        if digest not in self._by_digest:
            if len(self._by_digest) >= 10_000:
                self._by_digest.clear()
            self._by_digest[digest] = _validator(about["schema"])
            if problem := self._by_digest[digest][1]:
                logger.warning(
                    "job type %s: its schema %s; payloads are not checked", name, problem
                )
        known.validator, known.problem = self._by_digest[digest]
        return known


def _digest(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about.get("schema"), sort_keys=True).encode()).hexdigest()


def _validator(schema: Any) -> tuple[Any, str | None]:
    """(validator, why there is none). No reference leads out of the schema."""
    if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
        return None, f"is larger than {MAX_SCHEMA_BYTES} bytes"
    try:
        Draft202012Validator.check_schema(schema)
        return Draft202012Validator(schema, registry=Registry()), None
    except SchemaError as error:
        return None, f"is no JSON Schema: {error.message[:200]}"
    except Exception as error:
        return None, f"cannot be used: {type(error).__name__}"


def _refusal(error: ValidationError) -> InvalidPayload:
    """Names the field and the rule, and holds no value."""
    path = [str(part) for part in error.absolute_path]
    wanted: Any = error.validator_value
    value: Any = error.instance
    rule = str(error.validator)
    if rule == "required":
        missing = next((name for name in wanted if name not in value), "?")
        path.append(str(missing))
        text = "is missing"
    elif rule == "additionalProperties" and isinstance(value, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        path.append(next((name for name in value if name not in known), "?"))
        text = "is not a field of this job type"
    elif rule == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        text = "must be " + " or ".join(_KINDS.get(kind, str(kind)) for kind in kinds)
    elif rule in ("anyOf", "oneOf", "not", "allOf"):
        text = f"does not fit what the job type takes ({rule})"
    else:
        text = f"does not fit what the job type takes ({rule}: {json.dumps(wanted)[:100]})"
    where = ".".join(["payload", *path])[:100]
    return InvalidPayload(f"{where} {text}", field=where)
