"""One connection for the calls of an event loop: whose answer is whose, and what becomes of it when the
connection, the server or the caller goes away. Under asyncio's own loop and under uvloop."""

import asyncio
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.exceptions as rx
import trustme

from support.faults import stopped
from support.wires import Go, answering, connections, opened
from taskq import calls as scripts
from taskq import wire
from taskq.connection import connect_async
from taskq.embedded import EmbeddedServer
from taskq.errors import Unavailable
from taskq.keys import Keys
from taskq.store import AsyncStore


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """(what a server for localhost needs, the file by which clients trust it)."""
    authority = trustme.CA()
    file = tmp_path_factory.mktemp("certificates") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context, str(file)


@pytest.mark.parametrize(
    "value", [b"\x00\xff\r\n", "gr\u00fc\u00dfe", 7, -1, 2.5, b"", "x" * 3_000_000]
)
def test_values_arrive_as_they_are(go: Go, redis_url: str, value: Any) -> None:
    wanted = value if isinstance(value, bytes) else str(value).encode()

    async def scenario() -> None:
        async with opened(redis_url) as calls:
            assert await calls.ask("ECHO", value) == wanted

    go(scenario())


def test_each_gets_its_own_answer_over_one_connection(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            # Answers of a few bytes and of many reads.
            asked = [f"{i}:" + "x" * (i % 7) ** 6 for i in range(300)]
            assert await asyncio.gather(*(calls.ask("ECHO", text) for text in asked)) == [
                text.encode() for text in asked
            ]
            assert connections(redis_url) == 1

    go(scenario())


def test_an_error_is_only_for_the_one_who_asked(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            a, b, c, d = await asyncio.gather(
                calls.ask("ECHO", "a"),
                calls.ask("EVALSHA", "0" * 40, 0),
                calls.ask("NOSUCHCOMMAND"),
                calls.ask("ECHO", "d"),
                return_exceptions=True,
            )
            assert (a, d) == (b"a", b"d")
            assert isinstance(b, rx.NoScriptError)
            assert type(c) is rx.ResponseError

    go(scenario())


@pytest.mark.parametrize("value", [None, [1], object()])
def test_what_has_no_form_is_refused_and_owes_nothing(go: Go, redis_url: str, value: Any) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            with pytest.raises(rx.DataError):
                await calls.ask("ECHO", value)
            assert await calls.ask("ECHO", "x") == b"x"

    go(scenario())


def test_whoever_gives_up_leaves_its_answer_to_nobody(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            await calls.ask("PING")
            asked = [asyncio.create_task(calls.ask("ECHO", i)) for i in range(100)]
            await asyncio.sleep(0)
            for task in asked[::3]:
                task.cancel()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for i, answer in enumerate(answers):
                if i % 3:
                    assert answer == str(i).encode()
                else:
                    assert isinstance(answer, asyncio.CancelledError)
            assert await calls.ask("ECHO", "next") == b"next"
            assert connections(redis_url) == 1

    go(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_no_answer_is_ever_another_ones(go: Go, redis_url: str, seed: int) -> None:
    """Callers come, give up and are cut off in any order."""
    chance = random.Random(seed)

    async def scenario() -> None:
        outcomes = {"answered": 0, "gave up": 0, "lost": 0}

        async def ask(calls: wire.Wire, text: str) -> None:
            if chance.random() < 0.5:
                assert await calls.ask("ECHO", text) == text.encode()
                return
            several = [f"{i}:{text}" for i in range(chance.randint(1, 5))]
            assert await calls.ask_all([("ECHO", one) for one in several]) == [
                one.encode() for one in several
            ]

        async def caller(calls: wire.Wire, n: int) -> None:
            for i in range(40):
                text = f"{n}.{i}" + "x" * chance.choice((0, 10, 100_000))
                if chance.random() < 0.05 and calls.transport is not None:
                    asyncio.get_running_loop().call_soon(calls.transport.abort)
                try:
                    async with asyncio.timeout(chance.choice((0.0005, 0.005, 5))):
                        await ask(calls, text)
                    outcomes["answered"] += 1
                except TimeoutError:
                    outcomes["gave up"] += 1
                except rx.ConnectionError:
                    outcomes["lost"] += 1

        async with opened(redis_url) as calls:
            await asyncio.gather(*(caller(calls, n) for n in range(20)))
        assert sum(outcomes.values()) == 800
        assert all(outcomes.values()), outcomes

    go(scenario())


def test_many_at_the_start_share_one_connection(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url) as calls:
            first = asyncio.create_task(calls.ask("PING"))
            await asyncio.sleep(0)
            rest = [asyncio.create_task(calls.ask("ECHO", i)) for i in range(50)]
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
        async with opened(url) as calls:
            lost = await asyncio.gather(
                *(calls.ask("PING") for _ in range(3)), return_exceptions=True
            )
            assert [type(error) for error in lost] == [rx.ConnectionError] * 3

    go(scenario())


def test_a_lost_connection_is_told_to_all_who_wait_and_made_anew(go: Go) -> None:
    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url) as calls:
                await calls.ask("PING")
                with stopped(server.pid):
                    waiting = [asyncio.create_task(calls.ask("ECHO", i)) for i in range(10)]
                    await asyncio.sleep(0)
                    calls.transport.abort()
                    lost = await asyncio.gather(*waiting, return_exceptions=True)
                assert [type(error) for error in lost] == [rx.ConnectionError] * 10
                assert await calls.ask("ECHO", "again") == b"again"

    go(scenario())


def test_an_answer_that_does_not_come_ends_the_connection(go: Go) -> None:
    """And what comes late is no answer to anybody."""

    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url, socket_timeout=0.3) as calls:
                await calls.ask("PING")
                with stopped(server.pid):
                    began = time.monotonic()
                    late = await asyncio.gather(
                        *(calls.ask("ECHO", i) for i in range(5)), return_exceptions=True
                    )
                    assert [type(error) for error in late] == [rx.TimeoutError] * 5
                    assert 0.3 <= time.monotonic() - began < 5
                assert await asyncio.gather(*(calls.ask("ECHO", f"n{i}") for i in range(5))) == [
                    f"n{i}".encode() for i in range(5)
                ]

    go(scenario())


def test_a_write_that_stands_still_times_out_too(go: Go) -> None:
    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url, socket_timeout=0.3) as calls:
                await calls.ask("PING")
                with stopped(server.pid), pytest.raises(rx.TimeoutError):
                    await calls.ask("ECHO", b"x" * 20_000_000)
                assert await calls.ask("ECHO", "x") == b"x"

    go(scenario())


def test_a_process_that_stood_still_takes_what_came_in_time(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        async with opened(redis_url, socket_timeout=0.1) as calls:
            await calls.ask("PING")
            answer = asyncio.ensure_future(calls.ask("ECHO", "in time"))
            await asyncio.sleep(0)
            over = time.monotonic() + 0.15
            # The loop stands still: the answer comes, and then its time is over.
            select.select([calls.transport.get_extra_info("socket")], [], [], 5)
            while time.monotonic() < over:
                pass
            assert await answer == b"in time"

    go(scenario())


def test_the_clock_runs_for_the_oldest_answer(go: Go, redis_url: str) -> None:
    """One after the other for longer than the timeout, with one always under way: nobody is late."""

    async def scenario() -> None:
        async with opened(redis_url, socket_timeout=0.2) as calls:
            until = time.monotonic() + 0.7
            pending = asyncio.ensure_future(calls.ask("PING"))
            while time.monotonic() < until:
                following = asyncio.ensure_future(calls.ask("PING"))
                await pending
                pending = following
            await pending
            assert connections(redis_url) == 1

    go(scenario())


def test_a_primary_that_became_a_replica_is_asked_for_anew(go: Go) -> None:
    async def scenario() -> None:
        refusal = b"-READONLY You can't write against a read only replica.\r\n"
        answers = [refusal, b"+OK\r\n"]
        async with answering(lambda _: answers.pop(0)) as (url, _), opened(url) as calls:
            with pytest.raises(rx.ReadOnlyError):
                await calls.ask("SET", "a", 1)
            before = calls.transport
            assert await calls.ask("SET", "a", 1) == b"OK"
            assert calls.transport is not before

    go(scenario())


@pytest.mark.parametrize(
    "answer", [b"hello\r\n", b"+OK\r\n+one too many\r\n", b"$-7\r\n", b"*999999999999\r\n"]
)
def test_what_is_no_answer_ends_the_connection(go: Go, answer: bytes) -> None:
    async def scenario() -> None:
        answers = [answer, b"+good\r\n"]
        async with answering(lambda _: answers.pop(0)) as (url, came), opened(url) as calls:
            first = await asyncio.gather(calls.ask("GET", "a"), return_exceptions=True)
            assert first == [b"OK"] or isinstance(first[0], rx.ConnectionError)
            assert await calls.ask("GET", "b") == b"good"
            assert len(came) == 2

    go(scenario())


def test_more_answers_than_there_is_room_for_are_not_owed(
    go: Go, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_OWED", 10)

    async def scenario() -> None:
        async with opened(redis_url) as calls:
            await calls.ask("PING")
            outcomes = await asyncio.gather(
                *(calls.ask("ECHO", i) for i in range(12)), return_exceptions=True
            )
            assert outcomes[:10] == [str(i).encode() for i in range(10)]
            assert [type(error) for error in outcomes[10:]] == [rx.TimeoutError] * 2
            assert await calls.ask("ECHO", "x") == b"x"

    go(scenario())


def test_what_waits_for_a_server_that_stands_still_has_a_bound(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all have given up, and their commands are all that is left."""
    monkeypatch.setattr(wire, "MOST_UNSENT_BYTES", 3_000_000)

    async def scenario() -> None:
        with EmbeddedServer() as server:
            async with opened(server.url) as calls:
                await calls.ask("PING")
                with stopped(server.pid):
                    refused = 0
                    for _ in range(20):
                        with pytest.raises((TimeoutError, rx.TimeoutError)) as ended:
                            async with asyncio.timeout(0.01):
                                await calls.ask("ECHO", b"x" * 1_000_000)
                        refused += ended.type is rx.TimeoutError
                    assert refused >= 10
                    assert calls.transport.get_write_buffer_size() <= 4_100_000
                while calls.transport.get_write_buffer_size():
                    await asyncio.sleep(0.01)
                assert await calls.ask("ECHO", "x") == b"x"

    go(scenario())


def test_a_url_that_asks_for_resp3_gets_answers_alone(go: Go, server: EmbeddedServer) -> None:
    """Its pushes are the answer to no call."""

    async def scenario() -> None:
        async with opened(server.url + ("&" if "?" in server.url else "?") + "protocol=3") as calls:
            assert await calls.ask("CONFIG", "GET", "port") == [b"port", b"0"]

    go(scenario())


def test_closing_tells_those_who_wait_and_is_for_good(go: Go, redis_url: str) -> None:
    async def scenario() -> None:
        client = connect_async(redis_url)
        await client.wire.ask("PING")
        waiting = asyncio.create_task(client.wire.ask("PING"))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(rx.ConnectionError, match="closed"):
            await waiting
        # Said by a store at once, and not tried again.
        with pytest.raises(Unavailable, match="closed") as refused:
            await AsyncStore(client, Keys()).run(scripts.counts(Keys().queue("q")))
        assert refused.value.reason == "closed"
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
            assert outcome == b"PONG" or isinstance(outcome, (rx.ConnectionError, Unavailable))
        assert connections(redis_url) == 0

    go(scenario())


def test_whoever_closes_may_give_up(go: Go) -> None:
    async def scenario() -> None:
        async with answering(lambda _: b"") as (url, _):
            client = connect_async(url)
            asked = asyncio.create_task(client.wire.ask("PING"))
            await asyncio.sleep(0)
            closing = asyncio.create_task(client.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            ends = await asyncio.gather(closing, asked, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError, rx.ConnectionError]

    go(scenario())


def test_closing_does_not_wait_for_a_server_that_stands_still(go: Go) -> None:
    """Not even where it has not taken all that was written."""

    async def scenario() -> None:
        with EmbeddedServer() as server:
            client = connect_async(server.url)
            await client.wire.ask("PING")
            with stopped(server.pid):
                asked = asyncio.create_task(client.wire.ask("ECHO", b"x" * 5_000_000))
                await asyncio.sleep(0)
                asked.cancel()
                async with asyncio.timeout(2):
                    await client.aclose()

    go(scenario())


@contextmanager
def silent_tls(context: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that lets a client in, and from then on stands still."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        connection, _ = listener.accept()
        encrypted = context.wrap_socket(connection, server_side=True)
        held.append(encrypted)
        logins = 0
        while logins < 2:
            logins += (came := encrypted.recv(65536).count(b"SETINFO"))
            encrypted.sendall(b"+OK\r\n" * came)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(5)
        for each in (listener, *held):
            each.close()


def test_closing_does_not_wait_for_the_end_of_an_encryption(
    go: Go, certificates: tuple[ssl.SSLContext, str]
) -> None:
    context, authority = certificates

    async def scenario(port: int) -> None:
        client = connect_async(f"rediss://localhost:{port}/0", ssl_ca_certs=authority)
        asked = asyncio.create_task(client.wire.ask("PING"))
        async with asyncio.timeout(10):
            while client.wire.transport is None:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(2):
            await client.aclose()
        with pytest.raises(rx.ConnectionError):
            await asked

    with silent_tls(context) as port:
        go(scenario(port))


def test_it_is_encrypted_where_the_url_says_so(
    go: Go, server: EmbeddedServer, certificates: tuple[ssl.SSLContext, str]
) -> None:
    context, authority = certificates
    path = server.url.removeprefix("unix://").partition("?")[0]

    async def carry(
        reader: asyncio.StreamReader,
        write: Callable[[bytes], Any],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        while data := await reader.read(65536):
            write(data)
            await drain()

    forwarding: list[Any] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwarding.append(asyncio.current_task())
        back, out = await asyncio.open_unix_connection(path)
        there = asyncio.create_task(carry(reader, out.write, out.drain))
        here = asyncio.create_task(carry(back, writer.write, writer.drain))
        await asyncio.wait([there, here], return_when=asyncio.FIRST_COMPLETED)
        for task in (there, here):
            task.cancel()
        for stream in (out, writer):
            stream.transport.abort()
        await asyncio.gather(there, here, out.wait_closed(), return_exceptions=True)

    async def scenario() -> None:
        tls = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
        port = tls.sockets[0].getsockname()[1]
        async with opened(f"rediss://localhost:{port}/0", ssl_ca_certs=authority) as calls:
            asked = [f"{i}:" + "x" * (i % 7) ** 6 for i in range(100)]
            assert await asyncio.gather(*(calls.ask("ECHO", text) for text in asked)) == [
                text.encode() for text in asked
            ]
            assert calls.transport.get_extra_info("ssl_object") is not None
        await asyncio.gather(*forwarding)
        tls.close()
        await tls.wait_closed()

    go(scenario())
