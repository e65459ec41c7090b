"""What the measurements share: a server, a lean connection to it, and its CPU clock."""

import os
import socket
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import hiredis

from taskq import calls, lua
from taskq.embedded import EmbeddedServer
from taskq.ids import UlidFactory
from taskq.keys import Keys, QueueKeys
from taskq.model import Claimed, JobSpec

T = TypeVar("T")

QUEUE = "bench"
PAYLOAD = b'{"n":1234}'
assert len(PAYLOAD) == 10

LEASE_MS = 600_000
SCRIPTS = ("enqueue", "claim", "finish", "configure")
new_ulid = UlidFactory()


def keys() -> QueueKeys:
    return Keys().queue(QUEUE)


class Wire:
    """One blocking connection that writes a whole pipeline with one system call, so that the server
    reads it with as few as it can: a SET must not look dearer than it is."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(unquote(urlsplit(url).path))
        self._reader = hiredis.Reader()
        for name in SCRIPTS:
            self.command("SCRIPT", "LOAD", lua.load(name).body)

    def send(self, commands: Sequence[bytes]) -> list[Any]:
        """Sends packed commands as one pipeline and answers all replies. Raises the first error."""
        self._socket.sendall(b"".join(commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 18))
                continue
            if isinstance(reply, hiredis.ReplyError):
                raise reply
            replies.append(reply)
        return replies

    def command(self, *words: Any) -> Any:
        return self.send([_packed(*words)])[0]

    def run(self, call: calls.Call[T]) -> T:
        """Runs one script call alone: a round trip."""
        words = ("EVALSHA", call.script.sha, 1, call.prefix, *call.args)
        return call.parse(self.command(*words))

    def info(self, section: str) -> dict[str, str]:
        text = self.command("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def close(self) -> None:
        self._socket.close()


def _packed(*words: Any) -> bytes:
    packed: bytes = hiredis.pack_command(words)
    return packed


@dataclass(frozen=True, slots=True)
class Rig:
    """A running server and a connection to it."""

    server: EmbeddedServer
    wire: Wire

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def version(self) -> str:
        info = self.wire.info("server")
        if "valkey_version" in info:
            return f"Valkey {info['valkey_version']}"
        return f"Redis {info['redis_version']}"

    def cpu_us(self) -> float:
        """CPU time of the server process so far, all threads, user and system, in microseconds."""
        info = self.wire.info("cpu")
        return 1e6 * (float(info["used_cpu_user"]) + float(info["used_cpu_sys"]))

    def memory(self) -> int:
        """``used_memory`` of the server in bytes."""
        return int(self.wire.info("memory")["used_memory"])

    def empty(self) -> None:
        self.wire.command("FLUSHALL", "SYNC")


@contextmanager
def rig(*, persistent: bool = False) -> Iterator[Rig]:
    """A throw-away server as ``taskq dev`` starts it; ``persistent`` with its append-only file."""
    with EmbeddedServer(persistent=persistent) as server:
        wire = Wire(server.url)
        try:
            yield Rig(server, wire)
        finally:
            wire.close()


class Meter:
    """Adds up server CPU by name: ``with meter("claim"): ...``."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.us: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = self._rig.cpu_us()
        yield
        self.us[name] = self.us.get(name, 0.0) + self._rig.cpu_us() - before


class CommandCounter:
    """Adds up the commands that the server runs, those of scripts included, by name and exactly."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.counts: dict[str, Counter[str]] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._rig.wire.command("CONFIG", "RESETSTAT")
        yield
        counted = self.counts.setdefault(name, Counter())
        for entry, values in self._rig.wire.info("commandstats").items():
            command = entry.removeprefix("cmdstat_")
            if command not in ("info", "config|resetstat"):
                counted[command] += int(values.split(",")[0].removeprefix("calls="))


class Yardstick:
    """The unit of server CPU: one SET of 10 bytes to a new key, out of pipelines of 100."""

    KEYS = 10_000

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._wire = Wire(rig.url)
        self._wire.command("SELECT", 1)  # apart from the jobs, so that it can be emptied

    def us(self) -> float:
        """Microseconds of one SET just now. The keys are gone afterwards, off the clock."""
        pipelines = [
            [_packed("SET", f"set:{new_ulid()}", PAYLOAD) for _ in range(100)]
            for _ in range(self.KEYS // 100)
        ]
        before = self._rig.cpu_us()
        for pipeline in pipelines:
            self._wire.send(pipeline)
        used = self._rig.cpu_us() - before
        self._wire.command("FLUSHDB", "SYNC")
        return used / self.KEYS

    def close(self) -> None:
        self._wire.close()


def spec(job_type: str = "noop", payload: bytes = PAYLOAD) -> JobSpec:
    return JobSpec(id=new_ulid(), job_type=job_type, payload=payload)


def fill(
    rig: Rig, n: int, *, job_types: Sequence[str] = ("noop",), payload: bytes = PAYLOAD
) -> None:
    """Puts ``n`` jobs in line, the types taking turns."""
    for start in range(0, n, 1000):
        specs = [
            spec(job_types[i % len(job_types)], payload) for i in range(start, min(n, start + 1000))
        ]
        outcomes = rig.wire.run(calls.enqueue(keys(), specs))
        if not all(o.created for o in outcomes):
            raise RuntimeError(f"not stored: {outcomes[0]}")


class Worker:
    """A worker id with its call number: claims and finishes as a worker process would."""

    _made = 0

    def __init__(self, rig: Rig, job_types: Sequence[str] = ("noop",)) -> None:
        Worker._made += 1
        self.id = f"bench-{os.getpid()}-{Worker._made:06x}"
        self._rig = rig
        self._job_types = job_types
        self._call = 0

    def claim(self, n: int) -> tuple[Claimed, ...]:
        self._call += 1
        reply = self._rig.wire.run(
            calls.claim(keys(), self.id, self._call, n, self._job_types, lease_ms=LEASE_MS)
        )
        if reply.status != "OK" or len(reply.jobs) != n:
            raise RuntimeError(f"claimed {len(reply.jobs)} of {n} jobs: {reply.status}")
        return reply.jobs

    def finish(self, jobs: Iterable[Claimed]) -> None:
        done = [calls.Success(job.ulid, job.fence, b"null") for job in jobs]
        words = self._rig.wire.run(calls.finish(keys(), self.id, done))
        if words != ["OK"] * len(done):
            raise RuntimeError(f"not finished: {words}")


def middle_half(values: Iterable[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


def median(values: Iterable[float]) -> float:
    return statistics.median(values)
