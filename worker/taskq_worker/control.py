"""Messages between a supervisor and its children: one JSON object a line over a socket pair.

From the child: ``ready`` (queues, types, seats), ``failed`` (it cannot start), ``lost`` (a worker id was
refused), ``counted`` (what it has done so far), ``will`` (jobs it cannot stop, to be reported when it is
gone). From the supervisor: ``id`` (a worker id for a seat), ``cancel`` (jobs to stop), ``reconcile`` (compare
a list), ``quiet``, ``stop``.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

LIMIT = 16 * 1024 * 1024


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> "Channel":
        sock.setblocking(False)
        return cls(*await asyncio.open_connection(sock=sock, limit=LIMIT))

    def send(self, op: str, **message: Any) -> None:
        """Sends without waiting; to a peer that is gone it does nothing."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"op": op, **message}).encode() + b"\n")

    async def drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError:
            return

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Messages until the peer is gone."""
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError):
                return
            if not line:
                return
            yield json.loads(line)

    def close(self) -> None:
        self._writer.close()
