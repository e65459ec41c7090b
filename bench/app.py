"""The tasks that ``drain`` and ``latency`` run in ``taskq worker -A bench.app:app -q bench``."""

import time
from functools import cache
from typing import Any

from taskq import TaskQ
from taskq.connection import connect_async
from taskq.settings import load_settings

STARTED = "bench:started"
"""List to which ``stamp`` pushes the time of its start (CLOCK_MONOTONIC, ns)."""

app = TaskQ()


@app.task(queue="bench")
async def noop() -> None:
    """Does nothing."""


@app.task(queue="bench")
async def stamp() -> None:
    """Tells when it started."""
    started = time.monotonic_ns()
    await _client().execute_command("LPUSH", STARTED, started)


@cache
def _client() -> Any:
    return connect_async(load_settings().redis_url)
