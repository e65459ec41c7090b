"""A process for each run, forked from a server that has imported the application.

What a job does to its process (a crash, a leak, one endless call) stays there. To stop it, its whole
process group is killed, and the run is over only when it is gone.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil

from taskq import tracing
from taskq.verdict import RemoteError, Verdict
from taskq_worker.control import Channel
from taskq_worker.executors import job_process
from taskq_worker.executors.base import Order
from taskq_worker.outcome import ProcessDied
from taskq_worker.process import describe_exit
from taskq_worker.results import EncodedResult

SUSPECTS_AT_ONCE = 16
PROBATION_SECONDS = 2.0
MEMORY_LOOK_SECONDS = 0.1
LAST_WORDS_SECONDS = 1.0


class ProcessExecutor:
    """``handed`` is what every job's process needs to find the application: app, builtins, settings."""

    def __init__(self, handed: dict[str, Any]) -> None:
        self._handed = {**handed, "parent": os.getpid()}
        self._context = multiprocessing.get_context("forkserver")
        preload = ["taskq_worker.executors.job_process"]
        if handed["app"]:
            preload.append(handed["app"].partition(":")[0])
        self._context.set_forkserver_preload(preload)
        self._suspects = asyncio.Semaphore(SUSPECTS_AT_ONCE)
        self._jobs: set[_Job] = set()

    def kill(self, pid: int, reason: str) -> None:
        """Ends the job that ``pid`` belongs to, for a reason that its error will name."""
        for job in self._jobs:
            if job.has(pid):
                job.kill(reason)

    async def run(self, order: Order) -> Any:
        """Raises ``RemoteError`` for what the function raised, ``ProcessDied`` when it left no word."""
        if not order.run.claimed.suspect:
            return await self._run(order)
        await self._suspects.acquire()
        # What has run so long without harm makes room for the next: long jobs do not hold up the others.
        room = _Once(self._suspects.release)
        timer = asyncio.get_running_loop().call_later(PROBATION_SECONDS, room)
        try:
            return await self._run(order)
        finally:
            timer.cancel()
            room()

    async def _run(self, order: Order) -> Any:
        order.run.start_clock()
        job = _Job(order)
        self._jobs.add(job)
        try:
            await job.start(self._context, self._handed)
            return await job.outcome()
        finally:
            # Whatever ended the wait: the process and all it started are gone before anybody goes on.
            await _uncancelled(job.end())
            self._jobs.discard(job)

    def close(self) -> None:
        return


class _Once:
    """A call that has an effect the first time only."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class _Job:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._process: Any = None
        self._channel: Channel | None = None
        self._gone = asyncio.Event()
        self._last_words: dict[str, Any] | None = None
        self._killed_for: str | None = None

    async def start(self, context: Any, handed: dict[str, Any]) -> None:
        ours, theirs = context.Pipe(duplex=True)
        run = self._order.run
        ctx = run.context
        order = {
            **handed,
            "payload": run.claimed.payload.decode(),
            "traceparent": tracing.current(),
            "context": {
                "job_id": ctx.job_id,
                "job_type": ctx.job_type,
                "queue": ctx.queue,
                "attempt": ctx.attempt,
                "failures": ctx.failures,
                "fence": ctx.fence,
                "created_at": ctx.created_at,
            },
        }
        process = context.Process(target=job_process.main, args=(theirs, order), daemon=False)
        starting = asyncio.ensure_future(asyncio.to_thread(process.start))
        try:
            await asyncio.shield(starting)
        finally:
            await _uncancelled(starting)
            theirs.close()
            self._process = process
            asyncio.get_running_loop().add_reader(process.sentinel, self._ended)
            self._channel = await _uncancelled(_channel(ours))

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._gone.set()

    async def outcome(self) -> EncodedResult:
        assert self._channel is not None
        listener = asyncio.ensure_future(self._listen(self._channel))
        watcher = asyncio.ensure_future(self._watch_memory())
        try:
            await self._gone.wait()
            # What it said before it ended may still be on its way.
            await asyncio.wait([listener], timeout=LAST_WORDS_SECONDS)
        finally:
            listener.cancel()
            watcher.cancel()
        return self._judge()

    def _judge(self) -> EncodedResult:
        said = self._last_words
        if said is None or self._killed_for is not None:
            self._process.join(1)
            raise ProcessDied(self._killed_for or describe_exit(self._process.exitcode or 0))
        if said["op"] == "verdict":
            raise RemoteError(
                Verdict(said["kind"], said["error"], retry=said["retry"], after=said["after"])
            )
        return EncodedResult(said["data"].encode())

    async def _listen(self, channel: Channel) -> None:
        context = self._order.run.context
        async for message in channel.messages():
            if message["op"] in ("progress", "log"):
                if context._tell is not None:
                    context._tell(message["op"], message["message"])
            else:
                self._last_words = message

    async def _watch_memory(self) -> None:
        limit = self._order.task.defaults.memory_mb
        if limit is None:
            return
        process = psutil.Process(self._process.pid)
        while True:
            with contextlib.suppress(psutil.Error):
                tree = [process, *process.children(recursive=True)]
                used = sum(part.memory_info().rss for part in tree)
                if used > limit * 1_048_576:
                    self.kill(f"used more than {limit} MiB of memory")
                    return
            await asyncio.sleep(MEMORY_LOOK_SECONDS)

    def has(self, pid: int) -> bool:
        """Whether ``pid`` is this job's process or one below it."""
        if self._process is None or self._gone.is_set():
            return False
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return self._process.pid in (pid, *(parent.pid for parent in process.parents()))
        return False

    def kill(self, reason: str) -> None:
        """Ends it as a crash with this reason."""
        self._killed_for = reason
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills what is left of its process group and waits until the process is gone."""
        if self._process is None:
            return
        self._kill()
        await self._gone.wait()
        self._process.join(0.1)
        with contextlib.suppress(ValueError):
            self._process.close()
        if self._channel is not None:
            self._channel.close()


async def _channel(connection: Connection) -> Channel:
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    return await Channel.open(sock)


async def _uncancelled(work: Any) -> Any:
    """Waits for ``work`` to the end; a cancellation that comes meanwhile is passed on after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()
