"""The server that handlers call."""

from collections.abc import AsyncIterator

import pytest

from support.web import Server


@pytest.fixture
async def web() -> AsyncIterator[Server]:
    started = Server()
    await started.start()
    yield started
    await started.stop()
