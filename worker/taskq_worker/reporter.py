"""Sends progress and log lines of running jobs in the background, a few times a second.

Of several notices of progress only the last is sent; lines keep their order, and all go out before their
run's end is reported, since the server refuses them after it. Best effort: what cannot be sent while Redis
is away is dropped.
"""

import asyncio
import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from taskq import calls
from taskq.errors import TaskqError
from taskq.store import AsyncStore
from taskq_worker.runs import Run

EVERY_SECONDS = 0.2
MAX_LINES = 2_000
"""Lines that may wait while Redis is away; older ones are dropped."""


class Reporter:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._progress: dict[Run, dict[str, Any]] = {}
        self._lines: deque[tuple[Run, int, dict[str, Any]]] = deque(maxlen=MAX_LINES)
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()

    def tell(self, run: Run, kind: str, message: dict[str, Any]) -> None:
        """From any thread."""
        message.setdefault("at", int(time.time() * 1000))
        if threading.get_ident() == self._thread:
            self._add(run, kind, message)
        else:
            self._loop.call_soon_threadsafe(self._add, run, kind, message)

    def _add(self, run: Run, kind: str, message: dict[str, Any]) -> None:
        if kind == "progress":
            self._progress[run] = message
        else:
            self._lines.append((run, next(self._numbers), message))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await self.flush()
            await asyncio.sleep(EVERY_SECONDS)

    async def before_end_of(self, runs: Iterable[Run]) -> None:
        """Sends what these runs have told, and waits for what is on its way already."""
        if self._progress or self._lines or self._sending.locked():
            told = {run for run, _, _ in self._lines} | self._progress.keys()
            if self._sending.locked() or not told.isdisjoint(runs):
                await self.flush()

    async def flush(self) -> None:
        """Sends all that waits."""
        async with self._sending:
            self._wake.clear()
            progress, self._progress = self._progress, {}
            lines = list(self._lines)
            self._lines.clear()
            await self._send([(run, (_json(m),)) for run, m in progress.items()], calls.progress)
            # Numbered, so that a line that is sent again after a lost answer does not stand there twice.
            await self._send([(run, (n, _json(m))) for run, n, m in lines], calls.log)

    async def _send(
        self, told: list[tuple[Run, tuple[Any, ...]]], make: Callable[..., calls.Call[list[str]]]
    ) -> None:
        groups: dict[tuple[str, str], list[tuple[Run, tuple[Any, ...]]]] = {}
        for run, what in told:
            groups.setdefault((run.seat.queue, run.worker), []).append((run, what))
        sends: list[Awaitable[Any]] = []
        for (_, worker), items in groups.items():
            rows = [(run.claimed.ulid, run.claimed.fence, *what) for run, what in items]
            call = make(items[0][0].seat.keys, worker, rows)
            sends.append(self._store.run(call, retry_seconds=1.0))
        for send in sends:
            try:
                await send
            except TaskqError:
                continue


def _json(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode(errors="replace")
