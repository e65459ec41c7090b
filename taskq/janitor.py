"""The janitor: returns expired leases to the queue, promotes what is due, ends what expired, trims.
It also drops from the list of workers those that are gone.

Any number may run: every worker and API process ticks one, and ``taskq janitor`` runs it alone. A duty
is done only where its last tick, kept per duty in the queue, is old enough; doing it twice is harmless.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from taskq import calls, leases
from taskq.bulk import Bulks
from taskq.errors import InvalidInput, TaskqError, Unavailable
from taskq.ids import check_queue
from taskq.keys import QueueKeys
from taskq.registry import Registry
from taskq.store import AsyncStore, time_ms, translate

logger = logging.getLogger("taskq.janitor")

MAX_PAGES = 100
"""Pages of one duty in one round; the rest is the next round's."""

PRUNE_ROUNDS = 30
"""Rounds of a process from one look for workers that are gone to the next."""

BULK_SECONDS = 1.0
"""What a round gives to each bulk action that nobody carries out; the rest is the next round's."""

SQUEEZE_AT = ((0.98, 4), (0.96, 3), (0.93, 2), (0.90, 1))
"""Share of maxmemory from which ended jobs are dropped early, and how far (see ``trim.lua``)."""


class Janitor:
    """Ticks over all queues every ``every_seconds``, until cancelled."""

    def __init__(self, store: AsyncStore, *, every_seconds: float, lease_seconds: float) -> None:
        self._store = store
        self._every = every_seconds
        self._lease_ms = round(lease_seconds * 1000)
        self._began: float | None = None
        """``time.monotonic()`` of the first round."""
        self._since_ms = 0
        """The same by the server's clock: why leases that ran out in an outage may be renewed."""
        self._own_queues: set[str] = set()
        self._bulks = Bulks(store)
        self._registry = Registry(store, ttl_seconds=60)
        self.rounds = 0

    def serve(self, *queues: str) -> None:
        """Names queues that this process knows: they are entered in the registry at each round."""
        self._own_queues.update(queues)

    async def run(self) -> None:
        """Rounds for ever; a round that fails is logged and the next one comes all the same."""
        while True:
            try:
                await self.round()
            except Unavailable as error:
                logger.warning("janitor: %s", error)
            except Exception:
                logger.exception("janitor: a round failed")
            # Spread, so that the janitors of many processes do not all look at once.
            await asyncio.sleep(self._every * random.uniform(0.7, 1.1))

    async def round(self) -> dict[str, int]:
        """One look at every queue; answers how many jobs each duty moved."""
        if self._began is None:
            self._began = time.monotonic()
        names = await self._queues()
        done: dict[str, int] = {}
        squeeze = await self._server()
        for name in names:
            try:
                for duty, count in (
                    await self._queue(self._store.keys.queue(name), squeeze)
                ).items():
                    done[duty] = done.get(duty, 0) + count
            except Unavailable:
                raise
            # One broken queue must not keep the others from their janitor.
            except TaskqError as error:
                logger.error("janitor: queue %s: %s", name, error)
            except Exception:
                logger.exception("janitor: queue %s", name)
        if self.rounds % PRUNE_ROUNDS == 0:
            await self._registry.prune()
        self.rounds += 1
        return done

    async def _queues(self) -> list[str]:
        keys = self._store.keys
        commands: list[tuple[Any, ...]] = []
        if self._own_queues:
            commands.append(("SADD", keys.queues, *sorted(self._own_queues)))
        commands.append(("SMEMBERS", keys.queues))
        members = (await self._store.pipeline(commands))[-1]
        if isinstance(members, Exception):
            error = translate(members)
            if isinstance(error, Unavailable):
                raise error
            raise TaskqError(f"{keys.queues} cannot be read: {members}")
        return sorted(
            name for member in members if _is_queue(name := member.decode(errors="replace"))
        )

    async def _server(self) -> int:
        """Asks for the server's memory; answers how far to squeeze."""
        (info,) = await self._store.pipeline([("INFO",)])
        facts = info if isinstance(info, dict) else {}
        limit = int(facts.get("maxmemory", 0))
        share = int(facts.get("used_memory", 0)) / limit if limit else 0.0
        return next((how_far for at, how_far in SQUEEZE_AT if share >= at), 0)

    async def _queue(self, keys: QueueKeys, squeeze: int) -> dict[str, int]:
        duties: dict[str, tuple[float, Callable[[], Awaitable[int]]]] = {
            "reap": (1, lambda: self._reap(keys)),
            "promote": (1, lambda: self._promote(keys)),
            "expire": (1, lambda: self._expire(keys)),
            "trim": (5, lambda: self._trim(keys, squeeze)),
            "bulk": (1, lambda: self._bulks.carry_on(keys.queue, seconds=BULK_SECONDS)),
            "rollup": (60, lambda: self._store.run(calls.rollup(keys))),
            "overdue": (1, lambda: self._overdue(keys)),
        }
        due = await self._due(keys, {duty: rounds for duty, (rounds, _) in duties.items()}, squeeze)
        done = {}
        for duty in due:
            done[duty] = await duties[duty][1]()
        return done

    async def _due(self, keys: QueueKeys, rounds: dict[str, float], squeeze: int) -> list[str]:
        """Duties whose last tick is old, marked as ticked now. A tick in the future counts as old."""
        names = list(rounds)
        clock, ticks = await self._store.pipeline(
            [("TIME",), ("HMGET", keys.ticks, *(f"tick:{name}" for name in names))]
        )
        if isinstance(ticks, Exception) or isinstance(clock, Exception):
            return names
        now = time_ms(clock)
        if self._began is not None:
            self._since_ms = now - round((time.monotonic() - self._began) * 1000)
        due = []
        for name, tick in zip(names, ticks, strict=True):
            # Nine tenths: the round of another process a moment ago must not push ours a whole round on.
            wait = self._every * 1000 * rounds[name] * 0.9
            if not 0 <= now - _number(tick) < wait or (squeeze and name == "trim"):
                due.append(name)
        if due:
            await self._store.pipeline(
                [("HSET", keys.ticks, *(x for name in due for x in (f"tick:{name}", now)))]
            )
        return due

    async def _reap(self, keys: QueueKeys) -> int:
        jobs = 0
        for _ in range(MAX_PAGES):
            reaped = await self._store.run(
                calls.reap(keys, lease_ms=self._lease_ms, since_ms=self._since_ms)
            )
            jobs += reaped.jobs
            if reaped.workers or reaped.jobs:
                logger.warning(
                    "queue %s: %d workers lost, %d jobs back in line, %d of them ended",
                    keys.queue,
                    reaped.workers,
                    reaped.jobs,
                    reaped.ended,
                )
            if not reaped.more:
                break
        return jobs

    async def _overdue(self, keys: QueueKeys) -> int:
        """Ends runs of leases that are past their time, whose client may never come back."""
        total = 0
        for _ in range(MAX_PAGES):
            more, runs = await self._store.run(
                calls.overdue(keys, timeout_ms=leases.DEFAULT_TIMEOUT_MS)
            )
            for worker, failures in leases.timeouts(runs).items():
                await self._store.run(calls.fail(keys, worker, failures))
            total += len(runs)
            if not more:
                break
        return total

    async def _promote(self, keys: QueueKeys) -> int:
        total = 0
        for _ in range(MAX_PAGES):
            moved = await self._store.run(calls.promote(keys))
            total += moved
            if moved < 1000:
                break
        return total

    async def _expire(self, keys: QueueKeys) -> int:
        total = 0
        for _ in range(MAX_PAGES):
            ended, dropped, more = await self._store.run(calls.expire(keys))
            total += ended + dropped
            if not more:
                break
        return total

    async def _trim(self, keys: QueueKeys, squeeze: int) -> int:
        total = 0
        for _ in range(10 if squeeze else MAX_PAGES):
            dropped, stubs, more = await self._store.run(calls.trim(keys, squeeze=squeeze))
            total += dropped + stubs
            if not more:
                break
        if squeeze and total:
            logger.warning(
                "queue %s: memory is short, %d ended jobs dropped early", keys.queue, total
            )
        return total


def _is_queue(name: str) -> bool:
    """Whether it can be one: what a foreign hand wrote into the registry is passed over."""
    try:
        check_queue(name)
    except InvalidInput:
        return False
    return True


def _number(tick: bytes | None) -> float:
    """A tick that is none counts as long ago."""
    try:
        return float(tick or 0)
    except ValueError:
        return 0.0
