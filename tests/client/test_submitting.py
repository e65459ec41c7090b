"""Submitting over a real server: batches, keys, loops, threads and forks."""

import asyncio
import os
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from support.clients import QUEUE, TYPE, calls_of, ulid_of
from support.queue import Bench
from taskq import JobHandle, State, SubmitOptions, TaskQ, UniqueHeld
from taskq.errors import BrokenKey, IdempotencyConflict, InvalidInput, PayloadTooLarge, QueueFull
from taskq.keys import Keys

# --- submission -------------------------------------------------------------------------------------


async def test_concurrent_submissions_share_round_trips(app: TaskQ, raw: Any) -> None:
    await app.submit(TYPE)
    before = calls_of(raw)
    jobs = await asyncio.gather(*(app.submit(TYPE, {"n": n}) for n in range(500)))
    assert calls_of(raw) - before <= 4
    assert len({job.id for job in jobs}) == 500
    payloads = [(await job.info()).payload for job in jobs[::100]]
    assert payloads == [b'{"n":%d}' % n for n in range(0, 500, 100)]


async def test_first_submitted_is_first_in_line(app: TaskQ, bench: Bench) -> None:
    jobs = await asyncio.gather(*(app.submit(TYPE, n) for n in range(1200)))
    assert bench.line() == [ulid_of(job) for job in jobs]


async def test_a_batch_is_bounded_in_bytes(app: TaskQ, raw: Any) -> None:
    await app.submit(TYPE)
    before = calls_of(raw)
    await asyncio.gather(*(app.submit(TYPE, "x" * 300_000) for _ in range(12)))
    assert calls_of(raw) - before >= 4


async def test_many_in_one_go(app: TaskQ, raw: Any, bench: Bench) -> None:
    specs = [app.spec(TYPE, b'"%d"' % n, SubmitOptions()) for n in range(2500)]
    await app.submit(TYPE)
    before = calls_of(raw)
    handles = await app.enqueue_many(specs)
    assert calls_of(raw) - before == 3
    assert bench.line()[1:] == [ulid_of(handle) for handle in handles]
    assert app.enqueue_many_sync([]) == await app.enqueue_many([]) == []


async def test_one_refused_job_does_not_cost_its_neighbours(app: TaskQ) -> None:
    await app.submit(TYPE, unique_key="k")
    ends = await asyncio.gather(
        app.submit(TYPE, 1),
        app.submit(TYPE, 2, unique_key="k"),
        app.submit(TYPE, 3),
        return_exceptions=True,
    )
    assert [type(end) for end in ends] == [JobHandle, UniqueHeld, JobHandle]


async def test_a_submission_given_up_does_not_cost_its_neighbours(app: TaskQ) -> None:
    tasks = [asyncio.create_task(app.submit(TYPE, n)) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(end, JobHandle) for end in ends] == [n % 3 != 0 for n in range(20)]


