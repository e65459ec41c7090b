"""Commands that go over the wire in one piece, and those that a store sends around it."""

import asyncio
import functools
import time
from typing import Any

import pytest
import redis.exceptions as rx

from support.faults import stopped
from support.wires import Go, answering, connections, opened
from taskq.connection import MOST_ON_WIRE, connect_async, pipelined
from taskq.embedded import EmbeddedServer
from taskq.errors import TaskqError, Unavailable
from taskq.keys import Keys
from taskq.store import AsyncStore


def test_answers_come_in_their_places_and_so_do_errors(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            before, all_, after, none = await asyncio.gather(
                calls.ask("ECHO", "before"),
                calls.ask_all([("ECHO", "a"), ("NOSUCHCOMMAND",), ("ECHO", ""), ("GET", "no")]),
                calls.ask_all([("ECHO", "after")]),
                calls.ask_all([]),
            )
            assert (before, after, none) == (b"before", [b"after"], [])
            assert isinstance(all_[1], rx.ResponseError)
            assert [all_[0], *all_[2:]] == [b"a", b"", None]
            assert connections(redis_url) == 1

    go(scenario())


def test_what_has_no_form_keeps_all_from_being_sent(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            with pytest.raises(rx.DataError):
                await calls.ask_all([("SET", "a", "1"), ("SET", "b", None)])
            assert await calls.ask_all([("EXISTS", "a"), ("ECHO", "x")]) == [0, b"x"]

    go(scenario())


def test_whoever_gives_up_leaves_all_of_its_answers_to_nobody(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            await calls.ask("PING")
            given_up = asyncio.create_task(calls.ask_all([("ECHO", "a"), ("NOSUCHCOMMAND",)]))
            await asyncio.sleep(0)
            given_up.cancel()
            assert await calls.ask_all([("ECHO", "b"), ("ECHO", "c")]) == [b"b", b"c"]
            assert given_up.cancelled()
            assert connections(redis_url) == 1

    go(scenario())


def test_a_connection_that_breaks_amid_the_answers_is_one_error(go: Go) -> None:
    async def scenario() -> None:
        answers = [b"+one\r\n+tw", b"+1\r\n+2\r\n+3\r\n"]
        async with (
            answering(lambda _: answers.pop(0)) as (url, came),
            opened(url, socket_timeout=0.2) as calls,
        ):
            commands = [("GET", "a"), ("GET", "b"), ("GET", "c")]
            with pytest.raises(rx.TimeoutError):
                await calls.ask_all(commands)
            assert await calls.ask_all(commands) == [b"1", b"2", b"3"]
            assert len(came) == 2

    go(scenario())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_primary_that_became_a_replica_is_asked_for_anew(go: Go, place: int) -> None:
    """Who asked gets all answers all the same, wherever among them the refusal stands."""

    async def scenario() -> None:
        replies = [b"+1\r\n", b"+1\r\n"]
        replies.insert(place, b"-READONLY You can't write against a read only replica.\r\n")
        answers = [b"".join(replies), b"+OK\r\n"]
        async with answering(lambda _: answers.pop(0)) as (url, _), opened(url) as calls:
            got = await calls.ask_all([("GET", "a"), ("SET", "a", 1), ("GET", "a")])
            kinds = [bytes, bytes]
            kinds.insert(place, rx.ReadOnlyError)
            assert [type(reply) for reply in got] == kinds
            before = calls.transport
            assert await calls.ask("SET", "a", 1) == b"OK"
            assert calls.transport is not before

    go(scenario())


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (b"-LOADING Redis is loading the dataset in memory", rx.BusyLoadingError),
        (b"-NOAUTH Authentication required.", rx.AuthenticationError),
    ],
)
async def test_what_is_about_the_connection_is_raised_on_all_ways(
    refusal: bytes, error: type[Exception]
) -> None:
    """A server that is loading must not look like one in which nothing is."""
    async with answering(lambda _: refusal + b"\r\n+x\r\n") as (url, _):
        client = connect_async(url)
        try:
            for ask in (client.ask_all, functools.partial(pipelined, client)):
                with pytest.raises(error):
                    await ask([("GET", "a"), ("GET", "b")])
            # The answers that were left are nobody else's.
            with pytest.raises(error):
                await client.ask_all([("GET", "c"), ("GET", "d")])
        finally:
            await client.aclose()


async def test_reads_wait_for_a_server_that_is_loading() -> None:
    loading = [b"-LOADING Redis is loading the dataset in memory\r\n+x\r\n"] * 3
    async with answering(lambda _: loading.pop() if loading else b"+a\r\n+b\r\n") as (url, _):
        store = AsyncStore.from_url(url, Keys(), retry_seconds=10)
        try:
            assert await store.pipeline([("GET", "a"), ("GET", "b")]) == [b"a", b"b"]
            assert store.errors == {"loading": 3}
        finally:
            await store.close()


def test_answers_that_keep_coming_are_not_late(go: Go) -> None:
    """However long it takes until the last one is there."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            for _ in range(data.count(b"SETINFO")):
                writer.write(b"+OK\r\n")
            for i in range(data.count(b"GET")):
                await asyncio.sleep(0.1)
                writer.write(b"+%d\r\n" % i)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        async with opened(url, socket_timeout=0.5) as calls:
            every, last = await asyncio.gather(
                calls.ask_all([("GET", i) for i in range(9)]), calls.ask("GET", "x")
            )
            assert every == [b"%d" % i for i in range(9)]
            assert last in (b"0", b"9")
        server.close()
        await server.wait_closed()

    go(scenario())


@pytest.mark.parametrize("n", [1, MOST_ON_WIRE + 1])
async def test_a_client_that_is_closed_opens_nothing(redis_url: str, n: int) -> None:
    closed = AsyncStore.from_url(redis_url, Keys(), retry_seconds=0)
    await closed.pipeline([("PING",)])
    await closed.close()
    with pytest.raises(Unavailable, match="closed"):
        await closed.pipeline([("PING",)] * n)
    with pytest.raises(Unavailable, match="closed"):
        await closed.block("BLPOP", "nothing", 1)
    assert connections(redis_url) == 0


_FORMS: list[tuple[Any, ...]] = [
    ("TIME",),
    ("INFO", "server"),
    ("SMEMBERS", "set"),
    ("SISMEMBER", "set", "a"),
    ("SSCAN", "set", 0, "COUNT", 10),
    ("HGETALL", "hash"),
    ("HMGET", "hash", "a", "no"),
    ("HSCAN", "hash", 0, "COUNT", 10),
    ("HGETALL", "no"),
    ("ZRANGE", "zset", 0, -1, "WITHSCORES"),
    ("ZSCORE", "zset", "a"),
    ("SCAN", 0, "MATCH", "zset", "COUNT", 1000),
    ("TYPE", "zset"),
    ("PTTL", "zset"),
    ("XRANGE", "stream", "-", "+"),
    ("XINFO", "STREAM", "stream"),
    ("EXISTS", "no"),
    ("CONFIG", "GET", "appendonly", "appendfsync"),
    ("HGETALL", "zset"),
    ("PEXPIRE", "set", 100_000),
]


async def _fill(client: Any) -> None:
    await client.sadd("set", "a")
    await client.hset("hash", "a", 1)
    await client.zadd("zset", {"a": 1.5})
    await client.xadd("stream", {"a": 1}, id="1-1")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_answers_have_the_form_that_a_pipeline_of_the_client_gives_them(
    server: EmbeddedServer, redis_url: str, protocol: int
) -> None:
    joint = "&" if "?" in redis_url else "?"
    client = connect_async(f"{redis_url}{joint}protocol={protocol}")
    try:
        await _fill(client)
        for command in _FORMS:
            if command[0] in ("TIME", "INFO"):  # these change
                (ours,), (theirs,) = (
                    await client.ask_all([command]),
                    await pipelined(client, [command]),
                )
                assert type(ours) is type(theirs)
                assert len(ours) == len(theirs)
                continue
            (ours,), (theirs,) = await client.ask_all([command]), await pipelined(client, [command])
            assert (type(ours), str(ours)) == (type(theirs), str(theirs)), command
    finally:
        await client.aclose()


async def test_very_many_at_once_hold_up_nobody_on_the_wire(redis_url: str) -> None:
    client = connect_async(redis_url)
    try:
        for n, used in ((MOST_ON_WIRE, 1), (MOST_ON_WIRE + 1, 2)):
            answers = await client.ask_all([("ECHO", i) for i in range(n)])
            assert answers == [str(i).encode() for i in range(n)]
            assert connections(redis_url) == used
    finally:
        await client.aclose()


async def test_what_blocks_holds_up_nobody(store: AsyncStore) -> None:
    blocking = asyncio.create_task(store.block("BLPOP", "nothing", 20))
    began = time.monotonic()
    try:
        for _ in range(20):
            assert await store.pipeline([("ECHO", "x")]) == [b"x"]
        assert time.monotonic() - began < 10
        assert not blocking.done()
    finally:
        blocking.cancel()
        await asyncio.gather(blocking, return_exceptions=True)
    await store.pipeline([("SET", "text", "x")])
    with pytest.raises(TaskqError, match="WRONGTYPE"):
        await store.block("BLPOP", "text", 1)


async def test_reads_are_tried_again_and_counted() -> None:
    with EmbeddedServer() as server:
        url = server.url
        store = AsyncStore.from_url(url, Keys(), socket_timeout=0.2, retry_seconds=10)
        try:
            await store.pipeline([("PING",)])
            with stopped(server.pid):
                reading = asyncio.create_task(store.pipeline([("ECHO", "x")]))
                while not store.errors["timeout"]:
                    await asyncio.sleep(0.01)
            assert await reading == [b"x"]
        finally:
            await store.close()
    gone = AsyncStore.from_url(url, Keys(), retry_seconds=0)
    with pytest.raises(Unavailable) as refused:
        await gone.pipeline([("ECHO", "x")])
    assert refused.value.reason == "connection"
    await gone.close()
