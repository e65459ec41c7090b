"""An application on the emptied server, and a worker's side of its queue."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from support.clients import QUEUE
from support.queue import Bench
from taskq import TaskQ


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


@pytest.fixture
def raw(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client
