"""Faults of the server, and what else the fault tests are made of.

Each fault raises AssertionError when it did not really happen.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import redis

from support.ledger import Ledger, Line
from support.place import GRACE, JANITOR, LEASE, QUEUE, RECOVERY, Place, last
from support.processes import Api, Process
from support.relay import Relay
from support.verdict import Verdict
from support.workers import until
from taskq import lua


def _admin(place: Place, **options: Any) -> Any:
    return redis.Redis.from_url(place.url, **{"socket_timeout": 30, **options})


def _refused(place: Place, word: str) -> bool:
    """Whether a write is refused with this word now."""
    with _admin(place, socket_timeout=2) as client:
        try:
            client.set("fault:probe", "x" * 5000, px=1000)
        except (redis.RedisError, OSError) as error:
            return word in str(error) or word in type(error).__name__
    return False


@contextmanager
def readonly(place: Place) -> Iterator[None]:
    """A failover: the server is somebody's replica."""
    with place.outage(), _admin(place) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert _refused(place, "READONLY") or _refused(place, "read only")
            yield
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    assert not _refused(place, "READONLY")


@contextmanager
def noreplicas(place: Place) -> Iterator[None]:
    with place.outage(), _admin(place) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            assert _refused(place, "NOREPLICAS")
            yield
        finally:
            client.config_set("min-replicas-to-write", 0)


@contextmanager
def busy(place: Place) -> Iterator[None]:
    """Somebody's script does not end; also PING is refused."""

    def spin() -> None:
        with contextlib.suppress(redis.RedisError), _admin(place, socket_timeout=120) as client:
            client.eval("while true do end", 0)

    with place.outage(), _admin(place) as client:
        client.config_set("lua-time-limit", 50)
        spinner = threading.Thread(target=spin, daemon=True)
        spinner.start()
        try:
            until(lambda: _answers(client, "BUSY"), 10, "the server is busy")
            yield
        finally:
            client.script_kill()
            spinner.join(10)


def _answers(client: Any, word: str) -> bool:
    try:
        client.ping()
    except redis.RedisError as error:
        return word in str(error).upper() or word in type(error).__name__.upper()
    return False


def fill(place: Place, n: int = 1000) -> None:
    """Keys that make a load take time; none of taskq's."""
    with _admin(place) as client:
        pipe = client.pipeline(transaction=False)
        for i in range(n):
            pipe.set(f"fill:{i}", "x" * 1500)
        pipe.execute()


@contextmanager
def loading(place: Place) -> Iterator[None]:
    """The server loads its data for as long as the block lasts; needs ``fill``."""

    def reload() -> None:
        with contextlib.suppress(redis.RedisError), _admin(place, socket_timeout=120) as client:
            client.execute_command("DEBUG", "RELOAD")

    with place.outage(), _admin(place) as client:
        # Longer than any block: the delay is taken away at its end, which the server obeys while it loads.
        client.config_set("key-load-delay", 60_000)
        client.config_set("loading-process-events-interval-bytes", 1024)
        reloader = threading.Thread(target=reload, daemon=True)
        reloader.start()
        try:
            until(lambda: _answers(client, "LOADING"), 10, "the server is loading")
            yield
            assert _answers(client, "LOADING"), "the server was loading until the end"
        finally:
            client.config_set("key-load-delay", 0)
            reloader.join(30)
            until(lambda: not _answers(client, "LOADING"), 30, "it is loaded")


@contextmanager
def paused(place: Place, seconds: float, what: str = "ALL") -> Iterator[None]:
    """CLIENT PAUSE; the pause ends by itself."""
    with place.outage(), _admin(place) as client, _admin(place, socket_timeout=0.1) as other:
        client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), what)
        began = time.monotonic()
        with contextlib.suppress(redis.RedisError):
            other.set("fault:probe", 1, px=1000)
            raise AssertionError("the server was not paused")
        yield
        rest = seconds - (time.monotonic() - began)
        if rest > 0:
            time.sleep(rest)


def flush_scripts(place: Place) -> None:
    with _admin(place) as client, client.pipeline(transaction=True) as pipe:
        pipe.execute_command("SCRIPT", "FLUSH", "SYNC")
        pipe.execute_command("SCRIPT", "EXISTS", lua.load("claim").sha)
        flushed, exists = pipe.execute()
        assert flushed in (b"OK", "OK", True)
        assert not exists[0]


def kill_connections(place: Place) -> int:
    with _admin(place) as client:
        killed = int(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    assert killed > 0
    return killed


@contextmanager
def memory_full(place: Place) -> Iterator[None]:
    """Less room than an empty server needs: what the janitor drops early does not end it."""
    with _admin(place) as client:
        client.config_set("maxmemory", 1)
        try:
            assert _refused(place, "OutOfMemory")
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP of a process, and SIGCONT at the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 5, "stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def server_stopped(place: Place) -> Iterator[None]:
    """SIGSTOP of the server: connections stay, nothing answers."""
    with place.outage(), stopped(place.server.pid):
        yield


@contextmanager
def server_killed(place: Place, *, politely: bool = False) -> Iterator[None]:
    """kill -9 (or SIGTERM) of the server, and its start on the same data."""
    with place.outage():
        before = place.server.pid
        if politely:
            os.kill(before, signal.SIGTERM)
            until(lambda: not place.server.running, 10, "the server has ended")
        else:
            place.server.kill()
        assert not place.server.running
        try:
            yield
        finally:
            place.server.start()
        assert place.server.pid != before


@contextmanager
def half_open(place: Place, relay: Relay) -> Iterator[None]:
    """What goes through the relay gets nowhere, and no end of a connection is seen."""
    before = relay.held
    with place.outage():
        relay.freeze()
        try:
            yield
            until(lambda: relay.held > before, 10, "something was held back")
        finally:
            relay.thaw()


__all__ = [
    "GRACE",
    "JANITOR",
    "LEASE",
    "QUEUE",
    "RECOVERY",
    "Api",
    "Ledger",
    "Line",
    "Place",
    "Process",
    "Verdict",
    "busy",
    "fill",
    "flush_scripts",
    "half_open",
    "kill_connections",
    "last",
    "loading",
    "memory_full",
    "noreplicas",
    "paused",
    "readonly",
    "server_killed",
    "server_stopped",
    "until",
]
