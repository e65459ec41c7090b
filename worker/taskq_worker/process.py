"""The processes below a supervisor: started, watched for signs of life, ended with all they started."""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import psutil

from taskq_worker import shared
from taskq_worker.control import Channel
from taskq_worker.options import ChildOptions
from taskq_worker.shared import SharedPage

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans of our children become ours, so that none is left running (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(known: set[int], *, kill: bool) -> int:
    """Collects processes that came to us because their parent died; with ``kill`` ends those that run.

    Answers how many were ended. ``known`` are our own children, which have a waiter each.
    """
    ended = 0
    for orphan in psutil.Process().children():
        if orphan.pid in known:
            continue
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if orphan.status() != psutil.STATUS_ZOMBIE:
                if not kill:
                    continue
                orphan.kill()
                ended += 1
            os.waitpid(orphan.pid, 0)
    return ended


def _private_folder(spare: str = "/dev/shm") -> str:
    """A folder for a child's sockets: in the usual place, or in shared memory where nothing else can be
    written (a container with a read-only file system and no /tmp of its own)."""
    try:
        return tempfile.mkdtemp(prefix="taskq-child-")
    except OSError:
        if not os.path.isdir(spare):
            raise
        return tempfile.mkdtemp(prefix="taskq-child-", dir=spare)


class ChildProcess:
    """One child: its process group, channel and page of signs of life."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: Channel,
        page: SharedPage,
        folder: str,
    ) -> None:
        self.process = process
        self.pid = process.pid
        self.channel = channel
        self.page = page
        self._folder = folder
        self.started_at = time.monotonic()
        self._ticks = -1
        self._cpu = -1.0
        self._alive_at = time.monotonic()

    @classmethod
    async def start(cls, options: ChildOptions) -> "ChildProcess":
        """Starts a fresh interpreter in a process group of its own."""
        ours, theirs = socket.socketpair()
        page_fd = shared.create()
        folder = _private_folder()
        handed = {**asdict(options), "fds": [theirs.fileno(), page_fd], "folder": folder}
        environment = {**os.environ, ChildOptions.ENVIRONMENT: json.dumps(handed)}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "taskq_worker.child",
                env=environment,
                pass_fds=(theirs.fileno(), page_fd),
                process_group=0,
                stdin=asyncio.subprocess.DEVNULL,
            )
            page = SharedPage(page_fd)
        except BaseException:
            ours.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
            os.close(page_fd)
        return cls(process, await Channel.open(ours), page, folder)

    def silent_seconds(self, now: float) -> float:
        """How long the loop has not ticked."""
        ticks = self.page.ticks
        if ticks != self._ticks:
            self._ticks, self._alive_at = ticks, now
        return now - self._alive_at

    def used_cpu(self) -> bool:
        """Whether it has used processor time since the last question: busy in one long call, or not."""
        cpu = _cpu_seconds(self.pid)
        used = cpu is None or cpu > self._cpu + 0.005
        self._cpu = -1.0 if cpu is None else cpu
        return used

    def stopped(self) -> bool:
        """Whether it was stopped by a signal (SIGSTOP)."""
        with contextlib.suppress(OSError, IndexError):
            stat = Path(f"/proc/{self.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] in ("T", "t")
        return False

    def forget_silence(self) -> None:
        """We were stopped or starved ourselves: what was not seen meanwhile says nothing."""
        self._alive_at = time.monotonic()

    def kill_tree(self) -> None:
        """SIGKILL to the whole process group, whether its leader lives or not."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> str:
        """Waits for the end; then nothing of its process group runs any more. Answers why it ended."""
        code = await self.process.wait()
        self.kill_tree()
        return describe_exit(code)

    def close(self) -> None:
        self.channel.close()
        self.page.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def describe_exit(code: int) -> str:
    """``signal 9``, ``exit 3`` ..., as histories and errors say it."""
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
