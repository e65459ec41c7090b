"""Redis in trouble, clients that go away: refused in words that say when to come back, and nobody gets the
answer of somebody else."""

import asyncio
import contextlib
import shutil
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import redis

from support import faults
from support.served import serving
from taskq.embedded import EmbeddedServer
from taskq.errors import JobNotFound
from taskq.keys import Keys
from taskq.settings import load_settings
from taskq.store import AsyncStore
from taskq_api import protocol
from taskq_api.app import create_app

Check = Callable[..., dict[str, Any]]
Fault = Callable[[Any], AbstractContextManager[None]]


@contextmanager
def misconf(place: Any) -> Iterator[None]:
    """A server that cannot write its snapshot any more takes no writes."""
    with redis.Redis.from_url(place.url) as client:
        folder = client.config_get("dir")["dir"]
        client.config_set("save", "3600 1")
        shutil.rmtree(folder)
        with contextlib.suppress(redis.RedisError):
            client.bgsave()
        faults.until(
            lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 10, "it fails"
        )
        yield
        client.config_set("save", "")


@contextmanager
def loading(place: Any) -> Iterator[None]:
    faults.fill(place)
    with faults.loading(place):
        yield


@contextmanager
def full(place: Any) -> Iterator[None]:
    with redis.Redis.from_url(place.url) as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


FAULTS: dict[str, Fault] = {
    "readonly": faults.readonly,
    "noreplicas": faults.noreplicas,
    "misconf": misconf,
    "loading": loading,
    "oom": full,
}


@pytest.mark.parametrize("reason", FAULTS)
async def test_a_submission_is_refused_and_says_when_to_come_back(
    run_api: Any, problem: Check, reason: str
) -> None:
    """503 with a reason while it lasts, nothing stored; and as if nothing had been after it."""
    with EmbeddedServer(port=0) as server:
        place = SimpleNamespace(url=server.url, outage=contextlib.nullcontext)
        async with run_api(server.url) as api:
            await api.submit()
            with FAULTS[reason](place):
                for path, body in (
                    ("/jobs", {"job_type": "echo"}),
                    ("/jobs/batch", {"jobs": [{"job_type": "echo"}]}),
                ):
                    answer = await api.http.post(path, json=body)
                    if answer.status_code == 200:  # each of a batch for itself
                        shown = answer.json()["items"][0]["problem"]
                        assert shown["status"] == 503
                        assert answer.json()["created"] == 0
                    else:
                        code = "redis_out_of_memory" if reason == "oom" else "redis_unavailable"
                        shown = problem(answer, 503, code)
                        assert int(answer.headers["retry-after"]) > 0
                    assert shown["reason"] == reason
            await api.submit()
            assert await api.jobs_stored() == 2


def leave(port: int, request: bytes, *, wait: bool) -> None:
    """Sends a request and hangs up by RST, at once or once it has been read."""
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sendall(request)
    if wait:
        time.sleep(0.002)
    client.close()


def test_clients_that_go_away_leave_the_others_their_answers(
    redis_url: str, start_api: Any
) -> None:
    """200 that hang up amid their requests; then every connection of the pool answers what it was asked."""
    process = start_api("--redis-url", redis_url)
    with httpx.Client(base_url=process.url, timeout=20) as http:
        ids = [
            http.post("/jobs", json={"job_type": "echo", "payload": i}).json()["id"]
            for i in range(40)
        ]
        body = b'{"job_type":"echo","payload":"gone"}'
        for i in range(200):
            job = ids[i % len(ids)]
            head = b" HTTP/1.1\r\nHost: localhost\r\n"
            request = (
                f"GET /jobs/{job}/result?wait=60".encode() + head + b"\r\n",
                f"GET /jobs/{job}".encode() + head + b"\r\n",
                b"POST /jobs" + head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body) + body,
                b"POST /jobs" + head + b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
            )[i % 4]  # fmt: skip
            leave(process.port, request, wait=i % 3 == 0)
        assert http.get("/health").status_code == 200  # all before it were read
        with redis.Redis.from_url(redis_url) as client:
            # Those who waited wait no more: their subscriptions are given up long before their 60 s.
            faults.until(lambda: not client.pubsub_channels(), 10, "nobody waits")

    async def look() -> None:
        async with httpx.AsyncClient(base_url=process.url, timeout=20) as http:
            for _ in range(5):
                answers = await asyncio.gather(*(http.get(f"/jobs/{job}") for job in ids))
                assert [a.json()["id"] for a in answers] == ids
                assert [a.json()["payload"] for a in answers] == [*range(40)]

    asyncio.run(look())


async def test_a_call_that_is_cancelled_hurts_no_other(api: Any) -> None:
    """Nobody reads the reply that was meant for a call that was given up."""
    ids = [(await api.submit(payload=i))["id"] for i in range(20)]
    look = api.app.state.services.inspector
    for round_ in range(20):
        tasks = [asyncio.create_task(look.job(job)) for job in ids]
        for _ in range(round_ % 7):
            await asyncio.sleep(0)
        for task in tasks[:: 1 + round_ % 3]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for job, found in zip(ids, done, strict=True):
            assert isinstance(found, asyncio.CancelledError) or found.id == job
    shown = await asyncio.gather(*(look.job(job) for job in ids))
    assert [job.id for job in shown] == ids
    with pytest.raises(JobNotFound):
        await look.job("default:" + "0" * 26)


async def hangs_up(port: int, sent: bytes) -> float:
    """Seconds until the server ends a connection over which no more is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(sent)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
    return time.monotonic() - began


async def test_a_client_that_does_not_go_on_is_let_go(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its request, within its head and within its body; one that waits for an answer is not."""
    monkeypatch.setattr(protocol, "SILENT_SECONDS", 1.0)
    async with serving(create_app(load_settings(redis_url=redis_url))) as port:
        head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        silent: list[Awaitable[float]] = [
            hangs_up(port, b""),
            hangs_up(port, b"GET /health HTTP/1.1\r\nHo"),
            hangs_up(port, head + b"Content-Length: 100\r\n\r\n{"),
        ]
        async with httpx.AsyncClient(base_url=f"http://localhost:{port}") as http:
            job = (await http.post("/jobs", json={"job_type": "echo"})).json()
            waiting = http.get(f"/jobs/{job['id']}/result?wait=3", timeout=10)
            answer, *times = await asyncio.gather(waiting, *silent)
        assert answer.status_code == 202
        assert all(seconds > 0.9 for seconds in times), times


async def test_one_who_sends_slowly_is_heard(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENT_SECONDS", 3.0)
    async with serving(create_app(load_settings(redis_url=redis_url))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"job_type":"echo"}'
        writer.write(
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        for i in range(0, len(body), 4):
            await asyncio.sleep(0.8)
            writer.write(body[i : i + 4])
        assert (await reader.readline()).startswith(b"HTTP/1.1 201")
        writer.close()
    store = AsyncStore.from_url(redis_url, Keys())
    assert await store.redis.keys("taskq:{default}:job:*")
    await store.close()
