"""Walks one queue for the doctor: collects what looks wrong, then looks at that once more."""

import base64
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from taskq import calls
from taskq.calls import Repair
from taskq.doctor.rules import (
    ENTER,
    KINDS,
    MISPLACED,
    NO_JANITOR,
    OVERDUE_MS,
    REMEDIES,
    Finding,
    Severity,
    judge_key,
    judge_waiting,
    judge_worker,
    kind_of,
    misplaced,
    overdue,
    repair_of_key,
    whole,
)
from taskq.errors import InvalidInput, TaskqError
from taskq.ids import split_id
from taskq.inspector import Inspector, unserved
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore, time_ms, translate

MAX_SUSPECTS = 1000
"""Suspicious items of one queue that are looked at again; the rest is counted."""
_STATE_SETS = tuple(state.value for state in State if state not in (State.QUEUED, State.RUNNING))
_PASSING = ("lease:", "lease-key:")
_BOXES = ("ready:", "processing:", "stubs:", "cancelling", "expiring", *_STATE_SETS)


class Wrong(NamedTuple):
    """An item that a probe found wrong, what to say about it, and what puts it right if anything does."""

    item: str
    finding: Finding
    repair: Repair | None = None


Probe = Callable[[Sequence[str]], Awaitable[list[Wrong]]]


