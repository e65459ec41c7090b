"""A job whose function raises runs again, later and later, until its attempts are used up."""

import asyncio

import pytest

from taskq import Backoff, Cancel, Context, JobFailed, Retry, Snooze, State, TaskQ
from taskq.testing import InlineWorker


async def test_a_failed_run_is_repeated(app: TaskQ, worker: InlineWorker) -> None:
    """The context tells which attempt this is."""

    @app.task
    async def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return f"attempt {ctx.attempt}"

    job = await flaky.enqueue()
    await worker.drain()
    assert (await job.info()).state is State.RETRYING
    for _ in range(2):
        worker.advance(3600)
        await worker.drain()
    assert await job.result(timeout=5) == "attempt 3"


async def test_the_last_attempt(app: TaskQ, worker: InlineWorker) -> None:
    """Then the job is ``failed``, and the error is kept for those who ask."""

    @app.task(max_attempts=1)
    async def divide(a: int, b: int) -> float:
        return a / b

    job = await divide.enqueue(1, 0)
    await worker.drain()
    with pytest.raises(JobFailed, match="ZeroDivisionError") as failed:
        await job.result(timeout=5)
    assert failed.value.error["message"] == "division by zero"


async def test_the_delay_grows(app: TaskQ, worker: InlineWorker) -> None:
    """By ``Backoff``: a base, a factor, a cap, and jitter that spreads a burst of failures."""

    @app.task(max_attempts=4, backoff=Backoff(base_seconds=10, factor=2, cap_seconds=30, jitter=0))
    async def fails() -> None:
        raise RuntimeError

    job = await fails.enqueue()
    for seconds in (0, 10, 20, 30):
        worker.advance(seconds)
        assert len(await worker.drain()) == 1
    assert (await job.info()).state is State.FAILED


async def test_retry_says_when(app: TaskQ, worker: InlineWorker) -> None:
    """Raise ``Retry`` when you know better than the back-off. It counts as a failure."""

    @app.task
    async def call_api(ctx: Context) -> int:
        if ctx.failures == 0:
            raise Retry("rate limited", after=30)
        return ctx.failures

    job = await call_api.enqueue()
    await worker.drain()
    worker.advance(30)
    await worker.drain()
    assert await job.result(timeout=5) == 1


async def test_snooze_is_no_failure(app: TaskQ, worker: InlineWorker) -> None:
    """Raise ``Snooze`` when it is too early; it may be raised for ever."""
    ready: list[str] = []

    @app.task(max_attempts=1)
    async def import_file(ctx: Context) -> int:
        if not ready:
            raise Snooze(60)
        return ctx.failures

    job = await import_file.enqueue()
    for _ in range(5):
        await worker.drain()
        worker.advance(60)
    ready.append("file")
    await worker.drain()
    assert await job.result(timeout=5) == 0


async def test_cancel_gives_up(app: TaskQ, worker: InlineWorker) -> None:
    """Raise ``Cancel`` when another attempt would be useless."""

    @app.task(max_attempts=10)
    async def send(to: str) -> None:
        raise Cancel(f"no such mailbox: {to}")

    job = await send.enqueue("nobody@example.com")
    await worker.drain()
    with pytest.raises(JobFailed, match="no such mailbox"):
        await job.result(timeout=5)


async def test_a_timeout_is_a_failure(app: TaskQ, worker: InlineWorker) -> None:
    """A run that takes longer than its ``timeout`` is stopped."""

    @app.task(timeout=0.05, max_attempts=1)
    async def waits() -> None:
        await asyncio.Event().wait()

    job = await waits.enqueue()
    await worker.drain()
    with pytest.raises(JobFailed, match="Timeout"):
        await job.result(timeout=5)


async def test_the_history_of_a_job(app: TaskQ, worker: InlineWorker) -> None:
    """What left the ordinary path is kept with the job."""

    @app.task
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("not yet")

    job = await flaky.enqueue()
    await worker.drain()
    worker.advance(3600)
    await worker.drain()
    (failure,) = (await job.info()).history
    assert failure["event"] == "failed"
    assert failure["error"]["message"] == "not yet"


async def test_retry_a_job_that_has_failed(app: TaskQ, worker: InlineWorker) -> None:
    """When the cause is gone: it is queued again, with a clean count of failures."""
    down = True

    @app.task(max_attempts=1)
    async def fetch() -> str:
        if down:
            raise ConnectionError("down")
        return "fetched"

    job = await fetch.enqueue()
    await worker.drain()
    assert (await job.info()).state is State.FAILED
    down = False
    assert await job.retry() is State.QUEUED
    await worker.drain()
    assert await job.result(timeout=5) == "fetched"
