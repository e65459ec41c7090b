"""Submitting while the server is away, silent, slow, or loses answers."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from support.clients import QUEUE, TYPE, ulid, ulid_of
from support.faults import stopped
from support.proxy import Proxy
from support.queue import Bench
from taskq import State, TaskQ, calls
from taskq.client import AsyncClient
from taskq.embedded import EmbeddedServer
from taskq.errors import Unavailable
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.store import AsyncStore, Store, retry_delay

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
        with stopped(server.pid):
            began = time.monotonic()
            large = [JobSpec(ulid(), TYPE, b'"%s"' % (b"x" * 900_000)) for _ in range(12)]
            ends = await asyncio.gather(
                *(client.submit("q", spec) for spec in (*large, JobSpec(ulid(), TYPE))),
                return_exceptions=True,
            )
            assert {type(end) for end in ends} == {Unavailable}
            assert time.monotonic() - began < 4
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
        with stopped(server.pid):
            waiting = [asyncio.create_task(app.submit(TYPE)) for _ in range(1200)]
            for _ in range(3):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await app.close()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(end) for end in ends} == {Unavailable}


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
    assert bench.line() == [ulid_of(job) for job in jobs]
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
