"""All interleavings of a small world, as far as the time allows."""

import pytest

from support.smallscope import Explorer


def _explore(redis_url: str, seconds: float) -> None:
    explorer = Explorer(redis_url, seconds)
    try:
        explorer.explore()
    finally:
        print(
            f"{explorer.states} states, {explorer.steps} steps, depth {explorer.depth}, "
            f"{explorer.walks} walks of 20 more, {explorer.drained} drained"
        )
        explorer.close()
    assert explorer.states > 200
    assert explorer.drained > 5


def test_every_interleaving(redis_url: str) -> None:
    """Two jobs, two workers, janitor, operator; each call in time, again and late: 8 s of it."""
    _explore(redis_url, 8)


@pytest.mark.slow_fault
def test_every_interleaving_for_longer(redis_url: str) -> None:
    """The same for as long as make chaos gives it."""
    _explore(redis_url, 60)
