"""The application that worker tests run: tasks that leave a line in a ledger file when they start and end."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from taskq import Backoff, Cancel, Context, Retry, Snooze, TaskQ
from taskq.app import CallNext

app = TaskQ()
NOW = Backoff(base_seconds=0, cap_seconds=0)


def note(*words: object) -> None:
    """One line in the ledger, written whole."""
    fd = os.open(os.environ["PROBE_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, (" ".join(str(word) for word in words) + "\n").encode())
    finally:
        os.close(fd)


def _start(ctx: Context) -> None:
    note("START", ctx.job_id, ctx.attempt, ctx.fence, os.getpid(), f"{time.time():.4f}")


def _end(ctx: Context) -> None:
    note("END", ctx.job_id, ctx.attempt, ctx.fence, os.getpid(), f"{time.time():.4f}")


def wait_for_gate(name: str | None) -> bool:
    """Whether the gate file of a test is open; None is always open."""
    return name is None or Path(name).exists()


@app.lifespan
async def resources() -> AsyncIterator[dict[str, Any]]:
    note("OPEN", os.getpid())
    yield {"greeting": "hello"}
    note("CLOSE", os.getpid())


@app.middleware
async def around(ctx: Context, call_next: CallNext) -> Any:
    if ctx.job_type == "wrapped":
        return ["around", await call_next()]
    return await call_next()


@app.task
async def echo(x: Any = None) -> Any:
    return x


@app.task
async def wrapped(ctx: Context) -> Any:
    return ctx.state["greeting"]


@app.task
async def gated(ctx: Context, gate: str | None = None) -> str:
    """Runs until the gate file exists."""
    _start(ctx)
    while not wait_for_gate(gate):
        await asyncio.sleep(0.02)
    _end(ctx)
    return "done"


@app.task
def gated_thread(ctx: Context, gate: str | None = None, polite: bool = False) -> str:
    _start(ctx)
    while not wait_for_gate(gate):
        if polite:
            ctx.raise_if_cancelled()
        time.sleep(0.02)
    _end(ctx)
    return "done"


@app.task
def hold_gil(ctx: Context, n: int) -> str:
    """One C call that never gives the interpreter back."""
    import re

    _start(ctx)
    re.match(r"(a+)+$", "a" * n + "b")
    _end(ctx)
    return "held"


@app.task(max_attempts=3, backoff=NOW)
async def fail(ctx: Context, times: int = 1000) -> int:
    _start(ctx)
    if ctx.failures < times:
        raise ValueError(f"failure {ctx.failures + 1}")
    return ctx.failures


@app.task(max_attempts=1)
async def exits(code: int = 0) -> None:
    raise SystemExit(code)


@app.task(max_attempts=1)
async def bad_result(kind: str) -> Any:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    return {
        "file": open(os.devnull),
        "object": Odd(),
        "loop": loop,
        "deep": deep,
        "nan": float("nan"),
        "surrogate": "\ud800",
        "large": "x" * 1_100_000,
        "generator": (i for i in range(3)),
        "bytes": b"\xff",
        "lock": threading.Lock(),
        "infinity": [float("inf")],
        "digits": 10**5000,
    }[kind]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Untold(Exception):
    """Nothing can be asked of it, and it can be neither copied nor sent."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __reduce__(self) -> Any:
        raise TypeError("it cannot be sent")


@app.task(max_attempts=1, executor="process")
def bad_error_apart(kind: str) -> None:
    raise {
        "untold": Untold(),
        "surrogate": ValueError("\ud800"),
        "huge": ValueError("x" * 5_000_000),
    }[kind]


@app.task(max_attempts=1)
async def bad_error(kind: str) -> None:
    raise {
        "unprintable": Unprintable(),
        "interrupt": KeyboardInterrupt(),
        "generator_exit": GeneratorExit(),
        "stop_iteration": StopIteration(1),
        "group": ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
        "huge": ValueError("x" * 5_000_000),
        "surrogate": ValueError("\ud800 \x00 \x1b[31m"),
        "cancelled": asyncio.CancelledError(),
        "untold": Untold(),
        "base": BaseException("at the root"),
    }[kind]


