"""Real worker processes for tests, and what they left in the ledger."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from support import probe
from support.ledger import whole_lines
from taskq.embedded import EmbeddedServer

LEASE_SECONDS = 3.0
JANITOR_SECONDS = 1.0
GRACE_SECONDS = 2.0
COMMAND = "from taskq.cli import main; main()"


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition to hold and answers its value; fails with ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    event: str
    job_id: str
    attempt: int
    fence: int
    pid: int
    at: float


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in whole_lines(self.path)]

    def entries(self, event: str) -> list[Entry]:
        return [
            Entry(w[0], w[1], int(w[2]), int(w[3]), int(w[4]), float(w[5]))
            for w in self.lines()
            if w[0] == event
        ]

    def starts(self) -> list[Entry]:
        return self.entries("START")

    def ends(self) -> list[Entry]:
        return self.entries("END")


class Worker:
    """``taskq worker`` over the probe application, in a session of its own."""

    def __init__(self, environment: dict[str, str], *arguments: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "worker", "-A", "support.probe:app", *arguments],
                env=environment,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        """Pids of the children that run jobs."""
        try:
            return [child.pid for child in psutil.Process(self.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def signal_all(self, number: int) -> None:
        """To the supervisor and all below it, children first."""
        for pid in [*self.children(), self.pid]:
            os.kill(pid, number)

    def stop(self, timeout: float = 10) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def end(self) -> None:
        for pid in [*self.children(), self.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(10)


class Site:
    """One server, one ledger, and the workers a test starts; all ended with the test."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.app = probe.app
        self.workers: list[Worker] = []
        tests = Path(__file__).parent.parent
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TASKQ_")},
            "TASKQ_REDIS_URL": server.url,
            "TASKQ_LEASE_SECONDS": str(LEASE_SECONDS),
            "TASKQ_JANITOR_SECONDS": str(JANITOR_SECONDS),
            "TASKQ_GRACE_SECONDS": str(GRACE_SECONDS),
            "PROBE_LEDGER": str(self.ledger.path),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")])),
        }

    def worker(self, *arguments: str, ready: bool = True, **environment: str) -> Worker:
        """Starts a worker; with ``ready`` waits until it is registered."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        worker = Worker({**self.environment, **environment}, *arguments, log=log)
        self.workers.append(worker)
        if ready:
            until(
                lambda: self._registered(worker), 20, f"worker is ready; its log: {log.read_text()}"
            )
        return worker

    def _registered(self, worker: Worker) -> bool:
        assert worker.process.poll() is None, worker.log.read_text()
        store = self.app.sync_client().store
        ids: Any = store.redis.zrange("taskq:workers", 0, -1)
        owners = [store.redis.hget(f"taskq:worker:{i.decode()}", "supervisor_pid") for i in ids]
        return str(worker.pid).encode() in owners

    def gate(self, name: str = "gate") -> str:
        """Path of a gate file, closed at first."""
        return str(self.folder / name)

    def open_gate(self, name: str = "gate") -> None:
        Path(self.gate(name)).touch()

    def state(self, job_id: str) -> str:
        return str(self.app.sync_client().job(job_id).state)

    def history(self, job_id: str) -> list[str]:
        return [event["event"] for event in self.app.sync_client().job(job_id).history]

    def findings(self) -> list[Any]:
        """What ``taskq doctor`` finds, warnings about the server's settings left out."""
        out = subprocess.run(
            [sys.executable, "-c", COMMAND, "doctor", "--json"],
            env=self.environment,
            capture_output=True,
            check=False,
        )
        report = json.loads(out.stdout)
        findings = report["findings"] if isinstance(report, dict) else report
        return [f for f in findings if f.get("severity") == "error"]

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.app.close_sync()


@contextmanager
def site(server: EmbeddedServer, folder: Path) -> Iterator[Site]:
    place = Site(server, folder)
    # The probe application is one for all sites: while this one is open, it is this one's.
    before = (probe.app._settings, os.environ.get("PROBE_LEDGER", ""))
    probe.app.close_sync()
    os.environ["PROBE_LEDGER"] = str(place.ledger.path)
    probe.app.use_settings(_settings(server.url))
    try:
        yield place
    finally:
        place.close()
        if before[0] is not None:
            probe.app.use_settings(before[0])
            os.environ["PROBE_LEDGER"] = before[1]


def _settings(url: str) -> Any:
    from taskq.settings import load_settings

    return load_settings(redis_url=url, lease_seconds=LEASE_SECONDS)
