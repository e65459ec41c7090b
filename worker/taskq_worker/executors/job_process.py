"""What runs in a job's own process: forked from a server that has the application imported already.

It leads a process group of its own, dies with its parent, and says how the run ended in one line of JSON;
what it does not say (it was killed, it left by ``os._exit``) its exit status tells.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from taskq import codec, tracing
from taskq.context import Context
from taskq.log import configure_logging
from taskq.settings import Settings
from taskq.tasks import Task
from taskq.verdict import judge
from taskq_worker.loader import load_app
from taskq_worker.results import encode_result


def main(connection: Connection, order: dict[str, Any]) -> None:
    """Runs one job and ends the process."""
    _settle(order["parent"])
    channel = _Sender(connection)
    try:
        channel.send(op="result", data=_run(order, channel).decode())
    except BaseException as error:
        channel.send(op="verdict", **asdict(judge(error)))
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    # At once: threads that the job left behind would hold the interpreter's end.
    os._exit(0)


def _settle(parent: int) -> None:
    os.setpgid(0, 0)
    _let_the_server_end()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() == 1 or not os.path.exists(f"/proc/{parent}"):
            os._exit(1)


def _let_the_server_end() -> None:
    """The fork server ends when nobody holds the write end of its pipe, and this process with it. Each
    process that it forks is given that end as well: kept, both would outlive a worker that was killed."""
    server: Any = forkserver._forkserver
    with contextlib.suppress(OSError, TypeError):
        os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None


class _Sender:
    """Lines of JSON to the worker; from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(True)
        self._lock = threading.Lock()

    def send(self, **message: Any) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def tell(self, kind: str, message: dict[str, Any]) -> None:
        self.send(op=kind, message=message)

    def end_if_unheard(self) -> None:
        """Ends the process if the worker that ordered the run is gone: the job is about to run elsewhere."""
        with contextlib.suppress(BlockingIOError):
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                os._exit(1)


def _run(order: dict[str, Any], channel: _Sender) -> bytes:
    settings = Settings(**order["settings"])
    configure_logging(settings)
    app = load_app(order["app"], settings, builtins=order["builtins"])
    task = app.tasks[order["context"]["job_type"]]
    kwargs = task.parameters.load(codec.loads(order["payload"], max_bytes=1 << 30))
    context = Context(**order["context"], tell=channel.tell)
    if task.parameters.context_name is not None:
        kwargs[task.parameters.context_name] = context
    channel.end_if_unheard()
    with tracing.going_on(order["traceparent"]):
        if not task.is_async and not app.lifespans:
            return encode_result(task.func(**kwargs))
        return asyncio.run(_with_resources(app.lifespans, task, context, kwargs))


async def _with_resources(
    lifespans: list[Any], task: Task[Any, Any], context: Context, kwargs: dict[str, Any]
) -> bytes:
    async with contextlib.AsyncExitStack() as resources:
        for lifespan in lifespans:
            yielded = await resources.enter_async_context(lifespan())
            context.state = context.state if yielded is None else yielded
        value = task.func(**kwargs)
        return encode_result(await value if task.is_async else value)
