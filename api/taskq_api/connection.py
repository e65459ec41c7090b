"""Whether the client of a request is still there."""

import asyncio
from types import TracebackType

from starlette.requests import Request

from taskq.aio import end_tasks


class Connection:
    """``async with``, after the body was read: ``gone`` is set when the client hangs up."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Connection":
        self._task = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await end_tasks(self._task)

    async def _listen(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def is_gone(self) -> bool:
        """Whether it has hung up by now; what the server knows already is heard first."""
        # One turn of the loop reads the socket, the next passes it on.
        for _ in range(3):
            await asyncio.sleep(0)
        return self.gone.is_set()


async def first_of(*events: asyncio.Event, timeout: float) -> None:
    """Waits until one of the events is set, ``timeout`` seconds at most."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*waits)
