"""The application of the fault suite: every run leaves lines in a ledger file that no fault touches."""

import asyncio
import contextlib
import gc
import math
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from taskq import Backoff, Context, Retry, TaskQ

app = TaskQ()
NOW = Backoff(base_seconds=0, cap_seconds=0)
SOON = Backoff(base_seconds=0.05, factor=2, cap_seconds=0.5)


def now() -> float:
    """The machine's time, also where this process's clock is wrong (see ``support.clock``)."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def note(*words: object) -> None:
    """One line in the ledger, written whole."""
    fd = os.open(os.environ["FAULT_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, (" ".join(str(word) for word in words) + "\n").encode())
    finally:
        os.close(fd)


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def start(ctx: Context) -> None:
    above = os.getppid()
    who = (os.getpid(), f"{now():.4f}", above, _parent_of(above))
    note("START", ctx.job_id, ctx.attempt, ctx.fence, *who)


def end(ctx: Context, how: str = "ok") -> dict[str, Any]:
    """Answers the result by which a verdict tells which run was recorded."""
    note("END", ctx.job_id, ctx.attempt, ctx.fence, os.getpid(), f"{now():.4f}", how)
    return {"fence": str(ctx.fence)}


@app.lifespan
async def collect_garbage() -> AsyncIterator[None]:
    """With FAULT_GC set the child collects garbage all the time: what nobody refers to is gone."""
    if not os.environ.get("FAULT_GC"):
        yield
        return

    async def collect() -> None:
        while True:
            gc.collect()
            await asyncio.sleep(0.01)

    collecting = asyncio.create_task(collect())
    yield
    collecting.cancel()


# --- runs that end well ---------------------------------------------------------------------------


@app.task(max_attempts=50, backoff=SOON)
async def work(ctx: Context, seconds: float = 0, gate: str | None = None) -> Any:
    """Runs for a while, and until the gate file exists."""
    start(ctx)
    await asyncio.sleep(seconds)
    while gate is not None and not Path(gate).exists():
        await asyncio.sleep(0.02)
    return end(ctx)


@app.task
def work_thread(ctx: Context, seconds: float = 0) -> Any:
    start(ctx)
    time.sleep(seconds)
    return end(ctx)


@app.task
async def block_loop(ctx: Context, seconds: float) -> Any:
    """Sleeps without giving the event loop back."""
    start(ctx)
    time.sleep(seconds)
    return end(ctx)


@app.task
async def spin(ctx: Context, seconds: float) -> Any:
    """A loop of plain Python on the event loop."""
    start(ctx)
    until = time.monotonic() + seconds
    n = 0
    while time.monotonic() < until:
        n += 1
    return end(ctx)


@app.task
def hold_gil(ctx: Context, seconds: float) -> Any:
    """One C call that never gives the interpreter back, of about this length."""
    start(ctx)
    hold(seconds)
    return end(ctx)


def hold(seconds: float) -> None:
    """A hopeless match is one C call, twice as long for each letter more."""
    letters = 14
    began = time.monotonic()
    re.match(r"(a+)+$", "a" * letters + "b")
    took = time.monotonic() - began
    more = math.ceil(math.log2(max(1.0, seconds / took)))
    re.match(r"(a+)+$", "a" * (letters + more) + "b")


# --- runs that fail -------------------------------------------------------------------------------


@app.task(max_attempts=20, backoff=NOW)
async def flaky(ctx: Context, times: int, after: float | None = None) -> Any:
    """Fails the first ``times`` runs."""
    start(ctx)
    if ctx.failures < times:
        end(ctx, "raise")
        if after is not None:
            raise Retry("not yet", after=after)
        raise ValueError(f"failure {ctx.failures + 1}")
    return end(ctx)


@app.task(max_attempts=3, backoff=NOW)
async def hopeless(ctx: Context) -> None:
    start(ctx)
    end(ctx, "raise")
    raise ValueError("always")


@app.task(backoff=Backoff(base_seconds=0.001, factor=1e30, cap_seconds=0.01))
async def hopeless_often(ctx: Context) -> None:
    start(ctx)
    end(ctx, "raise")
    raise ValueError("always")


@app.task(max_attempts=10, backoff=Backoff(base_seconds=4, factor=2, cap_seconds=16))
async def storm(ctx: Context, times: int) -> Any:
    start(ctx)
    if ctx.failures < times:
        end(ctx, "raise")
        raise ConnectionError("the dependency is down")
    return end(ctx)


@app.task(max_attempts=3, backoff=NOW)
async def dies(ctx: Context, how: str, times: int = 1000) -> Any:
    """Takes its process down in the first ``times`` runs."""
    start(ctx)
    if ctx.attempt <= times:
        note("DIE", ctx.job_id, ctx.attempt, ctx.fence, os.getpid(), f"{now():.4f}")
        die(how)
    return end(ctx)


def die(how: str) -> None:
    import ctypes
    import sys

    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit 0":
            os._exit(0)
        case "exit 1":
            os._exit(1)
        case "sys.exit":
            sys.exit(0)
        case "segfault":
            ctypes.string_at(0)


@app.task(max_attempts=1)
async def deep_failure(size: int = 100_000) -> None:
    """Raises under thirty frames, each of which holds a local of this size; leaves nothing in the ledger."""
    _frame(30, size)


def _frame(left: int, size: int) -> None:
    ballast = bytes(size // 30) + bytes([left])
    if not left:
        raise ValueError("at the bottom", ballast[-1])
    _frame(left - 1, size)


# --- runs that do not end by themselves -----------------------------------------------------------


@app.task(max_attempts=1)
async def overrun(ctx: Context, how: str) -> None:
    """Goes on for a minute, in a way that is more or less easy to stop."""
    start(ctx)
    try:
        match how:
            case "await":
                await asyncio.sleep(60)
            case "swallow":
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(60)
            case "subprocess":
                child = await asyncio.create_subprocess_exec("sleep", "60")
                note("CHILD", ctx.job_id, child.pid)
                await child.wait()
    finally:
        end(ctx, "stopped")


@app.task(max_attempts=1)
def overrun_thread(ctx: Context, how: str) -> None:
    start(ctx)
    match how:
        case "sleep":
            time.sleep(60)
        case "gil":
            # At once, before the loop of the worker comes round again: a minute of one C call.
            re.match(r"(a+)+$", "a" * 31 + "b")
        case "socket":
            with socket.create_server(("127.0.0.1", 0)) as silent:
                client = socket.create_connection(silent.getsockname())
                client.recv(1)


@app.task(max_attempts=2, backoff=Backoff(base_seconds=0.5, cap_seconds=0.5, jitter=0))
async def told(ctx: Context) -> None:
    """Waits to be stopped and notes why."""
    start(ctx)
    try:
        await asyncio.sleep(60)
    finally:
        note("STOPPED", ctx.job_id, ctx.attempt, ctx.stop_reason)
        end(ctx, f"stopped:{ctx.stop_reason}")


if os.environ.get("FAULT_NEW_TASKS"):

    @app.task
    async def added_later(ctx: Context) -> Any:
        start(ctx)
        return end(ctx)