class Examiner:
    """Walks what it is shown of one queue and collects suspects: a probe, and items that it found wrong."""

    def __init__(self, store: AsyncStore, queue: str, page: int, most: int = MAX_SUSPECTS) -> None:
        self._store = store
        self._page = page
        self._most = most
        self.queue = queue
        self.keys = store.keys.queue(queue)
        self.suspects: list[tuple[Probe, list[str]]] = []
        self._suspected = self._passed_over = 0
        self._unreadable: list[Wrong] = []
        self._workers: set[str] = set()
        self._lasting = False
        """There is more than what a claim in a queue without jobs leaves for a while."""

    async def walk(self, raw_names: Sequence[bytes]) -> None:
        """Looks at keys (without the prefix) and at all that they hold."""
        names = self._readable(raw_names, "")
        await self._probe(self._keys, names)
        self._lasting = self._lasting or any(kind_of(n) not in _PASSING for n in names)
        by_kind: dict[str, list[str]] = {}
        for name in names:
            by_kind.setdefault(kind_of(name), []).append(name)
        await self._probe(self._jobs, [name[4:] for name in by_kind.get("job:", ())])
        attached = by_kind.get("history:", []) + by_kind.get("log:", [])
        await self._probe(self._attached, attached)
        await self._probe(self._locks, by_kind.get("unique:", ()))
        await self._probe(self._lines, [name[6:] for name in by_kind.get("ready:", ())])
        for kind in _BOXES:
            for name in by_kind.get(kind, ()):
                await self._members(name)
        self._workers.update(name[11:] for name in by_kind.get("processing:", ()))

    async def finish(self) -> None:
        """What hangs together over several keys, after the last of them was walked."""
        for name in ("leases", "dead", "holders"):
            async for members in self._contents(name):
                self._workers.update(members)
        await self._probe(self._leases, sorted(self._workers))
        async for types in self._contents("lines"):
            await self._probe(self._lines, types)
        async for ids in self._contents("quarantine"):
            await self._probe(self._quarantined, ids)
        await self._probe(self._overdue, ("scheduled", "retrying", "expiring"))
        await self._probe(self._settings, ("config",))
        if self._lasting:
            await self._probe(self._registered, (self.queue,))

    async def still_wrong(self) -> list[Wrong]:
        """What is still wrong at the second look."""
        found = list(self._unreadable)
        for probe, items in self.suspects:
            found += await probe(items)
        if self._passed_over:
            message = f"{self._passed_over} more items look wrong and were not looked at again"
            advice = "put these right, then run again"
            found.append(Wrong("", Finding("error", self.queue, "", message, advice)))
        found += [Wrong("", finding) for finding in await self._waiting_for_nobody()]
        return list(dict.fromkeys(found))

    async def findings(self) -> list[Finding]:
        """The same, to be told."""
        return list(dict.fromkeys(wrong.finding for wrong in await self.still_wrong()))

    async def _probe(self, probe: Probe, items: Iterable[str]) -> None:
        every = list(items)
        for start in range(0, len(every), self._page):
            wrong = {wrong.item for wrong in await probe(every[start : start + self._page])}
            room = self._most - self._suspected
            kept = sorted(wrong)[:room]
            self._suspected += len(kept)
            self._passed_over += len(wrong) - len(kept)
            if kept:
                self.suspects.append((probe, kept))

    def _wrong(
        self,
        item: str,
        severity: Severity,
        subject: str,
        message: str,
        advice: str = "",
        repair: Repair | None = None,
    ) -> Wrong:
        fix = REMEDIES[repair.kind] if repair else ""
        return Wrong(item, Finding(severity, self.queue, subject, message, advice, fix), repair)

    def _readable(self, raw_names: Iterable[bytes], box: str) -> list[str]:
        """Names as text; what is none was not written by taskq. ``box`` is '' for keys."""
        names = []
        for raw in raw_names:
            try:
                names.append(raw.decode())
            except UnicodeDecodeError:
                message = f"stands in {box} and is no text" if box else "is no text"
                if box:
                    repair = Repair("member", raw, box, base64.b64encode(raw))
                else:
                    repair = Repair("key", raw, "", shown(raw))
                self._unreadable.append(
                    self._wrong("", "warning", shown(raw), message, MISPLACED, repair)
                )
        return names

    async def _atomic(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Reads at one moment; an error of a single command stands in its place."""

        async def action() -> list[Any]:
            pipe = self._store.redis.pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute(raise_on_error=False))

        return await self._store.retrying(action) if commands else []

    async def _contents(self, name: str) -> AsyncIterator[list[str]]:
        """The members of a container in pages; nothing where it has the wrong type (said elsewhere)."""
        of_type = KINDS[kind_of(name)].type
        command = {"zset": "ZSCAN", "set": "SSCAN", "hash": "HSCAN"}.get(of_type)
        cursor: Any = 0
        while True:
            if command is None:
                last = int(cursor) + self._page - 1
                request: tuple[Any, ...] = ("LRANGE", self.keys.prefix + name, cursor, last)
            else:
                request = (command, self.keys.prefix + name, cursor, "COUNT", self._page)
            (reply,) = await self._store.pipeline([request])
            if isinstance(reply, Exception):
                return
            if command is None:
                members, cursor = reply, int(cursor) + len(reply) if len(reply) == self._page else 0
            else:
                cursor, members = reply
            readable = self._readable(_names(members, paired=of_type in ("zset", "hash")), name)
            if readable:
                yield readable
            if int(cursor) == 0:
                return

    # --- probes: items in, (item, finding) out --------------------------------------------------

    async def _keys(self, names: Sequence[str]) -> list[Wrong]:
        facts = await types_of(self._store, [(self.keys.prefix + name).encode() for name in names])
        return [
            self._wrong(name, severity, name, message, advice, repair_of_key(KINDS, name, *fact))
            for name, fact in zip(names, facts, strict=True)
            for severity, message, advice in judge_key(KINDS, name, *fact)
        ]

    async def _jobs(self, ulids: Sequence[str]) -> list[Wrong]:
        wrong = await self._store.run(calls.check(self.keys, ulids))
        fields = [("HMGET", self.keys.job(ulid), "state", "type", "stub") for ulid in ulids]
        for ulid, values in zip(ulids, await self._store.pipeline(fields), strict=True):
            if isinstance(values, Exception) or whole(*_texts(values)):
                continue
            if await self._exists(self.keys.job(ulid)):
                wrong.append((ulid, "is no whole job: its state or its type is missing or odd"))
        return [
            self._wrong(
                ulid, "error", f"{self.queue}:{ulid}", what, MISPLACED, Repair("misplaced", ulid)
            )
            for ulid, what in wrong
        ]

    async def _exists(self, key: str) -> bool:
        (n,) = await self._store.pipeline([("EXISTS", key)])
        return bool(n == 1)

    async def _members(self, name: str) -> None:
        async for ulids in self._contents(name):
            await self._probe(functools.partial(self._standing, name), ulids)

    async def _standing(self, name: str, ulids: Sequence[str]) -> list[Wrong]:
        """Whether ids of a container belong there."""
        key = self.keys.prefix + name
        stands = {"list": "LPOS", "set": "SISMEMBER", "zset": "ZSCORE"}[KINDS[kind_of(name)].type]
        fields = ("state", "type", "worker", "stub", "expires_at")
        replies = await self._atomic(
            [
                command
                for ulid in ulids
                for command in ((stands, key, ulid), ("HMGET", self.keys.job(ulid), *fields))
            ]
        )
        found = []
        for ulid, place, job in zip(ulids, replies[::2], replies[1::2], strict=True):
            absent = place is None or (stands == "SISMEMBER" and not place)
            if absent or isinstance(place, Exception) or isinstance(job, Exception):
                continue
            what = misplaced(name, *_texts(job))
            if what:
                raw = b"" if _is_ulid(ulid) else base64.b64encode(ulid.encode())
                repair = Repair("entry", ulid, name, raw)
                subject = f"{self.queue}:{ulid}"
                found.append(self._wrong(ulid, "error", subject, what, MISPLACED, repair))
        return found

    async def _attached(self, names: Sequence[str]) -> list[Wrong]:
        """History and log lines whose job is gone."""
        commands: list[tuple[Any, ...]] = []
        for name in names:
            ulid = name.partition(":")[2]
            commands.append(("EXISTS", self.keys.prefix + name))
            commands.append(("HMGET", self.keys.job(ulid), "state", "stub"))
        replies = await self._atomic(commands)
        found = []
        for name, exists, job in zip(names, replies[::2], replies[1::2], strict=True):
            if exists == 1 and not isinstance(job, Exception) and (job[0] is None or job[1]):
                message = "its job is gone, so that nothing would ever delete it"
                repair = Repair("attached", name)
                found.append(self._wrong(name, "warning", name, message, "", repair))
        return found

    async def _locks(self, names: Sequence[str]) -> list[Wrong]:
        """Unique keys that no live job holds."""
        holders = await self._store.pipeline([("GET", self.keys.prefix + name) for name in names])
        held = [
            (name, holder)
            for name, holder in zip(names, holders, strict=True)
            if isinstance(holder, bytes)
        ]
        commands: list[tuple[Any, ...]] = []
        for name, holder in held:
            job = (self.keys.prefix + "job:").encode() + holder
            commands += [("GET", self.keys.prefix + name), ("HMGET", job, "state", "unique")]
        replies = await self._atomic(commands)
        found = []
        for (name, holder), now, job in zip(held, replies[::2], replies[1::2], strict=True):
            if now != holder or isinstance(job, Exception):
                continue
            state, unique = _texts(job)
            if state is None or state in TERMINAL or unique != name.partition(":")[2]:
                message = f"points at {shown(holder)}, which is no live job with this key"
                advice = "the next submission with this key takes it over"
                repair = Repair("lock", name.partition(":")[2])
                found.append(self._wrong(name, "warning", name, message, advice, repair))
        return found

    async def _leases(self, workers: Sequence[str]) -> list[Wrong]:
        """Whether lists, leases and holders agree."""
        commands: list[tuple[Any, ...]] = [("TIME",)]
        for worker in workers:
            commands += [
                ("LLEN", self.keys.processing(worker)),
                ("ZSCORE", self.keys.leases, worker),
                ("HEXISTS", self.keys.holders, worker),
                ("ZSCORE", self.keys.dead, worker),
            ]
        clock, *replies = await self._atomic(commands)
        now, found = time_ms(clock), []
        for i, worker in enumerate(workers):
            facts = replies[4 * i : 4 * i + 4]
            if any(isinstance(fact, Exception) for fact in facts):
                continue  # a wrong type is said elsewhere
            held, lease, holder, _ = facts
            # A lease that ran out is the janitor's to see to.
            repair = None if held and holder and lease is not None else Repair("worker", worker)
            for severity, message, advice in judge_worker(now, *facts):
                subject = f"processing:{worker}" if held else f"worker {worker}"
                found.append(self._wrong(worker, severity, subject, message, advice, repair))
        return found

    async def _lines(self, types: Sequence[str]) -> list[Wrong]:
        commands: list[tuple[Any, ...]] = []
        for of_type in types:
            commands.append(("ZCARD", self.keys.ready(of_type)))
            commands.append(("SISMEMBER", self.keys.lines, of_type))
        replies = await self._atomic(commands)
        found = []
        for of_type, depth, named in zip(types, replies[::2], replies[1::2], strict=True):
            repair = Repair("line", of_type)
            if depth == 0 and named == 1:
                message = "names a line that is empty; a claim for this type drops it"
                found.append(self._wrong(of_type, "info", f"lines: {of_type}", message, "", repair))
            elif isinstance(depth, int) and depth > 0 and named == 0:
                message = "is a line that is not in lines: no claim looks at it"
                subject = f"ready:{of_type}"
                found.append(self._wrong(of_type, "error", subject, message, MISPLACED, repair))
        return found

    async def _quarantined(self, ulids: Sequence[str]) -> list[Wrong]:
        (reasons,) = await self._store.pipeline([("HMGET", self.keys.quarantine, *ulids)])
        if isinstance(reasons, Exception):
            return []
        advice = "see what became of it; then: taskq doctor --drop-quarantine"
        return [
            self._wrong(ulid, "warning", ulid, f"was set aside as broken: {shown(why)}", advice)
            for ulid, why in zip(ulids, reasons, strict=True)
            if why is not None
        ]

    async def _overdue(self, names: Sequence[str]) -> list[Wrong]:
        """Jobs that were due long ago and that nobody has moved."""
        late = await self._store.clock_ms() - OVERDUE_MS
        replies = await self._store.pipeline(
            [("ZCOUNT", self.keys.prefix + name, "-inf", late) for name in names]
        )
        return [
            self._wrong(name, "warning", name, overdue(n), NO_JANITOR)
            for name, n in zip(names, replies, strict=True)
            if isinstance(n, int) and n > 0
        ]

    async def _settings(self, names: Sequence[str]) -> list[Wrong]:
        """Settings that the scripts could not calculate with."""
        fields = list(calls.SETTINGS)
        (values,) = await self._store.pipeline([("HMGET", self.keys.config, *fields)])
        if isinstance(values, Exception):
            return []
        found = []
        for field, value in zip(fields, values, strict=True):
            try:
                if value is not None:
                    calls.check_settings({field: int(value)})
            except (ValueError, InvalidInput):
                message = f"{field} is {shown(value)!r}, which is no value for it"
                advice = f"set it anew: taskq queues set {self.queue} {field}=..."
                repair = Repair("setting", field, "", value)
                found.append(self._wrong(names[0], "error", "config", message, advice, repair))
        return found

    async def _registered(self, queues: Sequence[str]) -> list[Wrong]:
        (known,) = await self._store.pipeline([("SISMEMBER", self._store.keys.queues, queues[0])])
        if known != 0:
            return []
        message = f"is not in {self._store.keys.queues}: no janitor looks after it"
        advice = "taskq doctor --rebuild-registry"
        wrong = self._wrong(queues[0], "error", queues[0], message, advice)
        return [wrong._replace(finding=replace(wrong.finding, fix=ENTER))]

    async def _waiting_for_nobody(self) -> list[Finding]:
        look = Inspector(self._store)
        try:
            info, workers = await look.queue(self.queue), await look.workers()
        except TaskqError:
            return []
        return [
            Finding(severity, self.queue, what, message, advice)
            for what, (severity, message, advice) in judge_waiting(info, unserved(info, workers))
        ]


def _names(members: Any, *, paired: bool) -> list[bytes]:
    """Members without their scores or values, in whatever shape the client answers."""
    if isinstance(members, dict):
        return list(members)
    if paired and members and isinstance(members[0], (tuple, list)):
        return [member for member, _ in members]
    return list(members[::2]) if paired else list(members)


async def types_of(store: AsyncStore, keys: Sequence[bytes]) -> list[tuple[str, int]]:
    """(type, ms to live) of keys; the type is ``none`` for a key that is gone."""
    replies = await store.pipeline([c for key in keys for c in (("TYPE", key), ("PTTL", key))])
    for reply in replies:
        if isinstance(reply, Exception):
            raise translate(reply)
    return [
        (shown(of_type), int(ttl)) for of_type, ttl in zip(replies[::2], replies[1::2], strict=True)
    ]


def _is_ulid(text: str) -> bool:
    try:
        return split_id(f"q:{text}") == ("q", text)
    except InvalidInput:
        return False


def _texts(values: Sequence[bytes | None]) -> list[str | None]:
    return [None if value is None else shown(value) for value in values]


def shown(raw: Any) -> str:
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
