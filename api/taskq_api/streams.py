"""Answers that stay open: a client's events from where it left off, then as they come."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from taskq.aio import end_tasks
from taskq.errors import JobNotFound, TaskqError
from taskq.events import Gap, Position
from taskq.inspector import Inspector
from taskq.model import Job
from taskq.present import job_to_dict
from taskq.states import TERMINAL
from taskq_api.errors import Refused
from taskq_api.hub import Client, Hub
from taskq_api.sse import RETRY_MS, Filter, Message, frame, mark, messages, reset

HEARTBEAT_SECONDS = 15.0
STALL_SECONDS = 60.0
"""A client that takes nothing for so long is dropped."""
CATCH_UP_SECONDS = 1.0
"""How long an ended job's stream waits for the event of its end, which may be gone."""
CHECK_SECONDS = 3.0
"""Between looks at whether the client may still read."""
Check: TypeAlias = Callable[[], Awaitable[None]]
"""Raises ``Refused`` when it may not."""
_DETAILS = ("progress", "log")
CLOCK_MS = 10_000
"""A position further ahead of the server's clock than this is not one of this server."""


class EventStream(Response):
    """The events that a filter shows. Everything that can be refused is refused before this is made."""

    media_type = "text/event-stream"

    def __init__(
        self, hub: Hub, wanted: Filter, since: Position | None, check: Check | None = None
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._wanted = wanted
        self._since = since
        self._check = check
        self._refused = False
        self._end_told = False
        """Whether what was missed held the end of a job."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._hub.join(self._wanted)
        gone = asyncio.create_task(_end_when_gone(receive, client))
        refused = asyncio.create_task(self._end_when_refused(client))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            chunks = self.chunks(client)
            try:
                async for chunk in chunks:
                    if self._refused:
                        break
                    async with asyncio.timeout(STALL_SECONDS):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError:
                return  # the server closes what was not ended
            except TaskqError:
                pass  # the client comes back and goes on where it was
            finally:
                await chunks.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._hub.leave(client)
            await end_tasks(gone, refused)

    async def _end_when_refused(self, client: Client) -> None:
        """Ends the stream of a client that may not read any more; nothing is sent after that."""
        while self._check is not None and not self._refused:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._check()
            except Refused:
                self._refused = True
                client.end()
            except TaskqError:
                continue  # Redis is away, and with it all that could be told

    async def chunks(self, client: Client) -> AsyncGenerator[bytes, None]:
        async for chunk in self.opening(client):
            yield chunk
        while not client.ended:
            taken = await client.take(HEARTBEAT_SECONDS)
            if taken:
                yield b"".join(message.data for message in taken)
            elif not client.ended:
                yield mark(self._position())

    async def opening(self, client: Client) -> AsyncIterator[bytes]:
        """What was missed, and where it goes on."""
        retry = b"retry: %d\n" % RETRY_MS
        if self._since is not None:
            yield retry + b"\n"
            retry = b""
            async for message in self._missed(client, self._since):
                self._end_told = self._end_told or message.event in TERMINAL
                yield message.data
        # With the first bytes: whoever goes right after them can come back without a gap.
        yield retry + mark(str(client.position))

    def _position(self) -> str:
        return str(self._wanted.position(self._hub.position))

    async def _missed(self, client: Client, since: Position) -> AsyncIterator[Message]:
        if since.base > client.position.base + CLOCK_MS:
            self._hub.resets += 1
            yield reset(None, "unknown_position", str(client.position))
            return
        for queue, to in sorted(client.start.items()):
            try:
                async for events in self._hub.reader.replay(queue, since.after(queue), to):
                    for event in events:
                        since = since.moved(queue, event.id)
                        for message in messages(self._wanted, event, since):
                            yield message
            except Gap as gap:
                since = since.moved(queue, to)
                self._hub.resets += 1
                yield reset(queue, gap.reason, str(self._wanted.position(since)))


async def _end_when_gone(receive: Receive, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    client.end()


class JobStream(EventStream):
    """One job's events: first the job as it is, then what becomes of it, until it has ended."""

    def __init__(
        self,
        hub: Hub,
        wanted: Filter,
        since: Position | None,
        inspector: Inspector,
        job_id: str,
        check: Check | None = None,
    ) -> None:
        super().__init__(hub, wanted, since, check)
        self._inspector = inspector
        self._id = job_id
        self._lines: list[Any] = []

    async def chunks(self, client: Client) -> AsyncGenerator[bytes, None]:
        async for chunk in self.opening(client):
            yield chunk
        job = await self._job()
        if job is not None:
            about = job_about(job)
            self._lines = about["log"]
            yield frame("job", about)
        over = job is None or job.state in TERMINAL
        if over and self._since is not None and not self._end_told:
            async for chunk in self._catch_up(client):
                yield chunk
        while not (over or client.ended):
            taken = await client.take(HEARTBEAT_SECONDS)
            async for chunk in self._told(taken):
                yield chunk
            over = any(message.event in TERMINAL for message in taken)
            if not taken and not client.ended:
                yield mark(self._position())
        if over:
            yield mark(self._position(), end=True)

    async def _catch_up(self, client: Client) -> AsyncIterator[bytes]:
        """The end of a job, where the job tells of it before the reader of events has come to it."""
        until = time.monotonic() + CATCH_UP_SECONDS
        while not (self._end_told or client.ended) and time.monotonic() < until:
            taken = await client.take(CATCH_UP_SECONDS)
            self._end_told = any(message.event in TERMINAL for message in taken)
            async for chunk in self._told(taken):
                yield chunk

    async def _told(self, taken: list[Message]) -> AsyncIterator[bytes]:
        """States as they came; progress and log lines as they are now, once for all that was told of them."""
        about: dict[str, Any] = {}
        if any(message.event in _DETAILS for message in taken):
            job = await self._job()
            about = {} if job is None else job_about(job)
        for message in taken:
            if message.event not in _DETAILS:
                yield message.data
            elif message.event in about:
                value = about.pop(message.event)
                if message.event == "log":
                    value, self._lines = new_lines(self._lines, value), value
                if message.event == "progress" or value:
                    name = "lines" if message.event == "log" else "progress"
                    yield frame(message.event, {"id": self._id, name: value})

    async def _job(self) -> Job | None:
        try:
            return await self._inspector.job(self._id)
        except JobNotFound:
            return None


def job_about(job: Job) -> dict[str, Any]:
    """What a stream shows of a job: all but its payload, its result and its history."""
    known = job_to_dict(job)
    return {k: v for k, v in known.items() if k not in ("payload", "result", "history")}


def new_lines(before: list[Any], now: list[Any]) -> list[Any]:
    """The lines that came since; the oldest may have gone meanwhile."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if before[-kept:] == now[:kept]:
            return now[kept:]
    return now
