"""A TCP proxy in front of a server that loses replies on demand."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Proxy:
    """Forwards bytes both ways. ``lose_reply(request)`` True: the request gets through and its reply does
    not; the connection is cut then."""

    def __init__(self, target_port: int, lose_reply: Callable[[bytes], bool]) -> None:
        self._target = target_port
        self._lose = lose_reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lost = 0
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            losing = threading.Event()
            threading.Thread(
                target=self._requests, args=(client, server, losing), daemon=True
            ).start()
            threading.Thread(
                target=self._replies, args=(server, client, losing), daemon=True
            ).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        try:
            while data := client.recv(1 << 20):
                if self._lose(data):
                    losing.set()
                server.sendall(data)
        except OSError:
            pass
        finally:
            _cut(server)

    def _replies(
        self, server: socket.socket, client: socket.socket, losing: threading.Event
    ) -> None:
        try:
            while data := server.recv(1 << 20):
                if losing.is_set():
                    self.lost += 1
                    break
                client.sendall(data)
        except OSError:
            pass
        finally:
            _cut(client)
            _cut(server)

    def close(self) -> None:
        for sock in self._sockets:
            _cut(sock)


def _cut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
