"""A job can be called off: one that waits is gone at once, one that runs is asked to stop."""

import asyncio

import pytest

from taskq import Context, JobCancelled, State, TaskQ
from taskq.testing import InlineWorker


async def test_a_waiting_job_is_cancelled(app: TaskQ, worker: InlineWorker) -> None:
    """It never runs, and those who wait for its result are told."""

    @app.task
    async def greet(name: str) -> None:
        raise AssertionError("never runs")

    job = await greet.enqueue("Ada")
    assert await job.cancel() is State.CANCELLED
    assert await worker.drain() == []
    with pytest.raises(JobCancelled):
        await job.result(timeout=5)


async def test_a_running_coroutine_is_cancelled(app: TaskQ, worker: InlineWorker) -> None:
    """``asyncio.CancelledError`` is raised where it awaits, so ``finally`` cleans up."""
    told: list[str] = []
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            told.append("cleaned up")

    job = await endless.enqueue()
    draining = asyncio.create_task(worker.drain())
    await started.wait()
    assert await job.cancel() is State.RUNNING
    await draining
    assert told == ["cleaned up"]
    with pytest.raises(JobCancelled):
        await job.result(timeout=5)


async def test_a_running_thread_looks_for_itself(app: TaskQ, worker: InlineWorker) -> None:
    """A thread cannot be stopped from outside: long functions ask the context now and then."""
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.task
    def endless(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        while not ctx.wait_cancelled(0.1):
            pass
        ctx.raise_if_cancelled()

    job = await endless.enqueue()
    draining = asyncio.create_task(worker.drain())
    await started.wait()
    await job.cancel()
    await draining
    with pytest.raises(JobCancelled):
        await job.result(timeout=5)
