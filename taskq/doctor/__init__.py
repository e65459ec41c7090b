"""Does every job stand where its state says, and does every key have an owner? The consistency check.

``examine`` walks one queue, ``examine_all`` everything of the namespace, in bounded pages and without
a write, so both may run against a system under load. A look at an item is atomic (a script or a
MULTI), and what looks wrong is looked at once more after a pause: only what is still wrong is reported.
``fix`` and ``fix_all`` put it right (see ``taskq.doctor.repair``).
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from taskq.doctor.repair import MAX_REPAIRS, drop_entries, drop_keys, put_right, set_shared_aside
from taskq.doctor.rules import (
    REMEDIES,
    SHARED_KINDS,
    Finding,
    judge_key,
    repair_of_key,
    server_findings,
)
from taskq.doctor.walk import MAX_SUSPECTS, Examiner, shown, types_of
from taskq.errors import InvalidInput
from taskq.ids import check_queue
from taskq.keys import Keys
from taskq.server import check_server
from taskq.store import AsyncStore, translate

__all__ = [
    "Finding",
    "Glance",
    "drop_quarantine",
    "examine",
    "examine_all",
    "fix",
    "fix_all",
    "glance",
    "rebuild_registry",
    "server_findings",
]

PAUSE_SECONDS = 0.5
LEASE_SECONDS = 15.0
MAX_ROUNDS = 20
"""One repair may uncover the next: a key set aside leaves its jobs in no place. Three rounds are usual."""


async def examine(
    store: AsyncStore, queue: str, *, page: int = 200, pause: float = PAUSE_SECONDS
) -> list[Finding]:
    """What is wrong with one queue; the look again waits ``pause`` seconds."""
    return await (await _walked(store, queue, page, pause, MAX_SUSPECTS)).findings()


async def examine_all(
    store: AsyncStore, *, page: int = 200, pause: float = PAUSE_SECONDS
) -> list[Finding]:
    """What is wrong with the server, with what all queues share, and with every queue, in one walk."""
    found = server_findings(await check_server(store))
    examiners: dict[str, Examiner] = {}
    async for names in _scan(store, f"{store.keys.namespace}:", page):
        by_queue, shared = _by_queue(store.keys, names)
        found += await _shared(store, shared)
        for queue, rest in by_queue.items():
            if queue not in examiners:
                examiners[queue] = Examiner(store, queue, page)
            await examiners[queue].walk(rest)
    for examiner in examiners.values():
        await examiner.finish()
    if any(examiner.suspects for examiner in examiners.values()):
        await asyncio.sleep(pause)
    for _, examiner in sorted(examiners.items()):
        found += await examiner.findings()
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Glance:
    """What a bounded look found, worst first; ``looked`` keys were walked; ``cursor`` goes on, None at the
    end."""

    findings: tuple[Finding, ...]
    looked: int
    cursor: str | None


async def glance(
    store: AsyncStore,
    queues: Sequence[str],
    *,
    seconds: float,
    cursor: str | None = None,
    pause: float = PAUSE_SECONDS,
) -> Glance:
    """What is wrong with the server (on the first page) and with queues, one after the other by name, for
    about so many seconds; ``cursor`` is the queue to begin with. A queue that does not fit into a page by
    itself is looked at as far as that goes, and said to be so."""
    until = time.monotonic() + seconds
    found = [] if cursor else server_findings(await check_server(store))
    names = [name for name in sorted(queues) if not cursor or name >= cursor]
    looked = 0
    for i, name in enumerate(names):
        if i and time.monotonic() >= until:
            return _glanced(found, looked, name)
        examiner, whole = Examiner(store, check_queue(name), 200), True
        try:
            async with asyncio.timeout_at(
                asyncio.get_running_loop().time() + until - time.monotonic()
            ):
                async for keys in _scan(store, examiner.keys.prefix, 200):
                    start = examiner.keys.prefix.encode()
                    await examiner.walk([key.removeprefix(start) for key in keys])
                    looked += len(keys)
                await examiner.finish()
        except TimeoutError:
            if i:
                return _glanced(found, looked, name)
            whole = False
        if examiner.suspects:
            await asyncio.sleep(pause)
        found += await examiner.findings()
        if not whole:
            message = f"is too large for {seconds:g} seconds: only a part of it was looked at"
            advice = f"look at all of it: taskq doctor --queue {name}"
            found.append(Finding("info", name, "queue", message, advice))
    return _glanced(found, looked, None)


def _glanced(found: Iterable[Finding], looked: int, cursor: str | None) -> Glance:
    order = ("error", "warning", "info")
    ranked = sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.severity))
    return Glance(tuple(ranked), looked, cursor)


async def fix(
    store: AsyncStore,
    queue: str,
    *,
    lease_seconds: float = LEASE_SECONDS,
    page: int = 200,
    pause: float = PAUSE_SECONDS,
) -> list[Finding]:
    """Puts one queue right, round by round until there is nothing left to do; answers what was done
    (``fixed``), then what is still wrong. ``lease_seconds`` is the grace for a list without a lease."""
    fixed: list[Finding] = []
    for _ in range(MAX_ROUNDS):
        examiner = await _walked(store, queue, page, pause, MAX_REPAIRS)
        wrong = await examiner.still_wrong()
        done = await put_right(store, queue, wrong, lease_ms=round(lease_seconds * 1000))
        fixed += done.values()
        left = [w.finding for w in wrong if w not in done]
        if not done:
            break
    return list(dict.fromkeys([*fixed, *left]))


async def fix_all(
    store: AsyncStore,
    *,
    lease_seconds: float = LEASE_SECONDS,
    page: int = 200,
    pause: float = PAUSE_SECONDS,
) -> list[Finding]:
    """The same for what all queues share, and for every queue that has a key."""
    found = server_findings(await check_server(store))
    queues: set[str] = set()
    async for names in _scan(store, f"{store.keys.namespace}:", page):
        by_queue, shared = _by_queue(store.keys, names)
        found += await set_shared_aside(store, await _shared(store, shared))
        queues.update(by_queue)
    for queue in sorted(queues):
        found += await fix(store, queue, lease_seconds=lease_seconds, page=page, pause=pause)
    return list(dict.fromkeys(found))


async def drop_quarantine(
    store: AsyncStore, queue: str | None = None, *, page: int = 200
) -> list[str]:
    """Deletes what was kept of broken items, of one queue or of all; answers the names."""
    dropped: list[str] = []
    prefix = f"{store.keys.namespace}:" if queue is None else store.keys.queue(queue).prefix
    async for names in _scan(store, prefix, page):
        by_queue, shared = _by_queue(store.keys, names)
        aside = [key for name, key in shared if name.startswith("set-aside:")]
        for name, keys in by_queue.items():
            start = store.keys.queue(name).prefix.encode()
            aside += [start + key for key in keys if key.startswith(b"set-aside:")]
            if b"quarantine" in keys:
                dropped += await drop_entries(store, store.keys.queue(name), page)
        dropped += await drop_keys(store, aside)
    return dropped


async def _walked(store: AsyncStore, queue: str, page: int, pause: float, most: int) -> Examiner:
    """An examiner that has seen the whole queue, and has waited if it suspects anything."""
    examiner = Examiner(store, check_queue(queue), page, most)
    async for names in _scan(store, examiner.keys.prefix, page):
        await examiner.walk([name.removeprefix(examiner.keys.prefix.encode()) for name in names])
    await examiner.finish()
    if examiner.suspects:
        await asyncio.sleep(pause)
    return examiner


async def rebuild_registry(store: AsyncStore, *, page: int = 1000) -> list[str]:
    """Enters every queue that has a key in the registry; answers those that were missing."""
    added: list[str] = []
    async for names in _scan(store, f"{store.keys.namespace}:{{", page):
        queues = list(_by_queue(store.keys, names)[0])
        replies = await store.pipeline([("SADD", store.keys.queues, queue) for queue in queues])
        for queue, reply in zip(queues, replies, strict=True):
            if isinstance(reply, Exception):
                raise translate(reply)
            if reply == 1:
                added.append(queue)
    return sorted(added)


async def _scan(store: AsyncStore, prefix: str, page: int) -> AsyncIterator[list[bytes]]:
    match = re.sub(r"([*?\[\]\\^])", r"\\\1", prefix) + "*"
    cursor: Any = 0
    while True:
        (reply,) = await store.pipeline([("SCAN", cursor, "MATCH", match, "COUNT", page)])
        if isinstance(reply, Exception):
            raise translate(reply)
        cursor, names = reply
        if names:
            yield names
        if int(cursor) == 0:
            return


def _by_queue(
    keys: Keys, names: Iterable[bytes]
) -> tuple[dict[str, list[bytes]], list[tuple[str, bytes]]]:
    """Keys by queue, without the prefix; and the others as (what follows the namespace, key)."""
    pattern = re.compile(
        re.escape(f"{keys.namespace}:".encode()) + rb"\{([^{}]*)\}:(.*)", re.DOTALL
    )
    queues: dict[str, list[bytes]] = {}
    others = []
    for name in names:
        match = pattern.fullmatch(name)
        queue = shown(match[1]) if match else ""
        if match and _valid(queue):
            queues.setdefault(queue, []).append(match[2])
        else:
            others.append((shown(name).removeprefix(f"{keys.namespace}:"), name))
    return queues, others


async def _shared(store: AsyncStore, names: Sequence[tuple[str, bytes]]) -> list[Finding]:
    facts = await types_of(store, [key for _, key in names])
    return [
        Finding(severity, "", shown(key), message, advice, REMEDIES[remedy.kind] if remedy else "")
        for (name, key), fact in zip(names, facts, strict=True)
        for severity, message, advice in judge_key(SHARED_KINDS, name, *fact)
        for remedy in (repair_of_key(SHARED_KINDS, name, *fact),)
    ]


def _valid(queue: str) -> bool:
    try:
        check_queue(queue)
    except InvalidInput:
        return False
    return True
