"""Two thousand clients at once: none sees a 5xx, and each finds its job at once."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from taskq import calls
from taskq.aio import end_tasks
from taskq.keys import Keys
from taskq.store import AsyncStore

CLIENTS = 2000


class Client:
    """One connection, bare: two thousand of a whole HTTP library would measure the library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n" if body else ""
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(answer.split(b" ", 2)[1]), json.loads(await self._reader.readexactly(length))


async def live(port: int, number: int, ready: asyncio.Barrier) -> tuple[int, int]:
    """Submits a job when all are connected, and reads it: the two statuses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        client = Client(reader, writer)
        await ready.wait()
        wanted = {"job_type": "echo", "payload": number}
        if number % 2:
            wanted["result_ttl"] = 0
        stored, job = await client.send("POST", "/jobs", json.dumps(wanted).encode())
        found, again = await client.send("GET", f"/jobs/{job.get('id', '')}")
        assert again.get("id") == job.get("id"), (job, again)
        return stored, found
    finally:
        writer.close()


async def work(store: AsyncStore, ended: Counter[str]) -> None:
    """Ends every job as soon as it stands in line."""
    keys, number = store.keys.queue("default"), 0
    while True:
        number += 1
        call = calls.claim(keys, "w1", number, 100, ["echo"], lease_ms=60_000)
        jobs = (await store.run(call)).jobs
        if not jobs:
            await asyncio.sleep(0.005)
            continue
        done = [calls.Success(job.ulid, job.fence, b"null") for job in jobs]
        ended.update(await store.run(calls.finish(keys, "w1", done)))


async def test_two_thousand_clients_submit_and_read(
    redis_url: str, start_api: Callable[..., Any]
) -> None:
    process = start_api("--redis-url", redis_url)
    store = AsyncStore.from_url(redis_url, Keys())
    ended: Counter[str] = Counter()
    working = asyncio.create_task(work(store, ended))
    ready = asyncio.Barrier(CLIENTS)
    try:
        async with asyncio.timeout(120):
            statuses = Counter(
                await asyncio.gather(*(live(process.port, n, ready) for n in range(CLIENTS)))
            )
            assert statuses == {(201, 200): CLIENTS}
            while ended.total() < CLIENTS:
                assert not working.done(), working
                await asyncio.sleep(0.01)
    finally:
        await end_tasks(working)
        await store.close()
    assert ended == {"OK": CLIENTS}
