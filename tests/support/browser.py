"""A headless Chromium, and a dashboard for it: a server, the API and workers of their own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support.workers import COMMAND, until
from taskq.embedded import EmbeddedServer

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WORKER_SECONDS = 60.0
QUEUES = "default,sums,later,nasty,calm,shelf,paged"
"""Those that the worker serves; each test has its own."""


def chromium() -> str | None:
    """Where a Chromium is: TASKQ_TEST_CHROMIUM, or the first of the usual names on the path."""
    named = os.environ.get("TASKQ_TEST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Shop:
    """What a page talks to. The URL is that of the API."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.fixed = folder / "fixed"
        self._processes: list[subprocess.Popen[bytes]] = []
        tests = Path(__file__).parent.parent
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TASKQ_")},
            "TASKQ_REDIS_URL": server.url,
            "TASKQ_LEASE_SECONDS": "5",
            "TASKQ_GRACE_SECONDS": "1",
            "SHOP_FIXED": str(self.fixed),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")])),
        }
        self.url = ""

    def start_api(self, **environment: str) -> str:
        log = self._start("api", "--port", "0", **environment)
        listening = re.compile(r"listening on (http://[^ ]*:\d+) ")
        found = until(
            lambda: listening.search(log.read_text()), WORKER_SECONDS, f"the API listens: {log}"
        )
        url: str = found[1]
        self.url = self.url or url
        return url

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A worker of the shop, once it is registered."""
        before = self.workers()
        self._start("worker", "-A", "support.shopapp:app", "-q", QUEUES, "-c", "8", *arguments)
        until(lambda: self.workers() - before, WORKER_SECONDS, "the worker is there")
        return self._processes[-1]

    def workers(self) -> set[str]:
        return {worker["id"] for worker in self.get("/workers")["workers"]}

    def get(self, path: str) -> Any:
        answer = httpx.get(self.url + path, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = httpx.post(self.url + path, json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def patch(self, path: str, body: Any) -> Any:
        answer = httpx.patch(self.url + path, json=body, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def submit(self, job_type: str, payload: Any, **options: Any) -> str:
        job_id: str = self.post("/jobs", {"job_type": job_type, "payload": payload, **options})[
            "id"
        ]
        return job_id

    def wait(self, job_id: str, state: str) -> Any:
        """The job, once it is in this state."""

        def look() -> Any:
            job = self.get(f"/jobs/{job_id}")
            return job if job["state"] == state else None

        return until(look, WORKER_SECONDS, f"{job_id} is {state}")

    def _start(self, *arguments: str, **environment: str) -> Path:
        log = self.folder / f"{arguments[0]}-{len(self._processes)}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                env={**self.environment, **environment},
                stderr=stderr,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


@contextmanager
def opened(folder: Path) -> Iterator[Shop]:
    """A shop with its own server, without API and worker yet."""
    with EmbeddedServer() as server:
        shop = Shop(server, folder)
        try:
            yield shop
        finally:
            shop.end()
