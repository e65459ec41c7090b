"""Submitting and waiting over a real server: batches, faults, forks, loops, and every way a wait can end."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
import redis

from support.proxy import Proxy
from support.queue import Bench
from taskq import (
    JobCancelled,
    JobFailed,
    JobHandle,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    State,
    SubmitOptions,
    TaskQ,
    UniqueHeld,
    calls,
)
from taskq.client import AsyncClient
from taskq.embedded import EmbeddedServer
from taskq.errors import (
    BrokenKey,
    IdempotencyConflict,
    InvalidInput,
    PayloadTooLarge,
    QueueFull,
    Unavailable,
    WrongState,
)
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.store import AsyncStore, Store, retry_delay

T = TypeVar("T")
QUEUE = "default"
TYPE = "mail"
ulid = UlidFactory()


@pytest.fixture
async def app(redis_url: str) -> AsyncIterator[TaskQ]:
    app = TaskQ(redis_url)
    yield app
    await app.close()


@pytest.fixture
def bench(redis_url: str) -> Bench:
    """A worker's side, under the server's own clock."""
    bench = Bench.at(redis_url, QUEUE)
    bench.now = None  # type: ignore[assignment]
    return bench


async def until(condition: Callable[[], Awaitable[Any] | Any], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return
        assert time.monotonic() < end, "the condition does not come true"
        await asyncio.sleep(0.002)


def calls_of(raw: Any, command: str = "evalsha") -> int:
    stats = raw.info("commandstats").get(f"cmdstat_{command}")
    return int(stats["calls"]) if stats else 0


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
    assert bench.line() == [_ulid(job) for job in jobs]


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
    assert bench.line()[1:] == [_ulid(handle) for handle in handles]
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


# --- faults -----------------------------------------------------------------------------------------


def test_pauses_grow_and_are_capped() -> None:
    pauses = [retry_delay(tries) for tries in range(2000)]
    assert max(pauses) <= 2
    assert pauses[0] <= 0.02
    assert min(pauses[20:]) >= 1


async def test_a_server_that_is_gone_is_unavailable_in_time() -> None:
    with EmbeddedServer() as server:
        store = AsyncStore.from_url(server.url, Keys(), retry_seconds=0.4)
        sync = Store.from_url(server.url, Keys(), retry_seconds=0.4)
        show = calls.show(store.keys.queue(QUEUE), [ulid()])
        assert await store.run(show) == sync.run(show) == [None]
        server.kill()
        for attempt in (lambda: store.run(show), lambda: asyncio.to_thread(sync.run, show)):
            start = time.monotonic()
            with pytest.raises(Unavailable) as gone:
                await attempt()
            assert time.monotonic() - start < 1.5
            assert gone.value.reason == "connection"
        server.start()
        assert await store.run(show) == sync.run(show) == [None]
        await store.close()
        sync.close()


async def test_all_who_wait_for_a_batch_learn_that_it_failed() -> None:
    with EmbeddedServer() as server:
        app = TaskQ(server.url)
        await app.submit(TYPE)
        app.client().store.retry_seconds = 0.2
        server.kill()
        ends = await asyncio.gather(*(app.submit(TYPE) for _ in range(30)), return_exceptions=True)
        assert {type(end) for end in ends} == {Unavailable}
        server.start()
        assert (await app.submit(TYPE)).created
        await app.close()


async def test_who_waits_behind_others_is_told_in_time() -> None:
    """Not after one timeout for each call in front of its own."""
    with EmbeddedServer() as server:
        client = AsyncClient.from_url(server.url, "taskq", retry_seconds=0.3, socket_timeout=0.5)
        ulid = UlidFactory()
        await client.submit("q", JobSpec(ulid(), TYPE))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            large = [JobSpec(ulid(), TYPE, b'"%s"' % (b"x" * 900_000)) for _ in range(12)]
            ends = await asyncio.gather(
                *(client.submit("q", spec) for spec in (*large, JobSpec(ulid(), TYPE))),
                return_exceptions=True,
            )
            assert {type(end) for end in ends} == {Unavailable}
            assert time.monotonic() - began < 4
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await client.submit("q", JobSpec(ulid(), TYPE))
        await client.close()


async def test_who_came_late_has_a_call_more() -> None:
    """A failure of those before is no reason to give up at once."""
    with EmbeddedServer(persistent=True) as server:
        client = AsyncClient.from_url(server.url, "taskq", retry_seconds=1)
        ulid = UlidFactory()
        await client.submit("q", JobSpec(ulid(), TYPE))
        server.kill()
        first = asyncio.create_task(client.submit("q", JobSpec(ulid(), TYPE)))
        async with asyncio.timeout(10):
            while client.store.errors["connection"] < 4:
                await asyncio.sleep(0.01)
            late = asyncio.create_task(client.submit("q", JobSpec(ulid(), TYPE)))
            with pytest.raises(Unavailable):
                await first
            server.start()
            assert (await late).created
        await client.close()


async def test_all_who_wait_learn_that_the_client_was_closed() -> None:
    """The one whose call is under way, those who share the next one, and those behind them."""
    with EmbeddedServer() as server:
        app = TaskQ(server.url)
        await app.submit(TYPE)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            waiting = [asyncio.create_task(app.submit(TYPE)) for _ in range(1200)]
            for _ in range(3):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await app.close()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(end) for end in ends} == {Unavailable}
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_loop_that_ends_leaves_no_submission_behind() -> None:
    with EmbeddedServer() as server:
        app = TaskQ(server.url)
        waiting: list[asyncio.Task[Any]] = []

        async def leaves() -> asyncio.AbstractEventLoop:
            await app.submit(TYPE)
            os.kill(server.pid, signal.SIGSTOP)
            waiting.extend(asyncio.create_task(app.submit(TYPE)) for _ in range(3))
            await asyncio.sleep(0)
            return asyncio.get_running_loop()

        loop = asyncio.run(leaves())
        os.kill(server.pid, signal.SIGCONT)
        assert all(task.cancelled() for task in waiting)
        assert not asyncio.all_tasks(loop)
        asyncio.run(closing(app))


async def closing(app: TaskQ) -> None:
    await app.submit(TYPE)
    await app.close()


async def test_a_restart_is_waited_for() -> None:
    with EmbeddedServer(persistent=True) as server:
        app = TaskQ(server.url)
        await app.submit(TYPE)
        server.kill()
        submission = asyncio.create_task(app.submit(TYPE))
        await asyncio.sleep(0)
        server.start()
        assert (await submission).id
        await app.close()


@pytest.fixture(scope="module")
def port_server() -> Iterator[tuple[EmbeddedServer, int]]:
    with EmbeddedServer(port=0) as server:
        yield server, int(server.url.rpartition(":")[2].partition("/")[0])


@pytest.mark.parametrize("kind", ["single", "batch", "sync"])
async def test_a_lost_reply_leaves_one_job(
    port_server: tuple[EmbeddedServer, int], kind: str
) -> None:
    server, port = port_server
    with redis.Redis.from_url(server.url) as raw:
        raw.flushall()
    lose = iter([True, True])
    proxy = Proxy(port, lambda request: b"EVAL" in request and next(lose, False))
    app = TaskQ(proxy.url)
    try:
        if kind == "sync":
            jobs = [app.submit_sync(TYPE)]
        else:
            jobs = await asyncio.gather(
                *(app.submit(TYPE) for _ in range(10 if kind == "batch" else 1))
            )
    finally:
        await app.close()
        proxy.close()
    assert proxy.lost >= 1
    bench = Bench.at(server.url, QUEUE)
    assert bench.line() == [_ulid(job) for job in jobs]
    assert {job.state for job in jobs} == {State.QUEUED}
    bench.store.close()


async def test_scripts_may_be_flushed_at_any_time(app: TaskQ, raw: Any, bench: Bench) -> None:
    over = asyncio.Event()
    flushes = 0

    async def flush() -> None:
        nonlocal flushes
        while not over.is_set():
            await asyncio.to_thread(raw.script_flush)
            flushes += 1
            await asyncio.sleep(0.002)

    flushing = asyncio.create_task(flush())
    ids = []
    for _ in range(150):
        ids.append((await app.submit(TYPE)).id)
        jobs = await asyncio.to_thread(bench.take)
        words = await asyncio.to_thread(bench.finish, *jobs)
        assert words == ["OK"]
    over.set()
    await flushing
    assert flushes > 10
    assert {(await app.job(i).info()).state for i in ids[::10]} == {State.SUCCEEDED}


async def test_a_cancelled_await_never_leaves_a_reply_behind(app: TaskQ) -> None:
    """A connection whose reply was not read must not answer the next call with it."""
    ids = [job.id for job in await asyncio.gather(*(app.submit(TYPE, n) for n in range(40)))]
    client = app.client()
    for round_ in range(60):
        tasks = [asyncio.create_task(client.job(i)) for i in ids]
        for _ in range(round_ % 12):
            await asyncio.sleep(0)
        for task in tasks[round_ % 2 :: 2]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for n, end in enumerate(ends):
            if not isinstance(end, asyncio.CancelledError):
                assert not isinstance(end, BaseException)
                assert (end.id, end.payload) == (ids[n], b"%d" % n)
    assert [(await client.job(i)).payload for i in ids] == [b"%d" % n for n in range(40)]


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
        await until(lambda: bench.field(_ulid(job), "watched"))
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
        await until(lambda job=job: bench.field(_ulid(job), "watched"))  # type: ignore[misc]
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
        bench.run(retry(bench.keys, [(_ulid(job), "")]))
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
    await until(lambda: raw.pubsub_numsub(Keys().queue(QUEUE).done_channel(_ulid(job)))[0][1] == 2)
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


def _ulid(job: JobHandle[Any]) -> str:
    return job.id.partition(":")[2]


def test_a_loop_for_each_call_does_not_pile_up_connections(app: TaskQ, redis_url: str) -> None:
    for _ in range(50):
        asyncio.run(app.submit("noop"))
    with redis.Redis.from_url(redis_url) as client:
        assert client.info("clients")["connected_clients"] < 12
    app._drop_clients_of_closed_loops()
