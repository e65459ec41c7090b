"""One connection for the calls of an event loop: whose answer is whose, and what becomes of it when the
connection, the server or the caller goes away. Under asyncio's own loop and under uvloop."""

import asyncio
import os
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.exceptions as rx
import trustme
import uvloop

from taskq import wire
from taskq.connection import connect_async
from taskq.embedded import EmbeddedServer

Go = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def go(request: pytest.FixtureRequest) -> Go:
    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(scenario, 30))

    return run


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[wire.Wire]:
    client = connect_async(url, **options)
    try:
        yield client.wire
    finally:
        await client.aclose()


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(URL, what came) of a server that answers ``+OK`` to the login and ``answer`` to the rest."""
    came: list[bytes] = []
    open_: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.add(writer)
        while data := await reader.read(65536):
            logins = data.count(b"SETINFO")
            writer.write(b"+OK\r\n" * logins if logins else answer(data))
            if not logins:
                came.append(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", came
    finally:
        server.close()
        for writer in open_:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await server.wait_closed()


def connections(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("clients")["connected_clients"]) - 1  # type: ignore[index]


@pytest.mark.parametrize(
    "value", [b"\x00\xff\r\n", "gr\u00fc\u00dfe", 7, -1, 2.5, b"", "x" * 3_000_000]
)
def test_values_arrive_as_they_are(go: Go, redis_url: str, value: Any) -> None:
    wanted = value if isinstance(value, bytes) else str(value).encode()

    async def scenario() -> None:
        async with opened(redis_url) as line:
            assert await line.ask("ECHO", value) == wanted

    go(scenario())


def test_each_gets_its_own_answer_over_one_connection(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as line:
            # Answers of a few bytes and of many reads.
            asked = [f"{i}:" + "x" * (i % 7) ** 6 for i in range(300)]
            assert await asyncio.gather(*(line.ask("ECHO", text) for text in asked)) == [
                text.encode() for text in asked
            ]
            assert connections(redis_url) == 1

    go(scenario())


def test_an_error_is_only_for_the_one_who_asked(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as line:
            a, b, c, d = await asyncio.gather(
                line.ask("ECHO", "a"),
                line.ask("EVALSHA", "0" * 40, 0),
                line.ask("NOSUCHCOMMAND"),
                line.ask("ECHO", "d"),
                return_exceptions=True,
            )
            assert (a, d) == (b"a", b"d")
            assert isinstance(b, rx.NoScriptError)
            assert type(c) is rx.ResponseError

    go(scenario())


@pytest.mark.parametrize("value", [None, [1], object()])
def test_what_has_no_form_is_refused_and_owes_nothing(go: Go, redis_url: str, value: Any) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as line:
            with pytest.raises(rx.DataError):
                await line.ask("ECHO", value)
            assert await line.ask("ECHO", "x") == b"x"

    go(scenario())


def test_whoever_gives_up_leaves_its_answer_to_nobody(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as line:
            await line.ask("PING")
            asked = [asyncio.create_task(line.ask("ECHO", i)) for i in range(100)]
            await asyncio.sleep(0)
            for task in asked[::3]:
                task.cancel()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for i, answer in enumerate(answers):
                if i % 3:
                    assert answer == str(i).encode()
                else:
                    assert isinstance(answer, asyncio.CancelledError)
            assert await line.ask("ECHO", "next") == b"next"
            assert connections(redis_url) == 1

    go(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_no_answer_is_ever_another_ones(go: Go, redis_url: str, seed: int) -> None:
    """Callers come, give up and are cut off in any order."""
    chance = random.Random(seed)

    async def scenario() -> None:
        outcomes = {"answered": 0, "gave up": 0, "lost": 0}

        async def caller(line: wire.Wire, n: int) -> None:
            for i in range(40):
                text = f"{n}.{i}" + "x" * chance.choice((0, 10, 100_000))
                if chance.random() < 0.05 and line.transport is not None:
                    asyncio.get_running_loop().call_soon(line.transport.abort)
                try:
                    async with asyncio.timeout(chance.choice((0.0005, 0.005, 5))):
                        assert await line.ask("ECHO", text) == text.encode()
                    outcomes["answered"] += 1
                except TimeoutError:
                    outcomes["gave up"] += 1
                except rx.ConnectionError:
                    outcomes["lost"] += 1

        async with opened(redis_url) as line:
            await asyncio.gather(*(caller(line, n) for n in range(20)))
        assert sum(outcomes.values()) == 800
        assert all(outcomes.values()), outcomes

    go(scenario())


def test_many_at_the_start_share_one_connection(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as line:
            first = asyncio.create_task(line.ask("PING"))
            await asyncio.sleep(0)
            rest = [asyncio.create_task(line.ask("ECHO", i)) for i in range(50)]
            await asyncio.sleep(0)
            # Who caused it to be opened does not take it along.
            first.cancel()
            assert await asyncio.gather(*rest) == [str(i).encode() for i in range(50)]
            assert connections(redis_url) == 1

    go(scenario())


def test_a_server_that_is_not_there_is_an_error_for_all_and_not_for_ever(go: Go) -> None:
    async def scenario() -> None:
        with EmbeddedServer() as server:
            url = server.url
        async with opened(url) as line:
            lost = await asyncio.gather(
                *(line.ask("PING") for _ in range(3)), return_exceptions=True
            )
            assert [type(error) for error in lost] == [rx.ConnectionError] * 3

    go(scenario())


def test_a_lost_connection_is_told_to_all_who_wait_and_made_anew(go: Go) -> None:
    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url) as line:
                await line.ask("PING")
                os.kill(server.pid, signal.SIGSTOP)
                waiting = [asyncio.create_task(line.ask("ECHO", i)) for i in range(10)]
                await asyncio.sleep(0)
                line.transport.abort()
                lost = await asyncio.gather(*waiting, return_exceptions=True)
                os.kill(server.pid, signal.SIGCONT)
                assert [type(error) for error in lost] == [rx.ConnectionError] * 10
                assert await line.ask("ECHO", "again") == b"again"

    go(scenario())


def test_an_answer_that_does_not_come_ends_the_connection(go: Go) -> None:
    """And what comes late is no answer to anybody."""

    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url, socket_timeout=0.3) as line:
                await line.ask("PING")
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    began = time.monotonic()
                    late = await asyncio.gather(
                        *(line.ask("ECHO", i) for i in range(5)), return_exceptions=True
                    )
                    assert [type(error) for error in late] == [rx.TimeoutError] * 5
                    assert 0.3 <= time.monotonic() - began < 5
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                assert await asyncio.gather(*(line.ask("ECHO", f"n{i}") for i in range(5))) == [
                    f"n{i}".encode() for i in range(5)
                ]

    go(scenario())


def test_a_write_that_stands_still_times_out_too(go: Go) -> None:
    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url, socket_timeout=0.3) as line:
                await line.ask("PING")
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    with pytest.raises(rx.TimeoutError):
                        await line.ask("ECHO", b"x" * 20_000_000)
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                assert await line.ask("ECHO", "x") == b"x"

    go(scenario())


def test_a_process_that_stood_still_takes_what_came_in_time(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url, socket_timeout=0.1) as line:
            await line.ask("PING")
            answer = asyncio.ensure_future(line.ask("ECHO", "in time"))
            await asyncio.sleep(0)
            # The process stands still: no event loop, no clock of its own.
            time.sleep(0.3)
            assert await answer == b"in time"

    go(scenario())


def test_the_clock_runs_for_the_oldest_answer(go: Go, redis_url: str) -> None:
    """One after the other for longer than the timeout, with one always under way: nobody is late."""

    async def scenario() -> None:
        async with opened(redis_url, socket_timeout=0.2) as line:
            until = time.monotonic() + 0.7
            pending = asyncio.ensure_future(line.ask("PING"))
            while time.monotonic() < until:
                following = asyncio.ensure_future(line.ask("PING"))
                await pending
                pending = following
            await pending
            assert connections(redis_url) == 1

    go(scenario())


def test_a_primary_that_became_a_replica_is_asked_for_anew(go: Go) -> None:
    async def scenario() -> None:
        refusal = b"-READONLY You can't write against a read only replica.\r\n"
        answers = [refusal, b"+OK\r\n"]
        async with answering(lambda _: answers.pop(0)) as (url, _), opened(url) as line:
            with pytest.raises(rx.ReadOnlyError):
                await line.ask("SET", "a", 1)
            before = line.transport
            assert await line.ask("SET", "a", 1) == b"OK"
            assert line.transport is not before

    go(scenario())


@pytest.mark.parametrize(
    "answer", [b"hello\r\n", b"+OK\r\n+one too many\r\n", b"$-7\r\n", b"*999999999999\r\n"]
)
def test_what_is_no_answer_ends_the_connection(go: Go, answer: bytes) -> None:
    async def scenario() -> None:
        answers = [answer, b"+good\r\n"]
        async with answering(lambda _: answers.pop(0)) as (url, came), opened(url) as line:
            first = await asyncio.gather(line.ask("GET", "a"), return_exceptions=True)
            assert first == [b"OK"] or isinstance(first[0], rx.ConnectionError)
            assert await line.ask("GET", "b") == b"good"
            assert len(came) == 2

    go(scenario())


def test_more_answers_than_there_is_room_for_are_not_owed(
    go: Go, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_OWED", 10)

    async def scenario() -> None:
        async with opened(redis_url) as line:
            await line.ask("PING")
            outcomes = await asyncio.gather(
                *(line.ask("ECHO", i) for i in range(12)), return_exceptions=True
            )
            assert outcomes[:10] == [str(i).encode() for i in range(10)]
            assert [type(error) for error in outcomes[10:]] == [rx.TimeoutError] * 2
            assert await line.ask("ECHO", "x") == b"x"

    go(scenario())


def test_closing_tells_those_who_wait_and_is_for_good(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        client = connect_async(redis_url)
        await client.wire.ask("PING")
        waiting = asyncio.create_task(client.wire.ask("PING"))
        await asyncio.sleep(0)
        await client.aclose()
        for asked in (waiting, client.wire.ask("PING")):
            with pytest.raises(rx.ConnectionError, match="closed"):
                await asked
        assert connections(redis_url) == 0

    go(scenario())


def test_closing_while_it_opens_leaves_nothing(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        for turns in range(12):
            client = connect_async(redis_url)
            asked = asyncio.create_task(client.wire.ask("PING"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await client.aclose()
            (outcome,) = await asyncio.gather(asked, return_exceptions=True)
            assert outcome == b"PONG" or isinstance(
                outcome, (rx.ConnectionError, asyncio.CancelledError)
            )
        assert connections(redis_url) == 0

    go(scenario())


def test_it_is_encrypted_where_the_url_says_so(
    go: Go, server: EmbeddedServer, tmp_path: Any
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    path = server.url.removeprefix("unix://").partition("?")[0]

    async def carry(
        reader: asyncio.StreamReader,
        write: Callable[[bytes], Any],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        while data := await reader.read(65536):
            write(data)
            await drain()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, out = await asyncio.open_unix_connection(path)
        there = asyncio.create_task(carry(reader, out.write, out.drain))
        here = asyncio.create_task(carry(back, writer.write, writer.drain))
        await asyncio.wait([there, here], return_when=asyncio.FIRST_COMPLETED)
        for task in (there, here):
            task.cancel()
        for stream in (out, writer):
            stream.close()
        await asyncio.gather(there, here, out.wait_closed(), return_exceptions=True)

    async def scenario() -> None:
        tls = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
        port = tls.sockets[0].getsockname()[1]
        async with opened(
            f"rediss://localhost:{port}/0", ssl_ca_certs=str(tmp_path / "ca.pem")
        ) as line:
            asked = [f"{i}:" + "x" * (i % 7) ** 6 for i in range(100)]
            assert await asyncio.gather(*(line.ask("ECHO", text) for text in asked)) == [
                text.encode() for text in asked
            ]
            assert line.transport.get_extra_info("ssl_object") is not None
        tls.close()
        await tls.wait_closed()

    go(scenario())
