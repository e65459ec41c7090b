"""Does every job stand where its state says, and does every key have an owner? The consistency check.

``examine`` walks one queue, ``examine_all`` everything of the namespace, in bounded pages and without
a write, so both may run against a system under load. A look at an item is atomic (a script or a
MULTI), and what looks wrong is looked at once more after a pause: only what is still wrong is reported.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from taskq.doctor.rules import SHARED_KINDS, Finding, judge_key, server_findings
from taskq.doctor.walk import Examiner, shown, types_of
from taskq.errors import InvalidInput
from taskq.ids import check_queue
from taskq.keys import Keys
from taskq.server import check_server
from taskq.store import AsyncStore, translate

__all__ = ["Finding", "examine", "examine_all", "rebuild_registry", "server_findings"]

PAUSE_SECONDS = 0.5


async def examine(
    store: AsyncStore, queue: str, *, page: int = 200, pause: float = PAUSE_SECONDS
) -> list[Finding]:
    """What is wrong with one queue; the look again waits ``pause`` seconds."""
    examiner = Examiner(store, check_queue(queue), page)
    async for names in _scan(store, examiner.keys.prefix, page):
        await examiner.walk([name.removeprefix(examiner.keys.prefix.encode()) for name in names])
    await examiner.finish()
    if examiner.suspects:
        await asyncio.sleep(pause)
    return await examiner.findings()


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
        Finding(severity, "", shown(key), message, advice)
        for (name, key), fact in zip(names, facts, strict=True)
        for severity, message, advice in judge_key(SHARED_KINDS, name, *fact)
    ]


def _valid(queue: str) -> bool:
    try:
        check_queue(queue)
    except InvalidInput:
        return False
    return True
