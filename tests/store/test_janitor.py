"""The janitor: rounds over all queues, each duty at its own pace, whatever is broken, early or late."""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from support.queue import Bench
from taskq.embedded import EmbeddedServer
from taskq.errors import TaskqError, Unavailable
from taskq.ids import UlidFactory
from taskq.janitor import PRUNE_ROUNDS, Janitor
from taskq.keys import Keys
from taskq.states import State
from taskq.store import AsyncStore

ulid = UlidFactory()
KEYS = Keys()


def janitor(store: AsyncStore, every_seconds: float = 60) -> Janitor:
    return Janitor(store, every_seconds=every_seconds, lease_seconds=1)


def queue(url: str, name: str) -> Bench:
    """A queue whose clock stands a minute in the past, so that what it does is overdue by the server's."""
    bench = Bench.at(url, name)
    bench.now = time.time() * 1000 - 60_000
    bench.store.know_queue(name)
    return bench


def lose_a_job(bench: Bench) -> str:
    one = ulid()
    bench.add(one)
    bench.take("lost")
    return one


async def test_a_round_serves_every_queue(redis_url: str, store: AsyncStore) -> None:
    a, b, c, d = (queue(redis_url, name) for name in "abcd")
    lost, due, late, old = lose_a_job(a), ulid(), ulid(), ulid()
    b.add(due, delay_ms=1000)
    c.add(late, expires_ms=1000)
    d.configure(succeeded_max=0)
    d.add(old)
    (claimed,) = d.take()
    d.configure(succeeded_max=1000)
    d.finish(claimed)
    d.configure(succeeded_max=0)
    done = await janitor(store).round()
    assert {duty: done[duty] for duty in ("reap", "promote", "expire", "trim")} == {
        "reap": 1,
        "promote": 1,
        "expire": 1,
        "trim": 1,
    }
    assert a.state(lost) == b.state(due) == State.QUEUED
    assert c.state(late) == State.FAILED
    assert d.state(old) is None


async def test_a_lost_job_is_claimed_by_another(redis_url: str, store: AsyncStore) -> None:
    bench = queue(redis_url, "q")
    one = lose_a_job(bench)
    await janitor(store).round()
    (again,) = bench.take("other")
    assert (again.ulid, again.lost) == (one, 1)


@pytest.mark.parametrize("key", ["leases", "dead", "holders", "scheduled", "config", "ticks"])
async def test_one_broken_queue_does_not_keep_the_others(
    redis_url: str, store: AsyncStore, raw: Any, key: str
) -> None:
    raw.set(f"taskq:{{broken}}:{key}", "text")
    store_queue = queue(redis_url, "zz")
    queue(redis_url, "broken").store.close()
    due = ulid()
    store_queue.add(due, delay_ms=1000)
    assert (await janitor(store).round())["promote"] >= 1
    assert store_queue.state(due) == State.QUEUED


