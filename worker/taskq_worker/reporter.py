"""Sends progress and log lines of running jobs in the background, a few times a second.

Of several notices of progress only the last is sent; lines keep their order. Best effort: what cannot be
sent is dropped, and the server refuses what comes after the run is over.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from taskq import calls
from taskq.context import Context
from taskq.errors import TaskqError
from taskq.store import AsyncStore
from taskq_worker.runs import Run

EVERY_SECONDS = 0.2
MAX_LINES = 2_000
"""Lines that may wait while Redis is away; older ones are dropped."""


class Reporter:
    def __init__(self, store: AsyncStore, find: Callable[[Context], Run | None]) -> None:
        self._store = store
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._progress: dict[Context, dict[str, Any]] = {}
        self._lines: deque[tuple[Context, dict[str, Any]]] = deque(maxlen=MAX_LINES)
        self._wake = asyncio.Event()

    def tell(self, kind: str, context: Context, message: dict[str, Any]) -> None:
        """From any thread."""
        message["at"] = int(time.time() * 1000)
        self._loop.call_soon_threadsafe(self._add, kind, context, message)

    def _add(self, kind: str, context: Context, message: dict[str, Any]) -> None:
        if kind == "progress":
            self._progress[context] = message
        else:
            self._lines.append((context, message))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await self.flush()
            await asyncio.sleep(EVERY_SECONDS)

    async def flush(self) -> None:
        """Sends all that waits."""
        self._wake.clear()
        progress, self._progress = list(self._progress.items()), {}
        lines = list(self._lines)
        self._lines.clear()
        await self._send(progress, calls.progress)
        await self._send(lines, calls.log)

    async def _send(
        self,
        messages: list[tuple[Context, dict[str, Any]]],
        make: Callable[..., calls.Call[list[str]]],
    ) -> None:
        groups: dict[tuple[str, str], list[tuple[Run, bytes]]] = {}
        for context, message in messages:
            run = self._find(context)
            if run is not None:
                data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
                groups.setdefault((run.seat.queue, run.worker), []).append((run, data))
        sends: list[Awaitable[Any]] = []
        for (_, worker), items in groups.items():
            keys = items[0][0].seat.keys
            triples = [(run.claimed.ulid, run.claimed.fence, data) for run, data in items]
            sends.append(self._store.run(make(keys, worker, triples), retry_seconds=1.0))
        for send in sends:
            try:
                await send
            except TaskqError:
                continue
