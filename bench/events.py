"""How soon a change is told: 500 event streams of one API process, 10 changes a second.

The time is from the moment at which Redis wrote the event to the moment at which this process read it from
the socket of a client, by the same clock; every stream gets every change. The clients are bare sockets that
do not parse what they get, all in one process beside the API.
"""

import asyncio
import re
import time
from datetime import datetime

import psutil

from bench import process
from bench.report import Figure, Plan, Section
from bench.rig import QUEUE, Rig, Worker, keys, rig, spec
from taskq import calls
from taskq.keys import Keys
from taskq.model import Claimed

STREAMS = 500
CHANGES_PER_SECOND = 10
BUDGET_MS = 250.0

_AT = re.compile(rb'"at":"([^"]+)"')
_HEAD = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"


class _Client(asyncio.Protocol):
    """Notes how old each event is when it comes."""

    def __init__(self, ages_ms: list[float]) -> None:
        self._ages_ms = ages_ms
        self._rest = b""
        self.begun = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_HEAD)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.begun.set()
        blocks = (self._rest + data).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            if b"event: state" in block and (found := _AT.search(block)):
                at = datetime.fromisoformat(found[1].decode())
                self._ages_ms.append((now - at.timestamp()) * 1000)


def measure(plan: Plan) -> Section:
    """Figures: percentiles of the delay, and what the streams cost the API's process."""
    seconds = plan.pick(30, 5)
    with rig() as server, process.api(server.url) as (port, served):
        server.wire.run(calls.enqueue(keys(), [spec()]))
        server.wire.command("SADD", Keys().queues, QUEUE)
        cpu = psutil.Process(served.pid).cpu_times()
        ages_ms, memory = asyncio.run(_stream(server, port, served.pid, seconds))
        after = psutil.Process(served.pid).cpu_times()
    used = (after.user + after.system - cpu.user - cpu.system) / seconds
    ages_ms.sort()
    expected = STREAMS * CHANGES_PER_SECOND * seconds
    return Section(
        "events",
        f"delay of a change on {STREAMS} event streams, {CHANGES_PER_SECOND} changes a second",
        [
            Figure("p50", ages_ms[len(ages_ms) // 2], "ms"),
            Figure("p99", ages_ms[len(ages_ms) * 99 // 100], "ms", BUDGET_MS),
            Figure("the longest", ages_ms[-1], "ms"),
            Figure("events that came", 100 * len(ages_ms) / expected, "%", 100, at_least=True),
            Figure("CPU of the API", 100 * used, "% of a core"),
            Figure("memory of the API", memory / STREAMS / 1024, "KiB per stream"),
        ],
    )


async def _stream(server: Rig, port: int, pid: int, seconds: int) -> tuple[list[float], int]:
    """Ages of all events as they came, and by how many bytes the API grew."""
    loop = asyncio.get_running_loop()
    before = psutil.Process(pid).memory_info().rss
    ages_ms: list[float] = []
    transports = []
    for _ in range(STREAMS):
        transport, client = await loop.create_connection(
            lambda: _Client(ages_ms), "127.0.0.1", port
        )
        transports.append(transport)
        await client.begun.wait()
    grown = psutil.Process(pid).memory_info().rss - before
    await asyncio.sleep(1.0)
    job = _Job(server)
    began = loop.time()
    for change in range(seconds * CHANGES_PER_SECOND):
        await asyncio.to_thread(job.move, change)
        await asyncio.sleep(began + (change + 1) / CHANGES_PER_SECOND - loop.time())
    await asyncio.sleep(1.0)
    for transport in transports:
        transport.close()
    return ages_ms, grown


class _Job:
    """One after the other: queued, running, succeeded."""

    def __init__(self, server: Rig) -> None:
        self._server = server
        self._worker = Worker(server)
        self._held: tuple[Claimed, ...] = ()

    def move(self, number: int) -> None:
        match number % 3:
            case 0:
                self._server.wire.run(calls.enqueue(keys(), [spec()]))
            case 1:
                self._held = self._worker.claim(1)
            case _:
                self._worker.finish(self._held)
