"""How long an idle worker takes to start a job, against the least that two processes can do.

A job: from before ``await stamp.enqueue()`` here to the first line of the task in a worker process
that had nothing to do. Bare: a ping-pong over the same server, with the same async client and event
loop: from before an LPUSH here, which another process takes by BLPOP and answers by LPUSH, to the
return of BLPOP here. Both are four steps over a socket: submit, wake, claim and answer; ping, wake,
pong, wake. For information also the bare way there alone, half of that.

Clocks are CLOCK_MONOTONIC, which is one on a machine. Blocks of either take turns, with a pause
before each single one, so that every one finds the other side asleep.
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
from taskq.connection import connect_async

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
        one_way, trips, jobs = uvloop.run(_measure(server.url, plan.pick(20, 4), not missing))
    figures = []
    for percent, budget in BUDGETS.items():
        bare = _percentile(trips, percent)
        there = _percentile(one_way, percent)
        figures.append(
            Figure(f"ping-pong, p{percent}", bare, "us", note=f"the way there {there:.0f} us")
        )
        if jobs:
            job = _percentile(jobs, percent)
            note = f"{job / there:.2f} x the way there"
            figures += [
                Figure(f"submit to start, p{percent}", job, "us"),
                Figure(f"job / ping-pong, p{percent}", job / bare, "x", budget, note=note),
            ]
    notes = [f"The worker was not measured: {missing}."] if missing else []
    return Section(
        "latency", f"an idle worker's start of a job, {len(trips):,} of each", figures, notes
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

    one_way: list[float] = []
    jobs: list[float] = []
    await _block(ping, 20)
    trips.clear()
    job: Callable[[], Awaitable[int]] | None = None
    if with_worker:
        job = _submitter(url, client)
        await _block(job, 20)
    for _ in range(blocks):
        one_way += await _block(ping, BLOCK)
        if job is not None:
            jobs += await _block(job, BLOCK)
    await client.aclose()
    return one_way, trips, jobs


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
