"""A TCP relay in front of a server that can fall silent, cut, refuse, or lose replies."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

Loses = Callable[[bytes], bool]


class Relay:
    """Forwards bytes both ways, on a thread of its own.

    ``freeze`` is a half-open network: connections stay and nothing gets through, new ones hang too;
    ``thaw`` delivers what was held, late. ``forget`` silences the present connections for good. ``cut`` ends
    all connections by RST or FIN. ``refuse`` takes none. ``loses(request)`` true: the
    request gets through, its reply does not, and the connection ends.
    """

    def __init__(self, target_port: int, loses: Loses | None = None) -> None:
        self._target = target_port
        self._loses = loses
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.held = 0
        """Bytes that came while frozen."""
        self.lost = 0
        """Replies that were lost."""
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def freeze(self) -> None:
        self._do(self._open.clear)

    def thaw(self) -> None:
        self._do(self._open.set)

    def forget(self) -> None:
        """Nothing gets through the present connections any more; new ones work."""
        self._do(self._forget)

    def cut(self, how: str = "rst") -> int:
        """Ends every connection now; answers how many."""
        return int(self._do(lambda: self._cut(how)))

    def refuse(self) -> None:
        """Takes no new connections until ``accept``; those that are there go on."""
        self._do(lambda: setattr(self, "refusing", True))

    def accept(self) -> None:
        self._do(lambda: setattr(self, "refusing", False))

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # --- on the loop's thread -------------------------------------------------------------------

    def _do(self, action: Callable[[], Any]) -> Any:
        async def act() -> Any:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(5)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _serve(self) -> None:
        self.refusing = False
        self._open = asyncio.Event()
        self._open.set()
        self._server = await asyncio.start_server(self._meet, sock=self._listener, limit=1 << 20)

    def _forget(self) -> None:
        self._open.clear()
        self._open = asyncio.Event()
        self._open.set()

    async def _end(self) -> None:
        self.refusing = True
        self._server.close()
        # Those that were accepted a moment ago come to be refused; unmet, they would never be closed.
        for _ in range(5):
            await asyncio.sleep(0)
        self._cut("fin")
        self._open.set()
        # What is being connected ends by itself, since its client is gone; cancelled in the middle of that,
        # it would leave a socket that nobody closes. Those of a gate that was forgotten are cancelled.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.5)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)

    def _cut(self, how: str) -> int:
        n = 0
        for writer in list(self._writers):
            if how == "rst":
                sock = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
            n += 1
        self._writers.clear()
        return n

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            return
        self.accepted += 1
        self._writers.add(writer)
        gate = self._open
        await gate.wait()
        if writer.is_closing():
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 20)
        losing = [False]
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, losing, gate, request=True)),
            asyncio.ensure_future(self._pump(there, writer, losing, gate, request=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        losing: list[bool],
        gate: asyncio.Event,
        *,
        request: bool,
    ) -> None:
        while data := await source.read(1 << 18):
            if not gate.is_set():
                self.held += len(data)
                await gate.wait()
            if request and self._loses is not None and self._loses(data):
                losing[0] = True
            if not request and losing[0]:
                self.lost += 1
                return
            sink.write(data)
            await sink.drain()
