"""The rate of an API key: so many requests at once, refilled evenly, by the server's clock."""

from typing import Any

import pytest
import redis

from taskq import calls
from taskq.keys import Keys
from taskq.store import Store

BUCKET = "taskq:rate:k"
T0 = 1_750_000_000_000.0


@pytest.fixture
def store(redis_url: str) -> Any:
    store = Store.from_url(redis_url, Keys())
    yield store
    store.close()


def take(store: Store, now: float | None, requests: int = 10, period_ms: int = 1000) -> float:
    return store.run(calls.throttle(BUCKET, requests, period_ms, now=now))


def test_so_many_at_once_and_then_evenly(store: Store) -> None:
    assert [take(store, T0) for _ in range(10)] == [0] * 10
    assert take(store, T0) == pytest.approx(0.1)
    assert take(store, T0 + 99) > 0
    assert take(store, T0 + 100) == 0
    assert take(store, T0 + 100) > 0
    assert [take(store, T0 + 1_100) for _ in range(11)] == [0] * 10 + [pytest.approx(0.1)]


def test_never_more_than_the_rate_over_any_time(store: Store) -> None:
    """A client that tries every 7 ms for 20 s gets what there was at first, and the rate."""
    passed = sum(take(store, T0 + at) == 0 for at in range(0, 20_000, 7))
    assert passed in (209, 210)


def test_a_refused_request_costs_nothing(store: Store) -> None:
    for _ in range(10):
        take(store, T0)
    for _ in range(100):
        assert take(store, T0) > 0
    assert take(store, T0 + 100) == 0


def test_leaves_nothing_behind(store: Store) -> None:
    take(store, None, 1, 50)
    left = store.redis.pttl(BUCKET)
    assert isinstance(left, int)
    assert 0 < left <= 50


@pytest.mark.parametrize("stored", ["9e99", "nonsense", "inf", "nan", "-5", str(T0 + 10**9)])
def test_what_a_hand_or_a_clock_wrote_shuts_nobody_out(store: Store, stored: str) -> None:
    store.redis.set(BUCKET, stored)
    assert [take(store, T0) for _ in range(11)] == [0] * 10 + [pytest.approx(0.1)]


def test_heals_a_key_of_another_type(store: Store) -> None:
    store.redis.lpush(BUCKET, "x")
    assert take(store, T0) == 0
    assert store.redis.type(BUCKET) == b"string"


def test_works_while_memory_is_full(store: Store) -> None:
    try:
        store.redis.config_set("maxmemory", 1)
        assert take(store, None) == 0
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            store.redis.set("x", 1)
    finally:
        store.redis.config_set("maxmemory", 0)