async def test_an_idempotency_key_names_one_job(app: TaskQ, bench: Bench) -> None:
    first = await app.submit(TYPE, {"a": 1}, idempotency_key="k")
    again = await app.submit(TYPE, {"a": 1}, idempotency_key="k")
    sync = app.submit_sync(TYPE, {"a": 1}, idempotency_key="k")
    assert {first.id, again.id, sync.id} == {first.id}
    assert (first.created, again.created, sync.created) == (True, False, False)
    for other in ({"a": 2}, {"a": 1.0}):
        with pytest.raises(IdempotencyConflict):
            await app.submit(TYPE, other, idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        await app.submit(TYPE, {"a": 1}, idempotency_key="k", priority=1)
    assert (await app.submit(TYPE, {"a": 1}, idempotency_key="k", queue="other")).created
    bench.finish(*bench.take())
    ended = await app.submit(TYPE, {"a": 1}, idempotency_key="k")
    assert (ended.created, ended.state) == (False, State.SUCCEEDED)


async def test_concurrent_submissions_of_one_key_are_one_job(app: TaskQ, bench: Bench) -> None:
    jobs = await asyncio.gather(*(app.submit(TYPE, 1, idempotency_key="k") for _ in range(50)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1
    assert len(bench.line()) == 1


async def test_a_unique_key_is_held_while_its_job_lives(app: TaskQ, bench: Bench) -> None:
    first = await app.submit(TYPE, unique_key="k")
    with pytest.raises(UniqueHeld):
        await app.submit(TYPE, unique_key="k")
    running = bench.take()
    with pytest.raises(UniqueHeld) as held:
        app.submit_sync(TYPE, unique_key="k")
    assert held.value.job_id == first.id
    bench.finish(*running)
    assert (await app.submit(TYPE, unique_key="k")).created


async def test_a_full_queue_says_so(app: TaskQ, bench: Bench) -> None:
    bench.configure(max_depth=2)
    await app.submit(TYPE)
    await app.submit(TYPE)
    with pytest.raises(QueueFull, match="max_depth"):
        await app.submit(TYPE)


async def test_a_broken_key_says_so(app: TaskQ, raw: Any) -> None:
    raw.set(Keys().queue(QUEUE).ready(TYPE), "text")
    with pytest.raises(BrokenKey, match="doctor"):
        await app.submit(TYPE)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"priority": 101}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"delay": 1e12}, "delay"),
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at"),  # noqa: DTZ001
        ({"run_at": datetime(9000, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"run_at": 5}, "run_at"),
        ({"expires": 0}, "expires"),
        ({"timeout": -1}, "timeout"),
        ({"result_ttl": float("inf")}, "result_ttl"),
        ({"unique_key": ""}, "unique_key"),
        ({"unique_key": 5}, "unique_key"),
        ({"idempotency_key": "{}"}, "idempotency_key"),
        ({"idempotency_key": 5}, "idempotency_key"),
        ({"queue": "{q}"}, "queue"),
        ({"queue": 5}, "queue"),
        ({"dealy": 5}, "options"),
    ],
)
async def test_wrong_options_are_refused_by_name(
    app: TaskQ, raw: Any, options: Any, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.submit(TYPE, **options)
    assert refused.value.field == field
    assert raw.dbsize() == 0


async def test_wrong_names_and_payloads_are_refused(app: TaskQ, raw: Any) -> None:
    with pytest.raises(InvalidInput):
        await app.submit("no type")
    with pytest.raises(PayloadTooLarge):
        await app.submit(TYPE, "x" * 2_000_000)
    with pytest.raises(InvalidInput):
        app.submit_sync(TYPE, float("nan"))
    assert raw.dbsize() == 0


# --- several loops, threads, processes ----------------------------------------------------------------


async def test_each_event_loop_has_its_own_connections(app: TaskQ, bench: Bench) -> None:
    async def submit_here() -> None:
        await asyncio.gather(*(app.submit(TYPE) for _ in range(20)))
        await app.close()

    threads = [threading.Thread(target=lambda: asyncio.run(submit_here())) for _ in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(app.submit(TYPE) for _ in range(20)))
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert len(bench.line()) == 100


def test_one_loop_after_another(redis_url: str, bench: Bench) -> None:
    app = TaskQ(redis_url)

    async def once() -> None:
        await app.submit(TYPE)
        await app.close()

    for _ in range(3):
        asyncio.run(once())
    assert len(bench.line()) == 3


def test_threads_share_the_sync_client(redis_url: str, bench: Bench) -> None:
    app = TaskQ(redis_url)
    threads = [
        threading.Thread(target=lambda: [app.submit_sync(TYPE) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.line()) == 400
    app.close_sync()


def test_a_forked_child_connects_anew(redis_url: str, bench: Bench) -> None:
    app = TaskQ(redis_url)
    app.submit_sync(TYPE, "before")
    children = []
    for n in range(4):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for _ in range(20):
                    app.submit_sync(TYPE, n)

                async def submit(n: int = n) -> None:
                    await asyncio.gather(*(app.submit(TYPE, n) for _ in range(20)))
                    await app.close()

                asyncio.run(submit())
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    for _ in range(20):
        app.submit_sync(TYPE, "parent")
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert len(bench.line()) == 1 + 4 * 40 + 20
    app.close_sync()
