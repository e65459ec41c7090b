"""Commands on the emptied server, and the queue behind them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.cli import Cli
from support.queue import Bench


@pytest.fixture
def cli(redis_url: str) -> Cli:
    return Cli(redis_url)


@pytest.fixture
def q(redis_url: str) -> Bench:
    made = Bench.at(redis_url, "default")
    made.now = None  # type: ignore[assignment]
    made.store.know_queue("default")
    return made


@pytest.fixture
def answering(q: Bench) -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Gives the next job of type mail to a function, in a thread that waits for it."""
    threads = []

    def start(answer: Callable[..., Any]) -> None:
        def work() -> None:
            q.redis.blpop([q.keys.wake("mail")], timeout=10)
            answer(*q.take())

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()
