"""The API in this process, and as ``taskq api`` runs it."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import pytest
from fastapi import FastAPI

from taskq import calls
from taskq.apikeys import KeyRequest, KeyStore
from taskq.ids import split_id
from taskq.model import Claimed
from taskq.settings import load_settings
from taskq.store import AsyncStore
from taskq_api.app import create_app

Running: TypeAlias = Callable[..., AbstractAsyncContextManager["Api"]]


@dataclass
class Api:
    """A client of a running application, and what stands behind it."""

    http: httpx.AsyncClient
    app: FastAPI

    @property
    def store(self) -> AsyncStore:
        store: AsyncStore = self.app.state.services.client.store
        return store

    async def submit(self, **fields: Any) -> dict[str, Any]:
        """Stores a job (of type ``echo`` unless said otherwise) and answers it."""
        answer = await self.http.post("/jobs", json={"job_type": "echo", **fields})
        assert answer.status_code == 201, answer.text
        job: dict[str, Any] = answer.json()
        return job

    async def raw(self, body: bytes, **headers: str) -> httpx.Response:
        """Posts a body as it is to ``/jobs``."""
        headers = {"content-type": "application/json", **headers}
        return await self.http.post("/jobs", content=body, headers=headers)

    async def jobs_stored(self) -> int:
        return len(await self.store.redis.keys("taskq:{*}:job:*"))

    async def key(self, *scopes: str, **more: Any) -> dict[str, str]:
        """Headers with a new key of these scopes, which this process knows already."""
        key, token = await KeyStore(self.store).create(KeyRequest("k", scopes, **more))
        await self.app.state.services.ring.read()
        return {"authorization": f"Bearer {token}", "x-key-id": key.id}

    # --- what a worker does ---

    async def claim(self, job_id: str, worker: str = "w1") -> Claimed:
        queue, ulid = split_id(job_id)
        keys = self.store.keys.queue(queue)
        call = calls.claim(keys, worker, 1, 100, ["echo", "other"], lease_ms=60_000)
        reply = await self.store.run(call)
        return next(job for job in reply.jobs if job.ulid == ulid)

    async def finish(self, job_id: str, result: bytes, worker: str = "w1", **more: Any) -> None:
        run = await self.claim(job_id, worker)
        keys = self.store.keys.queue(split_id(job_id)[0])
        success = calls.Success(run.ulid, run.fence, result, **more)
        assert await self.store.run(calls.finish(keys, worker, [success])) == ["OK"]

    async def fail(self, job_id: str, error: bytes = b'{"type":"X"}', worker: str = "w1") -> None:
        run = await self.claim(job_id, worker)
        keys = self.store.keys.queue(split_id(job_id)[0])
        failure = calls.Failure(run.ulid, run.fence, error, 0, 1)
        await self.store.run(calls.fail(keys, worker, [failure]))


@asynccontextmanager
async def running(
    redis_url: str, *, keys_stored: bool = False, **settings: Any
) -> AsyncIterator[Api]:
    """An application in this process with a client whose requests come from localhost."""
    app = create_app(load_settings(redis_url=redis_url, **settings), keys_stored=keys_stored)
    transport = httpx.ASGITransport(app=app)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        http = httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")
        yield Api(await stack.enter_async_context(http), app)


@pytest.fixture
def run_api(redis_url: str) -> Running:
    """``async with run_api(setting=..) as api``."""
    return lambda url=redis_url, **settings: running(url, **settings)


@pytest.fixture
async def api(run_api: Running) -> AsyncIterator[Api]:
    async with run_api() as api:
        yield api


@dataclass
class Process:
    """``taskq api`` as a process of its own."""

    popen: "subprocess.Popen[str]"
    port: int
    lines: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> int:
        self.popen.terminate()
        return self.popen.wait(20)

    def close(self) -> None:
        """Ends it at once, where it has not ended."""
        self.popen.kill()
        self.popen.wait(20)
        assert self.popen.stderr is not None
        self.popen.stderr.close()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from taskq.cli import main; main()", "api", *arguments]


def start(*arguments: str) -> Process:
    popen = subprocess.Popen(
        command("--port", "0", *arguments),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert popen.stderr is not None
    lines = []
    for line in popen.stderr:
        lines.append(line)
        found = re.search(r"listening on http://.*:(\d+) ", line)
        if found:
            return Process(popen, int(found[1]), lines)
    raise AssertionError(f"it did not start: {lines}")


@pytest.fixture(name="command")
def _command() -> Callable[..., list[str]]:
    """The words that run ``taskq api`` with arguments."""
    return command


@pytest.fixture(scope="session")
def start_process() -> Callable[..., Process]:
    """Starts ``taskq api`` for longer than a test; whoever calls it ends it by ``close``."""
    return start


@pytest.fixture
def start_api() -> Iterator[Callable[..., Process]]:
    """Starts ``taskq api`` with arguments, on a free port, and ends it with the test."""
    started: list[Process] = []

    def starting(*arguments: str) -> Process:
        started.append(start(*arguments))
        return started[-1]

    yield starting
    for process in started:
        process.close()


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem of an answer, checked for its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(answer.content)
    assert body["code"] == code
    assert body["status"] == status
    assert body["type"] == f"urn:taskq:error:{code}"
    assert body["title"]
    assert body["detail"]
    return body


@pytest.fixture(name="problem")
def _problem() -> Callable[..., dict[str, Any]]:
    return problem
