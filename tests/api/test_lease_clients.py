"""Clients of long polls that hang up, and processes that stop: no job stays in a lease that nobody has."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import redis

from support.workers import until
from taskq.embedded import EmbeddedServer

Start = Callable[..., Any]


@contextmanager
def polling(
    port: int, key: str | None = None, wait: float = 20, **fields: Any
) -> Iterator[socket.socket]:
    """A client that has sent its poll and does not read the answer yet."""
    body = json.dumps({"job_types": ["echo"], "wait": wait, **fields}).encode()
    more = f"Idempotency-Key: {key}\r\n" if key else ""
    head = (
        f"POST /leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(head.encode() + body)
        yield client


def read(client: socket.socket) -> dict[str, Any]:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += client.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(65536)
    found: dict[str, Any] = json.loads(body)
    return found


def unanswered(client: socket.socket, seconds: float) -> None:
    """Stays for so long, and is told nothing meanwhile."""
    client.settimeout(seconds)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(20)


@pytest.fixture
def raw(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def polls(raw: Any) -> int:
    """Polls that wait, as lists of workers show them."""
    return int(raw.zcard("taskq:workers"))


def job_of(process: Any, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{process.url}/jobs/{job_id}").json()
    return found


def submit(process: Any) -> str:
    return str(httpx.post(f"{process.url}/jobs", json={"job_type": "echo"}).json()["id"])


def test_a_client_that_hangs_up_while_it_waits_takes_nothing(
    redis_url: str, raw: Any, start_api: Start
) -> None:
    process = start_api("--redis-url", redis_url)
    for _ in range(5):
        with polling(process.port):
            until(lambda: polls(raw) == 1, 5, "the poll waits")
        until(lambda: polls(raw) == 0, 5, "the poll is given up")
    job_id = submit(process)
    job = job_of(process, job_id)
    assert (job["state"], job["attempts"]) == ("queued", 0)
    assert raw.keys("*lease*") == []
    # A poll that was left behind would have been first.
    with polling(process.port, wait=0) as client:
        assert [j["attempt"] for j in read(client)["jobs"]] == [1]


def test_a_client_that_hangs_up_while_redis_is_slow_takes_nothing(
    redis_url: str, raw: Any, start_api: Start
) -> None:
    process = start_api("--redis-url", redis_url)
    job_id = submit(process)
    raw.execute_command("CLIENT", "PAUSE", 800, "ALL")
    with polling(process.port) as client:
        unanswered(client, 0.3)
    until(lambda: job_of(process, job_id)["state"] == "queued", 5, "the job is back")
    until(lambda: not raw.exists("taskq:{default}:leases"), 5, "no lease is left")
    job = job_of(process, job_id)
    assert (job["failures"], job["crashes"], job["lost"]) == (0, 0, 0)
    with polling(process.port) as client:
        assert [j["id"] for j in read(client)["jobs"]] == [job_id]


@pytest.mark.parametrize("first_hangs_up", [True, False])
def test_one_of_two_polls_with_a_key_hangs_up(
    redis_url: str, raw: Any, start_api: Start, first_hangs_up: bool
) -> None:
    """Through different processes: the other one gets the job, whichever claims."""
    one, two = start_api("--redis-url", redis_url), start_api("--redis-url", redis_url)
    leaving, staying = (one, two) if first_hangs_up else (two, one)
    with polling(staying.port, "k") as client:
        with polling(leaving.port, "k") as other:
            until(lambda: polls(raw) == 1, 5, "both wait under one worker id")
            unanswered(other, 0.2)
        job_id = submit(staying)
        assert [j["id"] for j in read(client)["jobs"]] == [job_id]
    assert job_of(one, job_id)["state"] == "running"


def test_a_poll_is_answered_at_once_when_the_process_stops(
    redis_url: str, raw: Any, start_api: Start
) -> None:
    process = start_api("--redis-url", redis_url)
    with polling(process.port) as client:
        until(lambda: polls(raw) == 1, 5, "the poll waits")
        begun = time.monotonic()
        process.popen.terminate()
        assert read(client)["id"] is None
        assert process.popen.wait(10) == 0
        assert time.monotonic() - begun < 10  # of the 20 s that it would have waited
    assert polls(raw) == 0


def test_a_claim_of_a_killed_process_is_answered_by_another(
    redis_url: str, raw: Any, start_api: Start
) -> None:
    """Killed with the claim in its socket: the server reads it when the process is long gone."""
    one, two = start_api("--redis-url", redis_url), start_api("--redis-url", redis_url)
    job_id = submit(two)
    raw.execute_command("CLIENT", "PAUSE", 500, "ALL")
    with polling(one.port, "k", wait=0.5) as client:
        unanswered(client, 0.2)
        one.popen.kill()
        one.popen.wait(10)
    with polling(two.port, "k", wait=0) as client:
        first = read(client)
    with polling(two.port, "k", wait=0) as client:
        again = read(client)
    assert [job["id"] for job in first["jobs"]] == [job_id]
    assert again == first
    assert job_of(two, job_id)["attempts"] == 1


def test_a_poll_outlives_a_restart_of_redis(start_api: Start, tmp_path: Any) -> None:
    with EmbeddedServer(data_dir=tmp_path) as server:
        process = start_api("--redis-url", server.url)
        with polling(process.port, wait=25) as client:
            with redis.Redis.from_url(server.url) as raw:
                until(lambda: polls(raw) == 1, 5, "the poll waits")
            server.kill()
            server.start()
            until(
                lambda: (
                    httpx.post(f"{process.url}/jobs", json={"job_type": "echo"}).status_code == 201
                ),
                15,
                "jobs are taken again",
            )
            assert len(read(client)["jobs"]) == 1
