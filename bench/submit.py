"""What a submission costs the API's process, in submissions to an endpoint that does nothing.

The endpoint is FastAPI's with the same model, under the same server and event loop, in a process of its own
(``bench.empty``). Rounds take turns; the CPU is each process's own, user and system. Clients are bare sockets
that wait for each answer. Batches of 1,000 are set against the enqueue script alone: jobs a second through
the API as a share of those that one connection stores with calls of 1,000.
"""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench import process
from bench.report import Figure, Plan, Section
from bench.rig import Rig, fill, median, middle_half, rig

CLIENTS = (1, 16, 64)
BUDGET = 1.67
BATCH = 1000
BATCH_BUDGET = 40.0

_JOB = {"job_type": "print", "priority": 10, "payload": {"message": "Hello from scheduler"}}


def measure(plan: Plan) -> Section:
    """Figures: the ratio by number of clients, and the rate of batches in percent of the script's."""
    requests, rounds = plan.pick(4800, 960), plan.pick(7, 3)
    figures: list[Figure] = []
    with rig() as server, process.api(server.url) as (port, served), _empty() as (bare, empty):
        for clients in CLIENTS:
            costs: dict[int, list[float]] = {port: [], bare: []}
            for _ in range(rounds):
                for at, pid in ((port, served.pid), (bare, empty)):
                    before = _cpu(pid)
                    asyncio.run(_post(at, "/jobs", _JOB, clients, requests // clients))
                    costs[at].append((_cpu(pid) - before) / requests * 1e6)
                server.empty()
            ratios = [ours / theirs for ours, theirs in zip(costs[port], costs[bare], strict=True)]
            low, high = middle_half(ratios)
            note = (
                f"{median(costs[port]):.0f} us against {median(costs[bare]):.0f} us; "
                f"half of the rounds {low:.2f} to {high:.2f}"
            )
            name = f"{clients} at once" if clients > 1 else "one after the other"
            figures.append(Figure(name, median(ratios), "x empty", BUDGET, note=note))
        figures.append(_batches(server, port, plan.pick(9, 3)))
    return Section(
        "submit", "API CPU of a submission, in submissions to an empty endpoint", figures
    )


def _batches(server: Rig, port: int, rounds: int) -> Figure:
    jobs = 10 * BATCH
    shares = []
    for _ in range(rounds):
        began = time.monotonic()
        fill(server, jobs, payload=json.dumps(_JOB["payload"]).encode())
        script = time.monotonic() - began
        began = time.monotonic()
        asyncio.run(_post(port, "/jobs/batch", {"jobs": [_JOB] * BATCH}, 2, jobs // BATCH // 2))
        shares.append(100 * script / (time.monotonic() - began))
        server.empty()
    low, high = middle_half(shares)
    note = f"half of the rounds {low:.0f} to {high:.0f}"
    return Figure("batches of 1,000", median(shares), "% of script", BATCH_BUDGET, True, note)


async def _post(port: int, path: str, body: object, clients: int, each: int) -> None:
    """``clients`` at once, each one request after the other."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        for _ in range(each):
            writer.write(head.encode() + data)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.split(b"content-length: ")[1].split(b"\r\n")[0]))
            if answer[9:11] != b"20":
                raise RuntimeError(f"POST {path}: {answer[:40]!r}")
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def _empty() -> Iterator[tuple[int, int]]:
    """(port, pid) of ``bench.empty``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with process.module("empty", str(port)) as pid:
        process.wait_for(listens, "the empty endpoint's start")
        yield port, pid
