"""Puts right what the doctor found wrong, while the system may be at work.

A page of repairs is one call of ``repair.lua``, which looks at each item again before it writes: what has
moved on since is left alone, and doing it twice changes nothing. Nothing readable is thrown away: what
cannot be used is kept in ``quarantine`` or under ``set-aside:`` until ``drop_quarantine``, or for 30 days.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from taskq import calls
from taskq.calls import Repair
from taskq.doctor.rules import ENTER, SET_ASIDE_MS, SHARED_KINDS, Finding, kind_of, repair_of_key
from taskq.doctor.walk import Wrong, shown, types_of
from taskq.errors import TaskqError
from taskq.keys import QueueKeys
from taskq.store import AsyncStore, translate

MAX_REPAIRS = 100_000
"""Suspects of one round; what is beyond them is the next round's."""
PAGE = 100
"""Items of one call: a few ms of the server's time."""
ORDER = (
    "key",
    "lasting",
    "passing",
    "member",
    "line",
    "worker",
    "misplaced",
    "entry",
    "lock",
    "attached",
    "setting",
)
"""Containers before their members, and workers before their jobs."""


async def put_right(
    store: AsyncStore, queue: str, wrong: Sequence[Wrong], *, lease_ms: int
) -> dict[Wrong, Finding]:
    """Does the repairs that these name; answers what was put right, with what was done about it."""
    keys = store.keys.queue(queue)
    told: dict[Repair, str] = {}
    wanted = sorted({w.repair for w in wrong if w.repair}, key=lambda r: ORDER.index(r.kind))
    for start in range(0, len(wanted), PAGE):
        page = wanted[start : start + PAGE]
        done = await store.run(calls.repair(keys, page, lease_ms=lease_ms))
        told.update({repair: what for repair, what in zip(page, done, strict=True) if what})
    fixed = {
        w: replace(w.finding, fix=told[w.repair], fixed=True)
        for w in wrong
        if w.repair and w.repair in told
    }
    for w in wrong:
        if w.finding.fix == ENTER and await _entered(store, queue):
            fixed[w] = replace(w.finding, fix="entered in the registry", fixed=True)
    return fixed


async def _entered(store: AsyncStore, queue: str) -> bool:
    (added,) = await store.pipeline([("SADD", store.keys.queues, queue)])
    return bool(added == 1)


async def set_shared_aside(store: AsyncStore, found: Sequence[Finding]) -> list[Finding]:
    """Keys outside the queues that have the wrong type or no time to live. They move one by one, since
    they share no slot."""
    return [await _set_aside(store, finding) if finding.fix else finding for finding in found]


async def _set_aside(store: AsyncStore, finding: Finding) -> Finding:
    name = finding.subject.removeprefix(f"{store.keys.namespace}:")
    key, to = finding.subject, store.keys.set_aside(name)

    async def action() -> str:
        pipe: Any
        async with store.redis.pipeline(transaction=True) as pipe:
            await pipe.watch(key)
            ((of_type, ttl),) = await types_of(store, [key.encode()])
            repair = repair_of_key(SHARED_KINDS, name, of_type, ttl)
            if of_type == "none" or repair is None:
                return ""
            pipe.multi()
            if repair.kind == "key":
                pipe.rename(key, to)
                pipe.pexpire(to, SET_ASIDE_MS)
                done = f"kept for 30 days as {to}"
            elif repair.kind == "lasting":
                pipe.persist(key)
                done = "made to last"
            else:
                pipe.pexpire(key, SHARED_KINDS[kind_of(name)].ttl_ms)
                done = "given a time to live"
            await pipe.execute()
            return done

    try:
        done = await store.retrying(action)
    except TaskqError as error:
        return replace(finding, message=f"{finding.message} ({error})")
    return replace(finding, fix=done, fixed=True) if done else finding


async def drop_entries(store: AsyncStore, keys: QueueKeys, page: int) -> list[str]:
    """Deletes what stands in the quarantine of a queue; answers the fields."""
    dropped: list[str] = []
    cursor: Any = 0
    while True:
        (reply,) = await store.pipeline([("HSCAN", keys.quarantine, cursor, "COUNT", page)])
        if isinstance(reply, Exception):
            return dropped
        cursor, entries = reply
        fields = list(entries) if isinstance(entries, dict) else list(entries[::2])
        for start in range(0, len(fields), page):
            some = fields[start : start + page]
            await _all_done(store, [("HDEL", keys.quarantine, *some)])
            dropped += [shown(field) for field in some]
        if int(cursor) == 0:
            return dropped


async def drop_keys(store: AsyncStore, names: Sequence[bytes]) -> list[str]:
    await _all_done(store, [("UNLINK", name) for name in names])
    return [shown(name) for name in names]


async def _all_done(store: AsyncStore, commands: Sequence[tuple[Any, ...]]) -> None:
    for reply in await store.pipeline(commands) if commands else ():
        if isinstance(reply, Exception):
            raise translate(reply)