async def test_a_broken_queue_is_told(
    redis_url: str, store: AsyncStore, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue(redis_url, "broken")
    raw.set("taskq:{broken}:leases", "text")
    with caplog.at_level(logging.ERROR, "taskq.janitor"):
        await janitor(store).round()
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert "broken" in caplog.text


async def test_foreign_names_in_the_registry_are_passed_over(
    redis_url: str, store: AsyncStore, raw: Any
) -> None:
    raw.sadd(KEYS.queues, b"\xff", "{}", "", "a b", "q\n")
    bench = queue(redis_url, "q")
    due = ulid()
    bench.add(due, delay_ms=1000)
    await janitor(store).round()
    assert bench.state(due) == State.QUEUED


async def test_a_registry_that_cannot_be_read_is_said(store: AsyncStore, raw: Any) -> None:
    raw.set(KEYS.queues, "text")
    with pytest.raises(TaskqError, match="taskq:queues"):
        await janitor(store).round()


async def test_queues_of_this_process_are_entered_again(store: AsyncStore, raw: Any) -> None:
    one = janitor(store)
    one.serve("mine", "too")
    await one.round()
    assert raw.smembers(KEYS.queues) == {b"mine", b"too"}
    raw.flushall()
    await one.round()
    assert raw.smembers(KEYS.queues) == {b"mine", b"too"}


# --- ticks --------------------------------------------------------------------------------------------


async def test_a_duty_just_done_is_left_alone(redis_url: str, store: AsyncStore) -> None:
    bench = queue(redis_url, "q")
    assert set(await janitor(store).round()) == {
        "overdue",
        "reap",
        "promote",
        "expire",
        "trim",
        "rollup",
        "bulk",
    }
    due = ulid()
    bench.add(due, delay_ms=1000)
    assert await janitor(store).round() == {}
    assert bench.state(due) == State.SCHEDULED


async def test_dead_workers_leave_the_list_now_and_then(store: AsyncStore, raw: Any) -> None:
    """Also where nobody ever looks at the workers: it must not grow with each that dies."""
    its = janitor(store)
    for _ in range(PRUNE_ROUNDS + 1):
        raw.zadd(KEYS.workers, {"dead": 1})
        await its.round()
        left = raw.zcard(KEYS.workers)
        assert left == (0 if its.rounds in (1, PRUNE_ROUNDS + 1) else 1), its.rounds


async def test_ticks_are_kept_per_duty(redis_url: str, store: AsyncStore, raw: Any) -> None:
    queue(redis_url, "q")
    await janitor(store).round()
    for duty in ("reap", "promote", "expire", "trim", "rollup", "bulk"):
        raw.hdel(KEYS.queue("q").ticks, f"tick:{duty}")
        assert set(await janitor(store).round()) == {duty}


async def test_some_duties_are_rarer(redis_url: str, store: AsyncStore, raw: Any) -> None:
    queue(redis_url, "q")
    one = janitor(store, every_seconds=10)
    await one.round()

    async def after(seconds: float) -> set[str]:
        ticks = raw.hgetall(KEYS.queue("q").ticks)
        older = {k: int(v) - int(seconds * 1000) for k, v in ticks.items() if b"tick:" in k}
        raw.hset(KEYS.queue("q").ticks, mapping=older)
        return set(await one.round())

    assert await after(8) == set()
    assert await after(2) == {"overdue", "reap", "promote", "expire", "bulk"}
    assert await after(40) == {"overdue", "reap", "promote", "expire", "trim", "bulk"}
    assert await after(600) == {"overdue", "reap", "promote", "expire", "trim", "rollup", "bulk"}


@pytest.mark.parametrize("tick", ["future", "nonsense", "inf", "nan", "", "-5", "1e400"])
async def test_a_tick_that_cannot_be_counts_as_old(
    redis_url: str, store: AsyncStore, raw: Any, tick: str
) -> None:
    bench = queue(redis_url, "q")
    await janitor(store).round()
    due = ulid()
    bench.add(due, delay_ms=1000)
    ahead = str(int(time.time() * 1000) + 10_000_000)
    raw.hset(KEYS.queue("q").ticks, "tick:promote", ahead if tick == "future" else tick)
    assert (await janitor(store).round())["promote"] == 1
    assert bench.state(due) == State.QUEUED
    assert await janitor(store).round() == {}


# --- for ever -----------------------------------------------------------------------------------------


async def until(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        await asyncio.sleep(0.005)


async def test_it_goes_on_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedServer() as server, caplog.at_level(logging.WARNING, "taskq.janitor"):
        store = AsyncStore.from_url(server.url, KEYS, retry_seconds=0.05)
        one = janitor(store, every_seconds=0.01)
        one.serve("q")
        running = asyncio.create_task(one.run())
        await until(lambda: one.rounds > 2)
        with redis.Redis.from_url(server.url) as raw:
            raw.delete(KEYS.queues)
            raw.set(KEYS.queues, "text")
            await until(lambda: "a round failed" in caplog.text)
            raw.delete(KEYS.queues)
        before = one.rounds
        await until(lambda: one.rounds > before)
        server.kill()
        await until(lambda: "not reachable" in caplog.text)
        server.start()
        before = one.rounds
        await until(lambda: one.rounds > before)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def test_a_round_says_that_the_server_is_gone() -> None:
    with EmbeddedServer() as server:
        store = AsyncStore.from_url(server.url, KEYS, retry_seconds=0.05)
        server.kill()
        with pytest.raises(Unavailable):
            await janitor(store).round()
        await store.close()


# --- memory -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


async def test_near_maxmemory_ended_jobs_go_early(small_server: EmbeddedServer) -> None:
    store = AsyncStore.from_url(small_server.url, KEYS)
    bench = Bench.at(small_server.url, "q")
    bench.now = None  # type: ignore[assignment]
    bench.store.know_queue("q")
    raw: Any = bench.redis
    one = janitor(store)
    await one.round()
    for state in ("succeeded", "cancelled", "failed"):
        ids = [ulid() for _ in range(10)]
        bench.add(*ids)
        if state == "cancelled":
            bench.cancel(*ids)
        else:
            jobs = bench.take("w1", 10)
            (bench.finish if state == "succeeded" else lambda *j: bench.fail(*j, max_attempts=1))(
                *jobs
            )

    def left() -> list[int]:
        return [int(raw.zcard(bench.keys.state(State(s)))) for s in ENDED]

    assert left() == [10, 10, 10]
    for share, expected in (
        (0.80, [10, 10, 10]),
        (0.915, [0, 10, 10]),
        (0.945, [0, 0, 10]),
        (0.97, [0, 0, 0]),
    ):
        raw.config_set("maxmemory", int(raw.info("memory")["used_memory"] / share))
        # The tick is young: memory does not wait for its turn.
        await one.round()
        assert left() == expected
    raw.config_set("maxmemory", 0)
    await store.close()
    bench.store.close()


ENDED = ("succeeded", "cancelled", "failed")


# --- outages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tried", [60.0, 1.0])
async def test_only_who_was_there_before_an_outage_is_patient(
    redis_url: str, store: AsyncStore, monkeypatch: pytest.MonkeyPatch, tried: float
) -> None:
    """Nobody was heard for twenty seconds, and a lease of fifteen ran out: a janitor that was trying all the
    while renews it, one that has only just started takes the job."""
    bench = Bench.at(redis_url, "q")
    bench.store.know_queue("q")
    one = ulid()
    bench.now = time.time() * 1000 - 20_000
    bench.add(one)
    bench.take("w1")
    bench.beat("w1", holds=1)
    its = Janitor(store, every_seconds=60, lease_seconds=15)
    its._began = time.monotonic() - tried
    done = await its.round()
    assert done["reap"] == (0 if tried > 20 else 1)
    assert bench.state(one) == (State.RUNNING if tried > 20 else State.QUEUED)
