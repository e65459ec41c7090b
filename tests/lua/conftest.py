"""The queue that most tests of scripts work on."""

import pytest

from support.queue import Bench


@pytest.fixture
def bench(redis_url: str) -> Bench:
    """A queue whose clock the test moves."""
    return Bench.at(redis_url)
