"""The bare other side of ``latency``: ``python -m bench.pong URL`` until ended.

Takes a token by BLPOP, notes the time, and pushes it back: two commands on one connection of the
same client and the event loop of the worker.
"""

import sys
import time
from typing import Any

import uvloop

from taskq.connection import connect_async

PING, PONG = "bench:ping", "bench:pong"


async def main(url: str) -> None:
    client: Any = connect_async(url)
    while True:
        if await client.execute_command("BLPOP", PING, 1) is not None:
            await client.execute_command("LPUSH", PONG, time.monotonic_ns())


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
