"""The commands of taskq as processes of a fault test, and the API as a client sees it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

COMMAND = "from taskq.cli import main; main()"
LISTENING = re.compile(r"listening on (http://\S+) ")


class Process:
    """A ``taskq`` command in a session of its own; ``prefix`` says on which host.

    It starts in the folder of its log: Python would find the sources of this checkout in the current
    directory, before those of another version that PYTHONPATH names.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        log: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [*prefix, sys.executable, "-c", COMMAND, *arguments],
                env=environment,
                cwd=log.parent,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def tree(self) -> list[int]:
        """Pids of all below it, and its own last."""
        try:
            below = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            below = []
        return [*(p.pid for p in below), self.pid]

    def children(self) -> list[int]:
        """Pids of the children that run jobs."""
        try:
            return [p.pid for p in psutil.Process(self.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: int, *pids: int) -> None:
        for pid in pids or self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """kill -9 of the whole tree, as a host that dies."""
        self.signal(signal.SIGKILL)
        self.popen.wait(10)

    def stop(self, timeout: float = 15) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def url(self) -> str | None:
        """Where this API listens, once it does."""
        found = LISTENING.search(self.text())
        return found[1] if found else None


@dataclass
class Api:
    """``taskq api`` as a client sees it."""

    process: Process
    url: str

    def send(
        self, method: str, path: str, body: Any = None, timeout: float = 30, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """(status, body, headers); status 0 when the connection broke."""
        data = None if body is None else json.dumps(body).encode()
        sent = {
            "content-type": "application/json",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null"), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null"), dict(error.headers)
        except OSError:
            return 0, None, {}

    def post(
        self, job_type: str, payload: Any = None, **options: Any
    ) -> tuple[int, Any, dict[str, str]]:
        return self.send(
            "POST", "/jobs", {"job_type": job_type, "payload": payload or {}, **options}
        )

    def ready(self) -> int:
        return self.send("GET", "/ready")[0]
