"""A client of Server-Sent Events, as browsers are: it keeps the last id and comes back with it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Told:
    event: str
    data: Any
    id: str


class EventSource:
    """``async for told in source.read()``; each call of ``read`` is a new connection."""

    def __init__(self, url: str, *, token: str = "", **params: Any) -> None:
        self.url = url
        self.token = token
        self.params = params
        self.last_id = ""
        self.retry: int | None = None
        self.status = 0
        self.comments = 0
        self.opened = asyncio.Event()

    async def read(self) -> AsyncIterator[Told]:
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with (
            httpx.AsyncClient(timeout=httpx.Timeout(30, read=60)) as http,
            http.stream("GET", self.url, params=self.params, headers=headers) as answer,
        ):
            self.status = answer.status_code
            if answer.status_code != 200:
                return
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for told in self._parse(answer.aiter_lines()):
                yield told

    async def _parse(self, lines: AsyncIterator[str]) -> AsyncIterator[Told]:
        event, data, given = "message", "", self.last_id
        async for line in lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.last_id = given
                self.opened.set()
                if data:
                    yield Told(event, json.loads(data), given)
                event, data = "message", ""
            elif not name:
                self.comments += 1
            elif name == "event":
                event = value
            elif name == "data":
                data += value
            elif name == "id":
                given = value
            elif name == "retry":
                self.retry = int(value)

    def start(self) -> "Reading":
        return Reading(self)


class Reading:
    """A connection that is read in the background."""

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.told: list[Told] = []
        source.opened.clear()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for told in self.source.read():
            self.told.append(told)

    async def opened(self) -> "Reading":
        """Waits until the stream has begun."""
        waiting = asyncio.create_task(self.source.opened.wait())
        async with asyncio.timeout(10):
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task
        return self

    async def until(self, condition: Any, seconds: float = 10) -> "Reading":
        async with asyncio.timeout(seconds):
            while not condition(self):
                await asyncio.sleep(0.005)
        return self

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            await self._task

    async def drop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def states(self) -> list[tuple[str, str]]:
        """(job id, state) as they were told."""
        return [
            (job["id"], told.data["state"])
            for told in self.told
            if told.event == "state"
            for job in told.data.get("jobs", [told.data])
        ]

    def resets(self) -> list[str]:
        return [told.data["reason"] for told in self.told if told.event == "reset"]
