"""One application a test, and a worker that runs its jobs in this process when asked to."""

from collections.abc import AsyncIterator

import pytest

from taskq import TaskQ
from taskq.testing import InlineWorker, running


@pytest.fixture
def app() -> TaskQ:
    return TaskQ()


@pytest.fixture
async def worker(app: TaskQ) -> AsyncIterator[InlineWorker]:
    async with running(app) as worker:
        yield worker
