"""Every way in which a wait for a job can end."""

import asyncio
import time
from typing import Any

import pytest
import redis

from support.clients import QUEUE, TYPE, ulid, ulid_of, until
from support.queue import Bench
from taskq import (
    JobCancelled,
    JobFailed,
    JobHandle,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    State,
    TaskQ,
    UniqueHeld,
    calls,
)
from taskq.errors import BrokenKey, InvalidInput, WrongState
from taskq.keys import Keys

# --- the end of a job ---------------------------------------------------------------------------------


def end_as(how: str, bench: Bench, app: TaskQ, job: JobHandle[Any]) -> None:
    if how == "cancelled":
        job.cancel_sync()
        return
    jobs = bench.take()
    if how == "failed":
        bench.fail(*jobs, max_attempts=1)
    elif how == "expired":
        bench.finish(*jobs, result_ttl_ms=1)
        deadline = time.monotonic() + 5
        while bench.state(jobs[0].ulid) is not None and time.monotonic() < deadline:
            bench.expire()
    else:
        bench.finish(*jobs, result=b'{"a":[]}')


ENDS = [
    ("succeeded", None),
    ("failed", JobFailed),
    ("cancelled", JobCancelled),
    ("expired", ResultExpired),
]
NEVER = ("expired", "while")
"""Those who wait meet the result before it goes."""


@pytest.mark.parametrize(
    ("how", "error", "when"),
    [(*end, when) for end in ENDS for when in ("before", "while") if (end[0], when) != NEVER],
)
async def test_every_end_is_told(
    app: TaskQ, bench: Bench, how: str, error: type[Exception] | None, when: str
) -> None:
    job = await app.submit(TYPE)
    if when == "before":
        end_as(how, bench, app, job)
    waiting = [asyncio.create_task(job.result(timeout=10)) for _ in range(3)]
    waiting += [asyncio.create_task(asyncio.to_thread(job.result_sync, 10))]
    if when == "while":
        await until(lambda: bench.field(ulid_of(job), "watched"))
        start = time.monotonic()
        await asyncio.to_thread(end_as, how, bench, app, job)
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    if when == "while":
        assert time.monotonic() - start < 3
    assert {type(end) for end in ends} == {error or dict}


async def test_a_notice_wakes_at_once(app: TaskQ, bench: Bench) -> None:
    jobs = [await app.submit(TYPE, n) for n in range(20)]
    waiting = [asyncio.create_task(job.result(timeout=10)) for job in jobs]
    for job in jobs:
        await until(lambda job=job: bench.field(ulid_of(job), "watched"))  # type: ignore[misc]
    start = time.monotonic()
    bench.finish(*bench.take("w1", 20))
    await asyncio.gather(*waiting)
    assert time.monotonic() - start < 1


async def test_a_wait_may_run_out(app: TaskQ, bench: Bench) -> None:
    job = await app.submit(TYPE)
    for timeout in (0, 0.05):
        with pytest.raises(ResultTimeout, match="goes on"):
            await job.result(timeout=timeout)
        with pytest.raises(TimeoutError):
            job.result_sync(timeout=timeout)
    assert await app.client().wait(job.id, 0) is False
    bench.finish(*bench.take())
    assert await job.result(timeout=0) == job.result_sync(timeout=0) == 1
    assert await app.client().wait(job.id, 0) is True


async def test_what_does_not_exist_is_not_waited_for(app: TaskQ, raw: Any) -> None:
    missing = app.job(f"{QUEUE}:{ulid()}")
    for act in (missing.result, missing.info, missing.cancel):
        with pytest.raises(JobNotFound):
            await act()
    for act_sync in (missing.result_sync, missing.info_sync, missing.cancel_sync):
        with pytest.raises(JobNotFound):
            act_sync()
    with pytest.raises(InvalidInput):
        await app.job("nonsense").result()
    assert raw.keys() == []


async def test_cancel_says_what_became_of_it(app: TaskQ, bench: Bench) -> None:
    waiting, running, ended = [await app.submit(TYPE) for _ in range(3)]
    assert await waiting.cancel() is State.CANCELLED
    assert await waiting.cancel() is State.CANCELLED
    first = bench.take()
    assert await running.cancel() is State.RUNNING
    bench.finish(*bench.take())
    with pytest.raises(WrongState) as refused:
        ended.cancel_sync()
    assert refused.value.state == "succeeded"
    bench.finish(*first)


