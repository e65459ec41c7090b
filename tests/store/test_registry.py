"""What workers tell about themselves, and what is made of records that are gone or spoilt."""

import time
from dataclasses import replace
from typing import Any

import pytest

from taskq.keys import Keys
from taskq.registry import Registry, WorkerInfo, now_ms
from taskq.store import AsyncStore

KEYS = Keys()
ONE = WorkerInfo("w1", "host", 7, 6, "0.1", 1000, 2000, "running", ("a", "b"), ("mail",), 100, 3)


@pytest.fixture
def registry(store: AsyncStore) -> Registry:
    return Registry(store, ttl_seconds=60)


async def test_there_and_back(registry: Registry) -> None:
    assert await registry.workers() == []
    await registry.tell(ONE)
    assert await registry.workers() == [ONE]
    assert WorkerInfo.parse("w1", ONE.fields()) == ONE
    bare = WorkerInfo("w2", "", 0, 0, "", 0, 3000, "", (), (), 0, 0)
    await registry.tell(bare)
    assert await registry.workers() == [ONE, bare]


async def test_a_large_fleet_is_seen_whole(registry: Registry, raw: Any) -> None:
    """A queue whose workers are not among the first ones is served all the same."""
    pipe = raw.pipeline()
    for n in range(2500):
        pipe.zadd(KEYS.workers, {f"w{n}": n})
        if n % 2:
            pipe.hset(KEYS.worker(f"w{n}"), mapping=ONE.fields())
    pipe.execute()
    assert [worker.id for worker in await registry.workers()] == [
        f"w{n}" for n in range(1, 2500, 2)
    ]
    assert raw.zcard(KEYS.workers) == 1250


async def test_a_record_is_renewed_and_runs_out(registry: Registry, raw: Any) -> None:
    await registry.tell(ONE)
    await registry.tell(replace(ONE, busy=9, seen_at=4000))
    (worker,) = await registry.workers()
    assert (worker.busy, worker.seen_at) == (9, 4000)
    assert 59_000 < raw.pttl(KEYS.worker("w1")) <= 60_000
    raw.delete(KEYS.worker("w1"))
    assert await registry.workers() == []
    assert raw.zcard(KEYS.workers) == 0


async def test_a_second_look_is_one_round_trip_and_as_fresh_as_the_first(
    registry: Registry, raw: Any, round_trips: list[int]
) -> None:
    await registry.tell(ONE)
    await registry.tell(replace(ONE, id="w2"))
    await registry.workers()
    round_trips.clear()
    await registry.workers()
    assert round_trips == [3]
    # One went, one came, one changed.
    raw.delete(KEYS.worker("w1"))
    await registry.tell(replace(ONE, id="w2", busy=50))
    await registry.tell(replace(ONE, id="w3"))
    workers = {worker.id: worker.busy for worker in await registry.workers()}
    assert workers == {"w2": 50, "w3": 3}
    assert raw.zcard(KEYS.workers) == 2


async def test_one_may_be_forgotten(registry: Registry, raw: Any) -> None:
    await registry.tell(ONE)
    await registry.tell(replace(ONE, id="w2"))
    await registry.forget("w1")
    await registry.forget()
    assert [worker.id for worker in await registry.workers()] == ["w2"]
    assert raw.exists(KEYS.worker("w1")) == 0


async def test_those_that_are_gone_leave_the_index_without_a_look(
    registry: Registry, raw: Any
) -> None:
    raw.zadd(KEYS.workers, {f"gone{n}": n for n in range(250)})
    await registry.tell(ONE)
    assert await registry.prune() == 250
    assert raw.zrange(KEYS.workers, 0, -1) == [b"w1"]
    assert await registry.prune() == 0


async def test_an_index_of_the_wrong_type_is_left_alone(registry: Registry, raw: Any) -> None:
    raw.set(KEYS.workers, "text")
    assert await registry.prune() == 0
    assert raw.get(KEYS.workers) == b"text"


async def test_types_are_published(registry: Registry) -> None:
    assert await registry.types() == {}
    await registry.tell(ONE, {"mail": {"schema": {"type": "object"}}, "sms": None})
    assert await registry.types() == {"mail": {"schema": {"type": "object"}}, "sms": None}
    await registry.tell(ONE, {"mail": 2})
    assert await registry.types() == {"mail": 2, "sms": None}


async def test_spoilt_records_do_not_hide_the_others(registry: Registry, raw: Any) -> None:
    await registry.tell(ONE, {"mail": 1})
    await registry.tell(replace(ONE, id="w2"))
    await registry.tell(replace(ONE, id="w3"))
    raw.hset(KEYS.worker("w2"), mapping={"pid": "x", "slots": "1.5", "host": b"\xff"})
    raw.delete(KEYS.worker("w3"))
    raw.set(KEYS.worker("w3"), "text")
    raw.zadd(KEYS.workers, {b"\xff": 5})
    raw.hset(KEYS.types, "broken", "{")
    workers = {worker.id: worker for worker in await registry.workers()}
    assert workers["w1"] == ONE
    assert (workers["w2"].pid, workers["w2"].host) == (0, "\ufffd")
    assert (await registry.types())["mail"] == 1


async def test_keys_of_the_wrong_type_are_an_empty_answer(registry: Registry, raw: Any) -> None:
    raw.set(KEYS.workers, "text")
    raw.set(KEYS.types, "text")
    assert await registry.workers() == []
    assert await registry.types() == {}


def test_the_clock_of_records_is_in_milliseconds() -> None:
    assert abs(now_ms() - time.time() * 1000) < 1000
