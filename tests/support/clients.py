"""What tests of clients share."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from taskq import JobHandle
from taskq.ids import UlidFactory

T = TypeVar("T")
QUEUE = "default"
TYPE = "mail"
ulid = UlidFactory()


async def until(condition: Callable[[], Awaitable[Any] | Any], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return
        assert time.monotonic() < end, "the condition does not come true"
        await asyncio.sleep(0.002)


def calls_of(raw: Any, command: str = "evalsha") -> int:
    stats = raw.info("commandstats").get(f"cmdstat_{command}")
    return int(stats["calls"]) if stats else 0


def ulid_of(job: JobHandle[Any]) -> str:
    return job.id.partition(":")[2]
