"""A store over the emptied server, and a plain client to look behind it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from taskq.keys import Keys
from taskq.store import AsyncStore


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[AsyncStore]:
    store = AsyncStore.from_url(redis_url, Keys())
    yield store
    await store.close()


@pytest.fixture
def raw(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client
