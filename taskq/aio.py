"""Small helpers over asyncio that the library misses."""

import asyncio
from typing import Any


async def end_tasks(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancels tasks and waits until they are over; errors are theirs and not raised.

    Asks more than once: before Python 3.12 ``asyncio.wait_for``, which the Redis client uses, loses a
    cancellation that meets the end of what it waits for.
    """
    alive = [task for task in tasks if task is not None and not task.done()]
    while alive:
        for task in alive:
            task.cancel()
        _, pending = await asyncio.wait(alive, timeout=0.2)
        alive = list(pending)
    for ended in tasks:
        if ended is not None and not ended.cancelled():
            ended.exception()  # looked at, so that it is not reported as never retrieved
