"""What every test may use: one real server a process, emptied before each test that asks for it."""

import os
from collections.abc import Iterator

import pytest
import redis

from taskq.embedded import EmbeddedServer


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TASKQ_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A throw-away server on a unix socket, shared by the tests of this pytest process."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def redis_url(server: EmbeddedServer) -> str:
    """URL of the shared server, emptied."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server.url
