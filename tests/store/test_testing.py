"""What ``taskq.testing`` promises to those who test their applications with it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from taskq import (
    Backoff,
    Cancel,
    Context,
    JobCancelled,
    JobFailed,
    ResultExpired,
    Retry,
    Snooze,
    State,
    TaskQ,
)
from taskq.errors import ConfigError, TaskqError
from taskq.testing import InlineWorker, running

app = TaskQ()
seen: list[Any] = []


@app.task
async def note(value: Any) -> Any:
    seen.append(value)
    return value


@app.task
def from_thread(ctx: Context, value: int) -> int:
    ctx.log("from a thread")
    seen.append(threading.current_thread() is threading.main_thread())
    return value


@app.task(max_attempts=3, backoff=Backoff(base_seconds=10, cap_seconds=1000, jitter=0))
async def raises(name: str) -> None:
    raise {
        "value": ValueError("no"),
        "exit": SystemExit(1),
        "stop": StopIteration(),
        "cancel": Cancel("useless"),
        "retry": Retry("soon", after=5),
        "snooze": Snooze(7),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }[name]


@app.task(timeout=0.05, max_attempts=1)
async def too_slow() -> None:
    await asyncio.Event().wait()


@app.task
async def cancels_itself(ctx: Context) -> None:
    await app.job(ctx.job_id).cancel()
    await asyncio.Event().wait()


@app.task
async def for_ever() -> None:
    raise Snooze(0)


@app.task
async def parent(depth: int) -> None:
    if depth:
        await parent.enqueue(depth - 1)


@app.task
async def hangs() -> None:
    seen.append("started")
    await asyncio.Event().wait()


@pytest.fixture(params=["embedded", "fake"])
async def worker(request: pytest.FixtureRequest) -> AsyncIterator[InlineWorker]:
    seen.clear()
    async with running(app, server=request.param) as worker:
        yield worker


async def test_jobs_run_in_the_order_of_their_queues(worker: InlineWorker) -> None:
    specs = [note.spec(n) for n in range(5)]
    await app.enqueue_many(specs)
    await note.enqueue(5)
    await note.options(priority=1).enqueue(-1)
    await note.options(queue="other").enqueue(6)
    ran = await worker.drain()
    assert seen == [-1, 0, 1, 2, 3, 4, 5, 6]
    assert {(r.state, r.error, r.attempt) for r in ran} == {(State.SUCCEEDED, None, 1)}
    assert await worker.run_next() is None


async def test_the_clock_moves_only_when_told(worker: InlineWorker) -> None:
    await note.options(delay=60).enqueue("later")
    await note.options(run_at=worker.now + timedelta(hours=1)).enqueue("much later")
    worker.advance(59)
    assert await worker.drain() == []
    # A submission after a move counts from there.
    await note.options(delay=60).enqueue("later still")
    worker.advance(2)
    assert len(await worker.drain()) == 1
    worker.advance(3600)
    await worker.drain()
    assert seen == ["later", "later still", "much later"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_the_clock_never_goes_back(seconds: float) -> None:
    async with running(app, server="fake") as worker:
        with pytest.raises(ValueError, match="moves on only"):
            worker.advance(seconds)


async def test_the_clock_may_start_anywhere() -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    async with running(app, server="fake", start=start) as worker:
        assert worker.now == start
        job = await note.enqueue(1)
        created = (await job.info()).created_at
        assert created == start.timestamp() * 1000 + 1
    with pytest.raises(ValueError, match="time zone"):
        async with running(app, server="fake", start=datetime(2030, 1, 1)):  # noqa: DTZ001
            pass


async def test_plain_functions_run_in_a_thread(worker: InlineWorker) -> None:
    job = await from_thread.enqueue(1)
    await worker.drain()
    assert seen == [False]
    assert [line["line"] for line in (await job.info()).log] == ["from a thread"]


async def test_failures_are_retried_by_the_back_off(worker: InlineWorker) -> None:
    job = await raises.enqueue("value")
    states = []
    for seconds in (0, 9.9, 0.1, 20):
        worker.advance(seconds)
        states += [r.state for r in await worker.drain()]
    assert states == [State.RETRYING, State.RETRYING, State.FAILED]
    with pytest.raises(JobFailed, match="ValueError: no"):
        await job.result()


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("cancel", State.FAILED),
        ("retry", State.RETRYING),
        ("snooze", State.SCHEDULED),
        ("exit", State.RETRYING),
        ("stop", State.RETRYING),
        ("interrupt", State.RETRYING),
        ("cancelled", State.RETRYING),
    ],
)
async def test_what_is_raised_ends_its_run_only(
    worker: InlineWorker, name: str, state: State
) -> None:
    job = await raises.enqueue(name)
    (ran,) = await worker.drain()
    assert (ran.job_id, ran.state) == (job.id, state)
    assert (await job.info()).state == state


async def test_a_delay_that_was_raised_counts(worker: InlineWorker) -> None:
    await raises.enqueue("retry")
    await raises.enqueue("snooze")
    await worker.drain()
    worker.advance(5)
    assert len(await worker.drain()) == 1
    worker.advance(2)
    assert len(await worker.drain()) == 1


async def test_a_timeout_fails_the_run(worker: InlineWorker) -> None:
    job = await too_slow.enqueue()
    await worker.drain()
    with pytest.raises(JobFailed, match="Timeout: ran longer"):
        await job.result()


async def test_a_running_job_sees_its_cancellation(worker: InlineWorker) -> None:
    job = await cancels_itself.enqueue()
    (ran,) = await worker.drain()
    assert ran.state is State.CANCELLED
    with pytest.raises(JobCancelled):
        await job.result()


async def test_arguments_that_do_not_fit_fail_at_once(worker: InlineWorker) -> None:
    await app.submit("note", {"wrong": 1})
    (ran,) = await worker.drain()
    assert ran.state is State.FAILED


async def test_unknown_types_wait(worker: InlineWorker) -> None:
    job = await app.submit("nobody_knows_it", {})
    assert await worker.drain() == []
    assert (await job.info()).state is State.QUEUED


async def test_children_are_run_too(worker: InlineWorker) -> None:
    await parent.enqueue(3)
    assert len(await worker.drain()) == 4


async def test_what_never_ends_is_noticed(worker: InlineWorker) -> None:
    await for_ever.enqueue()
    with pytest.raises(TaskqError, match="ran 20 jobs"):
        await worker.drain(most=20)


async def test_what_expired_ends(worker: InlineWorker) -> None:
    job = await note.options(expires=10).enqueue("too late")
    worker.advance(11)
    assert await worker.drain() == []
    with pytest.raises(JobFailed, match="Expired"):
        await job.result()


async def test_results_are_kept_as_long_as_asked(worker: InlineWorker) -> None:
    job = await note.options(result_ttl=100).enqueue("kept")
    await worker.drain()
    worker.advance(99)
    await worker.drain()
    assert await job.result() == "kept"
    worker.advance(2)
    await worker.drain()
    with pytest.raises(ResultExpired):
        await job.result()


async def test_a_drain_that_is_given_up_hands_its_job_back(worker: InlineWorker) -> None:
    job = await hangs.enqueue()
    drain = asyncio.create_task(worker.drain())
    while "started" not in seen:
        await asyncio.sleep(0)
    drain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drain
    info = await job.info()
    assert (info.state, info.failures, info.lost) == (State.QUEUED, 0, 0)


async def test_sync_code_and_other_loops_meet_the_same_server(worker: InlineWorker) -> None:
    note.enqueue_sync("sync")

    async def elsewhere() -> None:
        await note.enqueue("elsewhere")
        await app.close()

    await asyncio.to_thread(asyncio.run, elsewhere())
    await worker.drain()
    assert seen == ["sync", "elsewhere"]


async def test_afterwards_the_application_is_as_before() -> None:
    async with running(app, server="fake"):
        inside = app.client()
    outside = app.client()
    assert inside is not outside
    assert type(outside.store).__name__ == "AsyncStore"
    await app.close()


async def test_an_unknown_kind_of_server_is_refused() -> None:
    kind: Literal["fake"] = "real"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="embedded"):
        async with running(app, server=kind):
            pass
