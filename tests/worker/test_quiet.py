"""A worker that is asked, over Redis, to be quiet or to stop."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import probe
from support.workers import Site, site, until
from taskq.embedded import EmbeddedServer
from taskq.errors import WorkerNotFound
from taskq.inspector import Inspector
from taskq.keys import Keys
from taskq.position import position
from taskq.registry import WorkerInfo
from taskq.steering import tell_worker
from taskq.store import AsyncStore


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    with EmbeddedServer() as server, site(server, tmp_path) as place:
        yield place


async def asked(place: Site, action: Any) -> Any:
    store = AsyncStore.from_url(place.server.url, Keys())
    try:
        return await action(store)
    finally:
        await store.close()


async def workers(place: Site) -> list[WorkerInfo]:
    found: list[WorkerInfo] = await asked(place, lambda store: Inspector(store).workers())
    return found


async def until_workers(place: Site, n: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if len(await workers(place)) == n:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"there are not {n} workers: {await workers(place)}")


async def until_state(place: Site, state: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if {worker.state for worker in await workers(place)} == {state}:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"no worker is {state}: {await workers(place)}")


async def test_a_quiet_worker_finishes_what_it_has_and_claims_no_more(place: Site) -> None:
    worker = place.worker("-c", "5", "--processes", "2")
    held = probe.gated.enqueue_sync(place.gate())
    until(lambda: place.ledger.starts(), 10, "it runs")
    await until_workers(place, 2)
    one, _ = await workers(place)
    told = await asked(place, lambda store: tell_worker(store, one.id, "quiet"))
    assert len(told) == 2, "all processes of the same supervisor"
    await until_state(place, "quiet")
    late = probe.echo.enqueue_sync(1)
    place.open_gate()
    assert held.result_sync(10) == "done"
    why = await asked(place, lambda store: position(Inspector(store), late.id))
    assert why.reason.code == "no_worker"
    assert place.state(late.id) == "queued"
    # A process that is started anew is quiet from its start on.
    first = worker.children()
    held_by = next(w for w in await workers(place))
    os.kill(held_by.pid, signal.SIGKILL)
    until(lambda: worker.children() and worker.children() != first, 10, "another is started")
    await until_workers(place, 2)
    await until_state(place, "quiet")
    assert place.state(late.id) == "queued"
    place.worker("-c", "1")
    assert late.result_sync(10) == 1
    assert not place.findings()


async def test_a_stopped_worker_ends_as_by_sigterm(place: Site) -> None:
    worker = place.worker("-c", "5", "--grace", "0.2")
    held = probe.gated.enqueue_sync(place.gate("never"))
    until(lambda: place.ledger.starts(), 10, "it runs")
    (one,) = await workers(place)
    await asked(place, lambda store: tell_worker(store, f"{one.host}:{one.pid}", "stop"))
    assert worker.process.wait(10) == 0
    info = held.info_sync()
    assert (str(info.state), info.failures, info.crashes, info.lost) == ("queued", 0, 0, 0)
    assert await workers(place) == []
    assert not place.findings()


async def test_a_quiet_worker_can_still_be_stopped(place: Site) -> None:
    worker = place.worker("-c", "5")
    (one,) = await workers(place)
    await asked(place, lambda store: tell_worker(store, one.id, "quiet"))
    await until_state(place, "quiet")
    await asked(place, lambda store: tell_worker(store, one.id, "stop"))
    assert worker.process.wait(10) == 0


async def test_nobody_is_told_that_is_not_there(place: Site) -> None:
    with pytest.raises(WorkerNotFound):
        await asked(place, lambda store: tell_worker(store, "h:1:2", "quiet"))
    keys = place.app.sync_client().store.redis.keys("taskq:worker:*")
    assert keys == []


async def test_a_wish_whose_nudge_is_lost_is_heard_with_the_next_beat(place: Site) -> None:
    place.worker("-c", "5")
    (one,) = await workers(place)
    redis: Any = place.app.sync_client().store.redis
    redis.hset(f"taskq:worker:{one.id}", "wish", "quiet")
    await until_state(place, "quiet")
