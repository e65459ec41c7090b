"""A store over the emptied server, a plain client to look behind it, and both kinds of event loops."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any

import pytest
import redis
import uvloop

from support.wires import Go
from taskq.keys import Keys
from taskq.store import AsyncStore


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[AsyncStore]:
    store = AsyncStore.from_url(redis_url, Keys())
    yield store
    await store.close()


@pytest.fixture
def round_trips(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands went out together, for each pipeline of the store."""
    sent: list[int] = []
    plain = store.pipeline

    async def counting(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        sent.append(len(commands))
        return await plain(commands)

    monkeypatch.setattr(store, "pipeline", counting)
    return sent


@pytest.fixture
def raw(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def go(request: pytest.FixtureRequest) -> Go:
    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(scenario, 30))

    return run