@app.task(max_attempts=4, backoff=NOW)
async def asks(ctx: Context, what: str) -> str:
    _start(ctx)
    if ctx.attempt > 1:
        return f"attempt {ctx.attempt}, failures {ctx.failures}"
    if what == "retry":
        raise Retry("later", after=0.05)
    if what == "snooze":
        raise Snooze(0.05)
    raise Cancel("useless")


@app.task(timeout=0.3, max_attempts=1)
async def slow(ctx: Context) -> None:
    _start(ctx)
    await asyncio.sleep(60)


@app.task(max_attempts=1)
def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def tells(ctx: Context, lines: int) -> None:
    for i in range(lines):
        ctx.log(f"line {i}")
    ctx.progress(0.5, "half way")
    ctx.progress(1.0, "there")
    await asyncio.sleep(0.3)


@app.task(executor="process", max_attempts=2, backoff=NOW)
def isolated(ctx: Context, gate: str | None = None, x: Any = None) -> Any:
    """Runs until the gate is open, then answers x and the pid it ran in."""
    _start(ctx)
    ctx.log("from its own process")
    while not wait_for_gate(gate):
        time.sleep(0.02)
    _end(ctx)
    return [x, os.getpid(), ctx.state]


@app.task(executor="process")
async def isolated_async(x: Any = None) -> Any:
    await asyncio.sleep(0)
    return x


@app.task(executor="process", max_attempts=1, timeout=1)
def isolated_slow(ctx: Context, spawn: bool = False) -> None:
    import subprocess

    _start(ctx)
    if spawn:
        child = subprocess.Popen(["sleep", "300"], start_new_session=False)
        note("CHILD", child.pid)
    hold(28)


def hold(n: int) -> None:
    import re

    re.match(r"(a+)+$", "a" * n + "b")


@app.task(executor="process", max_attempts=3, backoff=NOW)
def isolated_dies(ctx: Context, how: str) -> None:
    _start(ctx)
    die(how)


@app.task(max_attempts=3, backoff=NOW)
async def dies(ctx: Context, how: str) -> None:
    """Takes its worker down."""
    _start(ctx)
    die(how)


def die(how: str) -> None:
    import ctypes
    import sys

    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit 0":
            os._exit(0)
        case "exit 3":
            os._exit(3)
        case "sys.exit":
            sys.exit(0)
        case "raise":
            raise ValueError("on purpose")
        case "segfault":
            ctypes.string_at(0)


@app.task(executor="process", max_attempts=1, memory_mb=150)
def isolated_hog(ctx: Context) -> int:
    _start(ctx)
    held = []
    while True:
        held.append(bytearray(10_000_000))
        time.sleep(0.01)


@app.task(max_attempts=1, timeout=0.5)
async def swallows(ctx: Context) -> None:
    _start(ctx)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


@app.task(max_attempts=1)
async def grows(ctx: Context, mib: int) -> None:
    _start(ctx)
    held = bytearray(mib * 1_048_576)
    while held:
        await asyncio.sleep(60)


@app.task(max_attempts=1)
def terminates_a_child() -> int:
    import subprocess

    child = subprocess.Popen(["sleep", "60"])
    child.terminate()
    return child.wait(5)


class Recursive(Exception):
    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Raising(Exception):
    @property
    def retryable(self) -> bool:
        raise RuntimeError("no answer")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@app.task(max_attempts=1)
async def misbehaves(kind: str) -> None:
    raise {"recursive": Recursive(), "property": Raising(), "exits": Exiting()}[kind]


class Order(BaseModel):
    id: UUID
    at: datetime
    lines: list[int]


@app.task
async def returns_a_model(order: Order) -> Order:
    return order


@app.task
async def returns_something_else() -> list[int]:
    return "no number"  # type: ignore[return-value]
