"""Starts the other side of a measurement: a module of this package, or a real worker."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLOTS = 100


def worker_missing() -> str:
    """Why no worker can be started here; '' where one can."""
    for module in ("taskq.app", "taskq.cli", "taskq_worker.cli"):
        if importlib.util.find_spec(module) is None:
            return f"there is no {module}"
    return ""


@contextmanager
def worker(url: str) -> Iterator[None]:
    """``taskq worker``: one process, 100 slots, the queue ``bench``; SIGTERM at the end."""
    command = Path(sys.executable).with_name("taskq")
    with _running(
        [str(command), "worker", "-A", "bench.app:app", "-q", "bench", "-c", str(SLOTS)], url
    ):
        yield


@contextmanager
def module(name: str, argument: str) -> Iterator[int]:
    """``python -m bench.<name>``, and its pid; SIGTERM at the end. ``argument`` is the server's URL, where
    it needs one."""
    with _running([sys.executable, "-m", f"bench.{name}", argument], argument) as pid:
        yield pid


@contextmanager
def api(url: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """``taskq api`` on a free port; SIGTERM at the end."""
    command = [str(Path(sys.executable).with_name("taskq")), "api", "--port", "0"]
    environment = _environment(url)
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+) ", line):
                yield int(found[1]), process
                return
        raise RuntimeError("taskq api did not start")
    finally:
        process.terminate()
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()


def _environment(url: str) -> dict[str, str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TASKQ_")}
    return environment | {"TASKQ_REDIS_URL": url}


@contextmanager
def _running(command: list[str], url: str) -> Iterator[int]:
    environment = _environment(url) | {"TASKQ_LOG_LEVEL": "error"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield process.pid
        if process.poll() not in (None, 0):
            raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(reached: Callable[[], bool], what: str, seconds: float = 60.0) -> float:
    """The time (``time.monotonic()``) at which ``reached`` first held, looked at every 5 ms.

    Raises ``TimeoutError`` naming ``what``.
    """
    until = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} took more than {seconds:g} s")
        time.sleep(0.005)
    return time.monotonic()
