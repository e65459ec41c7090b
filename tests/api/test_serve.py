"""``taskq api`` as a process: how it starts, refuses to start, and stops."""

import contextlib
import json
import os
import socket
import subprocess
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from taskq.embedded import EmbeddedServer


def refused(command: list[str], status: int, **env: str) -> str:
    """The one line that a process says which does not start."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


def test_is_found_as_a_command() -> None:
    found = {point.name: point.value for point in entry_points(group="taskq.commands")}
    assert found["api"] == "taskq_api.cli:api"


def test_serves_what_the_readme_types(redis_url: str, start_api: Any) -> None:
    process = start_api("--redis-url", redis_url)
    url = f"http://localhost:{process.port}"
    body = b'{"job_type":"print","priority":10,"payload":{"message":"Hello from scheduler"}}'
    post = ["curl", "-sS", "-X", "POST", f"{url}/jobs", "-H", "Content-Type: application/json"]
    job = json.loads(subprocess.check_output([*post, "-d", body.decode()]))
    assert job["state"] == "queued"
    shown = json.loads(subprocess.check_output(["curl", "-sS", f"{url}/jobs/{job['id']}"]))
    assert shown["payload"] == {"message": "Hello from scheduler"}
    assert json.loads(subprocess.check_output(["curl", "-sS", f"{url}/health"]))["status"] == "ok"
    assert process.stop() == 0


def test_flags_beat_the_environment(
    redis_url: str, start_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TASKQ_NAMESPACE", "mine")
    process = start_api("--redis-url", redis_url)
    httpx.post(f"{process.url}/jobs", json={"job_type": "echo"}).raise_for_status()
    with redis.Redis.from_url(redis_url) as client:
        assert client.exists("mine:queues")


def test_starts_without_redis_and_says_so(start_api: Any) -> None:
    """F86: the password of the URL is not in what it says."""
    process = start_api("--redis-url", "redis://app:sesame-7391@127.0.0.1:1/0")
    said = "".join(process.lines)
    assert "not reachable" in said
    assert "sesame" not in said
    assert httpx.get(f"{process.url}/health").status_code == 200
    assert httpx.get(f"{process.url}/ready").status_code == 503


def test_shows_life_also_without_redis(
    start_api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alive"
    monkeypatch.setenv("TASKQ_HEALTH_FILE", str(file))
    process = start_api("--redis-url", "redis://127.0.0.1:1/0")
    httpx.get(f"{process.url}/health").raise_for_status()
    assert file.exists()


def test_stops_within_its_bound_while_a_client_waits(redis_url: str, start_api: Any) -> None:
    process = start_api("--redis-url", redis_url)
    job = httpx.post(f"{process.url}/jobs", json={"job_type": "echo"}).json()
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as client:
        path = f"/jobs/{job['id']}/result?wait=60"
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        httpx.get(f"{process.url}/health")  # the one before was read too by now
        process.popen.terminate()
        assert client.recv(100).startswith(b"HTTP/1.1 202")
        assert process.popen.wait(10) == 0


@pytest.mark.parametrize("chunked", [False, True])
def test_refuses_a_huge_body_without_reading_it(
    redis_url: str, start_api: Any, chunked: bool
) -> None:
    """F58: 600 MB are refused after the first bytes."""
    process = start_api("--redis-url", redis_url)
    how = "Transfer-Encoding: chunked" if chunked else "Content-Length: 600000000"
    head = (
        f"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{how}\r\n\r\n"
    )
    block = b"x" * 1_000_000
    piece = b"%x\r\n%s\r\n" % (len(block), block) if chunked else block
    with socket.create_connection(("127.0.0.1", process.port), timeout=20) as client:
        client.sendall(head.encode() + piece * 3)
        answer = client.recv(100_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        while client.recv(100_000):
            pass  # and then it hangs up
    assert httpx.get(f"{process.url}/health").status_code == 200


def test_a_client_that_only_sends_gets_its_answer(redis_url: str, start_api: Any) -> None:
    process = start_api("--redis-url", redis_url)
    request = urllib.request.Request(
        f"{process.url}/jobs", b"x" * 50_000_000, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    assert caught.value.code == 413
    caught.value.close()


def test_refuses_a_port_in_use(redis_url: str, command: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(command("--port", str(port), "--redis-url", redis_url), 1)
    assert f"port {port} on 127.0.0.1 is in use" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "TASKQ_API_KEYS"),
        (("--host", "::"), "TASKQ_API_KEYS"),
        (("--port", "70000"), "TASKQ_API_PORT"),
        (("--log-level", "loud"), "TASKQ_LOG_LEVEL"),
        (("--namespace", "{x}"), "TASKQ_NAMESPACE"),
        (("--redis-url", "http://x"), "TASKQ_REDIS_URL"),
    ],
)
def test_refuses_wrong_settings(command: Any, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(command(*arguments), 2)


def test_refuses_an_address_that_is_not_here(redis_url: str, command: Any) -> None:
    arguments = ("--host", "203.0.113.1", "--port", "0", "--redis-url", redis_url)
    assert "203.0.113.1" in refused(command(*arguments), 1, TASKQ_API_KEYS="k")


def test_refuses_a_server_that_evicts(command: Any) -> None:
    """F44: the API does not start."""
    with EmbeddedServer(config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        said = refused(command("--port", "0", "--redis-url", server.url), 1)
    assert "noeviction" in said


def raw(process: Any, data: bytes, timeout: float = 20) -> bytes:
    """All that is answered to bytes sent as they are, until the server hangs up."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=timeout) as client:
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(data), 65_536):
                client.sendall(data[start : start + 65_536])
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(100_000):
                answer += piece
    return answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /jobs?" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 10_000 + b"\r\n",
        b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"x" * 5_000_000,
        b"GET /" + b"x" * 5_000_000,
    ],
    ids=["query", "headers", "a header without an end", "a path without an end"],
)
def test_a_head_is_bounded(redis_url: str, start_api: Any, head: bytes) -> None:
    process = start_api("--redis-url", redis_url)
    answer = raw(process, head)
    # A reset by the bytes that nobody reads may overtake the answer.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert httpx.get(f"{process.url}/health").status_code == 200


@pytest.mark.parametrize("size", [32_000, 33_000])
def test_the_bound_of_a_head_is_exact(redis_url: str, start_api: Any, size: int) -> None:
    """However the bytes come, all at once or one by one."""
    process = start_api("--redis-url", redis_url)
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: "
    head += b"x" * (size - len(head)) + b"\r\n\r\n"
    for piece in (len(head), 1_000):
        with socket.create_connection(("127.0.0.1", process.port), timeout=20) as client:
            for start in range(0, len(head), piece):
                client.sendall(head[start : start + piece])
            status = client.recv(12)
        assert status == (b"HTTP/1.1 200" if size < 32_768 else b"HTTP/1.1 431")


def test_a_head_of_ordinary_size_is_none_the_worse(redis_url: str, start_api: Any) -> None:
    process = start_api("--redis-url", redis_url)
    headers = {f"X-{i}": "y" * 1_000 for i in range(25)}
    body = {"job_type": "echo", "payload": "x" * 900_000}
    with httpx.Client() as client:
        for _ in range(3):  # one connection: each is counted for itself
            answer = client.post(f"{process.url}/jobs", json=body, headers=headers, timeout=20)
            assert answer.status_code == 201
