"""The least a worker can do: claim 100, finish 100, again. ``python -m bench.bare URL``.

One process, one connection, the event loop of the worker, the same scripts through ``AsyncStore``;
no handlers, no slots, no overlap of calls. Runs until it is ended.
"""

import asyncio
import os
import sys

import uvloop

from taskq import calls
from taskq.keys import Keys
from taskq.store import AsyncStore


async def main(url: str) -> None:
    store = AsyncStore.from_url(url, Keys())
    keys = store.keys.queue("bench")
    worker = f"bare-{os.getpid()}"
    number = 0
    while True:
        number += 1
        reply = await store.run(calls.claim(keys, worker, number, 100, ["noop"], lease_ms=600_000))
        if reply.jobs:
            done = [calls.Success(job.ulid, job.fence, b"null") for job in reply.jobs]
            await store.run(calls.finish(keys, worker, done))
        else:
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
