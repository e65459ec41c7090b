"""What workers tell about themselves: read by dashboards and people, needed by nothing.

``<namespace>:worker:<id>`` is a hash of plain fields with a time to live; ``<namespace>:workers`` orders
the ids by last sight; ``<namespace>:types`` holds, per job type, the JSON that workers publish.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskq.store import AsyncStore, translate

MOST_WORKERS = 10_000
"""Workers that are looked at."""
PAGE = 1000
"""Records read in one go."""
PRUNED = 100
"""Workers that are asked for at once whether they are gone."""
MOST_GUESSED = 100
"""Records that are read with the list of those that there are."""

ANY_TYPE = "*"
"""Among the types of a worker: it takes whatever waits (a lease over HTTP that names no type)."""

COUNTED = ("claims", "claimed_jobs", "reports", "reported_jobs", "redis_errors", "abandoned_slots")
"""What a worker process counts about itself, from its start on; the last one is how many there are now."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker process (a child of a supervisor). Times are ms since the epoch, of that host's clock."""

    id: str
    host: str
    pid: int
    supervisor_pid: int
    version: str
    started_at: int
    seen_at: int
    state: str
    """``running``, ``quiet`` (claims nothing) or ``stopping``."""
    queues: tuple[str, ...]
    types: tuple[str, ...]
    slots: int
    busy: int
    label: str = ""
    """A name that the client of a lease over HTTP gave itself."""
    kind: str = "process"
    """``process`` (``taskq worker``) or ``http`` (a lease; it has no host, pid and version that we know)."""
    memory_bytes: int = 0
    """Resident memory of the process and of all below it; 0: it is not known."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """By the words of ``COUNTED``, as told lately."""

    def fields(self) -> dict[str, str]:
        return {
            "host": self.host,
            "pid": str(self.pid),
            "supervisor_pid": str(self.supervisor_pid),
            "version": self.version,
            "started_at": str(self.started_at),
            "seen_at": str(self.seen_at),
            "state": self.state,
            "queues": " ".join(self.queues),
            "types": " ".join(self.types),
            "slots": str(self.slots),
            "busy": str(self.busy),
            **({"memory_bytes": str(self.memory_bytes)} if self.memory_bytes else {}),
            **({"label": self.label} if self.label else {}),
            **({"kind": self.kind} if self.kind != "process" else {}),
            **{name: str(self.counted[name]) for name in COUNTED if name in self.counted},
        }

    @classmethod
    def parse(cls, worker: str, fields: dict[str, str]) -> "WorkerInfo":
        def number(name: str) -> int:
            value = fields.get(name, "")
            return int(value) if value.isdecimal() else 0

        return cls(
            id=worker,
            host=fields.get("host", ""),
            pid=number("pid"),
            supervisor_pid=number("supervisor_pid"),
            version=fields.get("version", ""),
            started_at=number("started_at"),
            seen_at=number("seen_at"),
            state=fields.get("state", ""),
            queues=tuple(fields.get("queues", "").split()),
            types=tuple(fields.get("types", "").split()),
            slots=number("slots"),
            busy=number("busy"),
            label=fields.get("label", ""),
            kind=fields.get("kind", "process"),
            memory_bytes=number("memory_bytes"),
            counted={name: number(name) for name in COUNTED if name in fields},
        )


class Registry:
    """Writes and reads the records."""

    def __init__(self, store: AsyncStore, *, ttl_seconds: float) -> None:
        self._store = store
        self._ttl_ms = round(ttl_seconds * 1000)
        self._lately: list[str] = []
        """Workers of the last look: most likely those of the next."""

    async def tell(
        self,
        worker: WorkerInfo,
        schemas: dict[str, Any] | None = None,
        *,
        ttl_ms: int | None = None,
    ) -> str:
        """Renews a worker's record; ``schemas`` (job type -> what to publish) at its start.

        Answers what it is asked for: '', ``quiet`` or ``stop``.
        """
        keys = self._store.keys
        pairs = [x for pair in worker.fields().items() for x in pair]
        commands: list[tuple[Any, ...]] = [
            ("HSET", keys.worker(worker.id), *pairs),
            ("PEXPIRE", keys.worker(worker.id), self._ttl_ms if ttl_ms is None else ttl_ms),
            ("ZADD", keys.workers, worker.seen_at, worker.id),
            ("HGET", keys.worker(worker.id), "wish"),
        ]
        if schemas:
            described = [x for name, about in schemas.items() for x in (name, json.dumps(about))]
            commands.append(("HSET", keys.types, *described))
        wish = (await self._store.pipeline(commands))[3]
        return wish.decode(errors="replace") if isinstance(wish, bytes) else ""

    async def wish(self, worker: WorkerInfo, wish: str) -> None:
        """Asks a worker to be ``quiet`` or to ``stop``; ``stop`` is not taken back by ``quiet``."""
        keys = self._store.keys
        record = keys.worker(worker.id)
        # Should it have ended meanwhile, what this makes goes by itself and is listed nowhere.
        commands: list[tuple[Any, ...]] = [
            ("HSETNX" if wish == "quiet" else "HSET", record, "wish", wish),
            ("PEXPIRE", record, self._ttl_ms, "NX"),
        ]
        if worker.queues:
            nudge = keys.queue(worker.queues[0]).control(worker.id)
            commands += [("LPUSH", nudge, "beat"), ("EXPIRE", nudge, 60)]
        for reply in await self._store.pipeline(commands):
            if isinstance(reply, Exception):
                raise translate(reply)

    async def seen(self, worker: str, busy: int, ttl_ms: int) -> None:
        """Renews the record of a worker that is known, and how much it runs."""
        keys, now = self._store.keys, now_ms()
        (known,) = await self._store.pipeline([("EXISTS", keys.worker(worker))])
        if known == 1:
            await self._store.pipeline(
                [
                    ("HSET", keys.worker(worker), "seen_at", now, "busy", busy),
                    ("PEXPIRE", keys.worker(worker), ttl_ms),
                    ("ZADD", keys.workers, now, worker),
                ]
            )

    async def forget(self, *workers: str) -> None:
        keys = self._store.keys
        if workers:
            await self._store.pipeline(
                [
                    ("ZREM", keys.workers, *workers),
                    ("DEL", *(keys.worker(worker) for worker in workers)),
                ]
            )

    async def workers(self) -> list[WorkerInfo]:
        """Workers that were seen lately, the latest last; entries whose record has run out are dropped on
        the way. Of more than ``MOST_WORKERS`` the latest are left out."""
        keys, guess = self._store.keys, self._lately
        ids, *records = await self._store.pipeline(
            [
                ("ZRANGE", keys.workers, 0, MOST_WORKERS - 1),
                *(("HGETALL", keys.worker(name)) for name in guess),
            ]
        )
        if isinstance(ids, Exception):
            return []
        known = dict(zip(guess, records, strict=True))
        named = {worker.decode(errors="replace"): worker for worker in ids}
        more = [name for name in named if name not in known]
        for start in range(0, len(more), PAGE):
            page = more[start : start + PAGE]
            asked = await self._store.pipeline([("HGETALL", keys.worker(name)) for name in page])
            known |= zip(page, asked, strict=True)
        there = [name for name in named if known[name] and not isinstance(known[name], Exception)]
        self._lately = there[-MOST_GUESSED:]
        if len(there) < len(named):
            alive = set(there)
            gone = [worker for name, worker in named.items() if name not in alive]
            await self._store.pipeline([("ZREM", keys.workers, *gone)])
        return [WorkerInfo.parse(name, _decoded(known[name])) for name in there]

    async def prune(self) -> int:
        """Drops entries whose record has run out, the longest unseen first; answers how many.

        A look at the workers does so, too, but there may be nobody who looks.
        """
        index, dropped = self._store.keys.workers, 0
        while dropped < MOST_WORKERS:
            (ids,) = await self._store.pipeline([("ZRANGE", index, 0, PRUNED - 1)])
            if isinstance(ids, Exception) or not ids:
                break
            records = [self._store.keys.worker(worker.decode(errors="replace")) for worker in ids]
            there = await self._store.pipeline([("EXISTS", record) for record in records])
            gone = [worker for worker, known in zip(ids, there, strict=True) if known == 0]
            if gone:
                await self._store.pipeline([("ZREM", index, *gone)])
            dropped += len(gone)
            # Behind one that lives stand those that were seen later.
            if len(gone) < len(ids):
                break
        return dropped

    async def types(self) -> dict[str, Any]:
        """What workers published per job type."""
        (record,) = await self._store.pipeline([("HGETALL", self._store.keys.types)])
        if isinstance(record, Exception):
            return {}
        return {name: _json_or_nothing(about) for name, about in _decoded(record).items()}


def _decoded(record: Any) -> dict[str, str]:
    pairs = (
        record.items() if isinstance(record, dict) else zip(record[::2], record[1::2], strict=True)
    )
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in pairs}


def _json_or_nothing(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def now_ms() -> int:
    return int(time.time() * 1000)
