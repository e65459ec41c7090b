"""An answer leaves as one write, in its order, whatever becomes of the connection."""

import asyncio
from typing import Any

import pytest

from taskq_api.protocol import JOINED_BYTES, _Joiner

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Recorder:
    """A transport that only notes what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def abort(self) -> None:
        self.told.append("abort")
        self.closing = True


@pytest.fixture
async def pair() -> tuple[_Joiner, Recorder]:
    recorder: Any = Recorder()
    return _Joiner(recorder, asyncio.get_running_loop()), recorder


async def test_head_and_body_are_one_write(pair: tuple[_Joiner, Recorder]) -> None:
    joined, recorder = pair
    for _ in range(2):
        joined.write(HEAD)
        joined.write(b"body")
    assert recorder.told == [HEAD + b"body"] * 2
    await asyncio.sleep(0)
    assert len(recorder.told) == 2


async def test_a_head_alone_goes_in_the_next_turn(pair: tuple[_Joiner, Recorder]) -> None:
    """That of a stream whose first event is far."""
    joined, recorder = pair
    joined.write(HEAD)
    assert recorder.told == []
    await asyncio.sleep(0)
    assert recorder.told == [HEAD]
    joined.write(b"later")
    assert recorder.told == [HEAD, b"later"]


async def test_a_large_body_is_not_copied(pair: tuple[_Joiner, Recorder]) -> None:
    joined, recorder = pair
    body = b"x" * JOINED_BYTES
    joined.write(HEAD)
    joined.write(body)
    assert recorder.told == [HEAD, body]
    assert recorder.told[1] is body


async def test_what_only_looks_like_a_head_keeps_its_place(pair: tuple[_Joiner, Recorder]) -> None:
    joined, recorder = pair
    for data in (HEAD, HEAD, HEAD, b"end"):
        joined.write(data)
    assert b"".join(recorder.told) == HEAD * 3 + b"end"


async def test_a_close_comes_after_the_head(pair: tuple[_Joiner, Recorder]) -> None:
    joined, recorder = pair
    joined.write(HEAD)
    joined.close()
    await asyncio.sleep(0)
    assert recorder.told == [HEAD, "close"]


async def test_nothing_is_written_to_what_was_lost_meanwhile(
    pair: tuple[_Joiner, Recorder],
) -> None:
    joined, recorder = pair
    joined.write(HEAD)
    joined.abort()
    await asyncio.sleep(0)
    assert recorder.told == ["abort"]
