"""Many calls at once over one async client: few connections, each in its turn, and none for ever."""

import asyncio
from typing import Any

import pytest

from taskq import calls, store
from taskq.errors import Unavailable
from taskq.keys import Keys
from taskq.store import MOST_CALLS, AsyncStore


async def test_a_thousand_at_once_share_a_few_connections(redis_url: str) -> None:
    crowd = AsyncStore.from_url(redis_url, Keys())
    keys = crowd.keys.queue("default")
    try:
        counted, read = await asyncio.gather(
            asyncio.gather(*(crowd.run(calls.counts(keys)) for _ in range(1000))),
            asyncio.gather(*(crowd.pipeline([("HLEN", keys.config)]) for _ in range(1000))),
        )
        assert len(counted) == len(read) == 1000
        info: Any = await crowd.redis.info("clients")
        assert info["connected_clients"] <= MOST_CALLS + 2
    finally:
        await crowd.close()
    assert not crowd.errors


async def test_who_gets_no_turn_is_told_so(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROOM_SECONDS", 0.05)
    crowd = AsyncStore.from_url(redis_url, Keys())
    held = asyncio.get_running_loop().create_future()

    async def silent(*_: Any) -> Any:
        return await held

    answering, crowd._ask = crowd._ask, silent
    keys = crowd.keys.queue("default")
    stuck = [asyncio.create_task(crowd.run(calls.counts(keys))) for _ in range(MOST_CALLS)]
    try:
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as refused:
            await crowd.run(calls.counts(keys))
        assert refused.value.reason == "timeout"
        # Those who were given up leave their places.
        for call in stuck:
            call.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        crowd._ask = answering
        await crowd.run(calls.counts(keys))
    finally:
        await crowd.close()
