"""Commands of one event loop over one connection: each is written at once, and answers come in their order.

A pool gives every call a connection of its own, and its bookkeeping and a connection's layers cost more
than the call. The server runs one script at a time anyway, so calls on one connection wait no longer for it.
What may block on the server has no place here, as it would hold up all behind it. redis-py makes the
connection, with its options, encryption and login; from then on only the socket is used.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import redis.exceptions as rx

from taskq.errors import Unavailable

TIMEOUT_SECONDS = 10.0
"""How long an answer may take where the connection has no ``socket_timeout``."""
LATE_SECONDS = 0.05
"""An answer that is late gets so much more: in a process that stood still the clock is looked at before the
socket, where the answer may lie."""
MOST_OWED = 1024
MOST_UNSENT_BYTES = 67_108_864
"""What one connection may owe, in answers and in bytes that the server has not taken yet: what callers leave
behind that give up while it stands still. Those that wait are bounded by the store."""

_NOTHING = object()
_Owed = tuple[asyncio.Future[Any], float, int, list[Any]]
"""Who waits, since when, for how many answers (0: for one, not in a list), and those that have come."""


def pack(words: Sequence[Any]) -> bytes:
    """One command as bytes. Raises redis-py's ``DataError`` for what has no form on the wire."""
    try:
        packed: bytes = hiredis.pack_command(tuple(words))
    except TypeError as error:
        raise rx.DataError(str(error)) from error
    return packed


class Wire:
    """Opens its connection when it is needed first, and anew when it broke.

    ``make_connection`` makes one of redis-py's async connections, for RESP2 and not yet connected.
    """

    def __init__(self, make_connection: Callable[[], Any]) -> None:
        self._make_connection = make_connection
        self._line: _Line | None = None
        self._opening: asyncio.Task[_Line] | None = None
        self._closed = False

    async def ask(self, *words: Any) -> Any:
        """The answer to one command. Raises redis-py's errors, as its clients do.

        After ``ConnectionError`` and ``TimeoutError`` nobody knows whether it was carried out; a caller that
        is cancelled leaves its place, and the command may still be carried out.
        """
        packed = pack(words)
        line = self._line
        if line is None or line.lost:
            line = await self._open()
        return await line.ask(packed)

    async def ask_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to commands that are sent in one piece. An error of a single one stands in its place,
        but for those that are about the connection (no login, a server that is loading); else as ``ask``."""
        if not commands:
            return []
        packed = b"".join(map(pack, commands))
        line = self._line
        if line is None or line.lost:
            line = await self._open()
        answers: list[Any] = await line.ask(packed, len(commands))
        for answer in answers:
            if isinstance(answer, rx.ConnectionError):
                raise answer
        return answers

    def check_open(self) -> None:
        """Raises ``Unavailable`` once the client is closed."""
        if self._closed:
            raise Unavailable("this client is closed; make a new one", reason="closed")

    async def _open(self) -> "_Line":
        """One attempt for all who wait, which does not end with the one of them who gives up."""
        self.check_open()
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._connect())
            opening.add_done_callback(self._opened)
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise rx.ConnectionError("this client was closed")
        return opening.result()

    async def _connect(self) -> "_Line":
        connection = self._make_connection()
        try:
            await connection.connect()
            self._line = _Line(connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return self._line

    def _opened(self, opening: "asyncio.Task[_Line]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # looked at also where nobody waits for it any more

    @property
    def transport(self) -> Any:
        """Of the connection that was opened last; None where none was."""
        return None if self._line is None else self._line.transport

    async def close(self) -> None:
        """For good, and at once: what the server has not taken is not waited for. Who waits for an answer
        gets ``ConnectionError``."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._line is not None:
            await self._line.close()


class _Line(asyncio.Protocol):
    """An open connection and the answers that it owes, the oldest first."""

    def __init__(self, connection: Any) -> None:
        self.lost = False
        """It takes no call any more."""
        self._loop = asyncio.get_running_loop()
        self._timeout: float = connection.socket_timeout or TIMEOUT_SECONDS
        self._owed: deque[_Owed] = deque()
        self._heard_at = 0.0
        self._refused = False
        self._late: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._reader = hiredis.Reader(
            protocolError=rx.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_NOTHING,
        )
        self._writer = connection._writer  # kept, as a stream closes what it is dropped over
        self.transport: Any = self._writer.transport
        self._unsent: Callable[[], int] = self.transport.get_write_buffer_size
        self.transport.set_protocol(self)
        connection._writer = connection._reader = None

    def ask(self, packed: bytes, answers: int = 0) -> "asyncio.Future[Any]":
        """One answer, or so many in a list. Raises ``ConnectionError``, and ``TimeoutError`` where too much
        waits already."""
        if self.lost:
            raise rx.ConnectionError("the connection was lost")
        if len(self._owed) >= MOST_OWED or self._unsent() > MOST_UNSENT_BYTES:
            raise rx.TimeoutError("the server takes no more: too much waits for it already")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._owed.append((future, self._loop.time(), answers, []))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._look)
        try:
            self.transport.write(packed)
        except (OSError, RuntimeError) as error:  # the latter is uvloop's for a closed transport
            self._break(rx.ConnectionError(f"cannot write to Redis: {error}"))
        return future

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(data)
            while not self.lost and (reply := self._reader.gets()) is not _NOTHING:
                self._answer(reply)
        except (rx.RedisError, IndexError) as error:
            self._break(rx.ConnectionError(f"the server's answer is none: {error!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(rx.ConnectionError(f"the connection was closed: {error or 'by the server'}"))
        if not self._gone.done():
            self._gone.set_result(None)

    def _answer(self, reply: Any) -> None:
        future, _, answers, came = self._owed[0]
        failed = isinstance(reply, rx.RedisError)
        self._refused |= failed and isinstance(reply, rx.ReadOnlyError)
        if answers:
            came.append(None if future.done() else reply)  # done: whoever asked has gone
            if len(came) < answers:
                return
        self._owed.popleft()
        if future.done():
            pass
        elif answers:
            future.set_result(came)
        elif failed:
            future.set_exception(reply)
        else:
            future.set_result(reply)
        if self._refused:
            # It was the primary: a new connection asks anew who is.
            self._break(rx.ConnectionError("the server has become a replica"))

    def _look(self) -> None:
        """Ends the connection when an answer is owed, and nothing has come for too long."""
        self._timer = None
        if not self._owed:
            return
        oldest = self._owed[0]
        # While answers come, those that wait behind many others are not late.
        left = max(oldest[1], self._heard_at) + self._timeout - self._loop.time()
        if left <= 0 and self._late is oldest:
            self._break(rx.TimeoutError("Redis did not answer in time"))
            return
        if left <= 0:
            self._late, left = oldest, LATE_SECONDS
        self._timer = self._loop.call_later(left, self._look)

    def _break(self, error: Exception) -> None:
        """Ends the connection, and tells all who wait why."""
        self._fail(error)
        self.transport.abort()

    def _fail(self, error: Exception) -> None:
        """Takes no call any more, and tells all who wait why."""
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        owed, self._owed = self._owed, deque()
        for future, *_ in owed:
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        self._break(rx.ConnectionError("this client was closed"))
        await self._gone
