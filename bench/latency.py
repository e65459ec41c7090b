"""How long an idle worker takes to start a job, against the least that two processes can do.

A job: from before ``await stamp.enqueue()`` here to the first line of the task in a worker process
that had nothing to do. Bare: from before an LPUSH here to the return of BLPOP in another process,
with the same async client and event loop. Both ends read CLOCK_MONOTONIC, which is one clock on a
machine. Blocks of either take turns, with a pause before each single one, so that every one finds
the other side asleep.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import uvloop

from bench import process
from bench.pong import PING, PONG
from bench.report import Figure, Plan, Section
from bench.rig import rig
from taskq.store import connect_async

BUDGETS = {50: 3.0, 99: 5.0}
PAUSE_SECONDS = 0.01
BLOCK = 100


def measure(plan: Plan) -> Section:
    """Percentiles of both, and their ratios; the bare ones alone without a worker."""
    missing = process.worker_missing()
    with rig() as server, ExitStack() as stack:
        stack.enter_context(process.module("pong", server.url))
        if not missing:
            stack.enter_context(process.worker(server.url))
        bare, trips, jobs = uvloop.run(_measure(server.url, plan.pick(20, 4), not missing))
    figures = []
    for percent, budget in BUDGETS.items():
        one_way, round_trip = _percentile(bare, percent), _percentile(trips, percent)
        figures += [
            Figure(
                f"LPUSH to BLPOP, p{percent}", one_way, "us", note=f"and back: {round_trip:.0f} us"
            ),
        ]
        if jobs:
            job = _percentile(jobs, percent)
            figures += [
                Figure(f"submit to start, p{percent}", job, "us"),
                Figure(
                    f"job / bare, p{percent}",
                    job / one_way,
                    "x",
                    budget,
                    note=f"{job / round_trip:.2f} x there and back",
                ),
            ]
    notes = [f"The worker was not measured: {missing}."] if missing else []
    return Section(
        "latency", f"an idle worker's start of a job, {len(bare):,} of each", figures, notes
    )


async def _measure(
    url: str, blocks: int, with_worker: bool
) -> tuple[list[float], list[float], list[float]]:
    """Microseconds of bare one-way trips, bare round trips, and starts of jobs."""
    client: Any = connect_async(url)
    trips: list[float] = []

    async def ping() -> int:
        before = time.monotonic_ns()
        await client.execute_command("LPUSH", PING, "1")
        at = await _pop(client, PONG)
        trips.append((time.monotonic_ns() - before) / 1000)
        return at

    bare: list[float] = []
    jobs: list[float] = []
    await _block(ping, 20)
    trips.clear()
    job: Callable[[], Awaitable[int]] | None = None
    if with_worker:
        job = _submitter(url, client)
        await _block(job, 20)
    for _ in range(blocks):
        bare += await _block(ping, BLOCK)
        if job is not None:
            jobs += await _block(job, BLOCK)
    await client.aclose()
    return bare, trips, jobs


def _submitter(url: str, client: Any) -> Callable[[], Awaitable[int]]:
    os.environ["TASKQ_REDIS_URL"] = url
    from bench.app import STARTED, stamp  # only where there is a worker to run it

    async def submit() -> int:
        await stamp.enqueue()
        return await _pop(client, STARTED)

    return submit


async def _pop(client: Any, key: str) -> int:
    reply = await client.execute_command("BLPOP", key, 5)
    if reply is None:
        raise TimeoutError(f"nothing came to {key} in 5 s")
    return int(reply[1])


async def _block(action: Callable[[], Awaitable[int]], n: int) -> list[float]:
    """``n`` latencies in us of ``action``, which answers when the other side woke up (ns)."""
    out = []
    for _ in range(n):
        await asyncio.sleep(PAUSE_SECONDS)
        before = time.monotonic_ns()
        out.append((await action() - before) / 1000)
    return out


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