async def test_retry_puts_a_failed_job_back(app: TaskQ, bench: Bench) -> None:
    for retry in (JobHandle.retry, lambda job: asyncio.to_thread(job.retry_sync)):
        job = await app.submit(TYPE)
        bench.fail(*bench.take(), max_attempts=1)
        assert await retry(job) is State.QUEUED
        assert ((await job.info()).state, (await job.info()).failures) == (State.QUEUED, 0)
        for _ in range(2):
            with pytest.raises(WrongState, match="only a failed job can be retried") as refused:
                await retry(job)
            assert refused.value.state == "queued"
        bench.finish(*bench.take())


async def test_retry_says_what_keeps_it_from_it(app: TaskQ, raw: Any, bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        await app.client().retry(f"{QUEUE}:{ulid()}")
    job = await app.submit(TYPE, unique_key="k")
    bench.fail(*bench.take(), max_attempts=1)
    holder = await app.submit(TYPE, unique_key="k")
    with pytest.raises(UniqueHeld) as held:
        job.retry_sync()
    assert held.value.job_id == holder.id
    await holder.cancel()
    raw.delete(bench.keys.ready(TYPE))
    raw.set(bench.keys.ready(TYPE), "broken")
    with pytest.raises(BrokenKey):
        await job.retry()


async def test_a_late_retry_leaves_a_job_that_failed_again(
    app: TaskQ, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the call somebody else has retried it, and it has failed once more."""
    job = await app.submit(TYPE)
    bench.fail(*bench.take(), max_attempts=1)
    retry = calls.retry

    def late(*args: Any) -> Any:
        bench.run(retry(bench.keys, [(ulid_of(job), "")]))
        bench.fail(*bench.take(), max_attempts=1)
        return retry(*args)

    monkeypatch.setattr(calls, "retry", late)
    for act in (job.retry, lambda: asyncio.to_thread(job.retry_sync)):
        with pytest.raises(WrongState, match="has run again"):
            await act()
        assert (await job.info()).state is State.FAILED


async def test_a_retry_whose_answer_was_lost_is_no_refusal(
    app: TaskQ, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await app.submit(TYPE)
    bench.fail(*bench.take(), max_attempts=1)
    retry = calls.retry

    def twice(*args: Any) -> Any:
        bench.run(retry(*args))
        return retry(*args)

    monkeypatch.setattr(calls, "retry", twice)
    assert await job.retry() is State.QUEUED


async def test_a_lost_notice_costs_little(app: TaskQ, raw: Any, bench: Bench) -> None:
    """The connection that listens is killed, and the job ends before it is back."""
    job = await app.submit(TYPE)
    waiting = [asyncio.create_task(job.result(timeout=20))]
    waiting += [asyncio.create_task(asyncio.to_thread(job.result_sync, 20))]
    await until(
        lambda: raw.pubsub_numsub(Keys().queue(QUEUE).done_channel(ulid_of(job)))[0][1] == 2
    )
    raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    start = time.monotonic()
    bench.finish(*bench.take())
    assert await asyncio.gather(*waiting) == [1, 1]
    assert time.monotonic() - start < 4


async def test_listening_survives_being_killed_again_and_again(
    app: TaskQ, raw: Any, bench: Bench
) -> None:
    jobs = [await app.submit(TYPE, n) for n in range(30)]
    waiting = []
    for job in jobs:
        waiting.append(asyncio.create_task(job.result(timeout=20)))
        await asyncio.to_thread(raw.execute_command, "CLIENT", "KILL", "TYPE", "pubsub")
    await asyncio.to_thread(lambda: bench.finish(*bench.take("w1", 30)))
    assert await asyncio.gather(*waiting) == [1] * 30


async def test_those_who_stop_waiting_leave_nothing(app: TaskQ, raw: Any) -> None:
    job = await app.submit(TYPE)
    waiting = [asyncio.create_task(job.result()) for _ in range(10)]
    await until(lambda: raw.pubsub_channels())
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await until(lambda: not raw.pubsub_channels())
    with pytest.raises(ResultTimeout):
        await job.result(timeout=0)


def test_a_loop_for_each_call_does_not_pile_up_connections(app: TaskQ, redis_url: str) -> None:
    for _ in range(50):
        asyncio.run(app.submit("noop"))
    with redis.Redis.from_url(redis_url) as client:
        assert client.info("clients")["connected_clients"] < 12
    app._drop_clients_of_closed_loops()
