"""Faults of Redis: nobody crashes, nobody spins, and all goes on by itself."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psutil
import pytest

from support.faults import (
    LEASE,
    Api,
    Place,
    busy,
    fill,
    flush_scripts,
    last,
    loading,
    memory_full,
    noreplicas,
    paused,
    readonly,
    server_killed,
    server_stopped,
    until,
)

pytestmark = pytest.mark.beside
DURABLE = {"persistent": True, "appendfsync": "always"}


@contextmanager
def traffic(place: Place, every: float = 0.03) -> Iterator[list[str]]:
    """Keeps submitting, as a client that gives up on no job."""
    stop = threading.Event()
    ids: list[str] = []

    def feed() -> None:
        while not stop.is_set():
            ids.extend(place.submit("work", [{"seconds": 0.02}], tries=20))
            last(every)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield ids
    finally:
        stop.set()
        feeder.join()


def _consumes_again(place: Place, seconds: float) -> float:
    """A job that is submitted now starts within so many seconds; answers how long it took."""
    began = time.time()
    (job,) = place.submit("work", 1, tries=20)
    until(lambda: place.ledger.starts(job), seconds, "it consumes again")
    return place.ledger.starts(job)[0].at - began


def _calm(place: Place, seconds: float) -> None:
    """No traceback, and about a line a second from each place that may fail in a loop."""
    for process in place.processes:
        text = process.text()
        assert "Traceback" not in text, text
        stamps = Counter(
            (m[1], m[2])
            for m in re.finditer(r"^\S+ (\S+?),\d+ WARNING\s+(\S+?)\[", text, re.MULTILINE)
        )
        assert max(stamps.values(), default=0) <= 8, stamps.most_common(3)


def _unavailable(api: Api) -> None:
    """V7 and V8 while the fault lasts: not ready, and no 2xx for what cannot be stored."""
    status, body, headers = api.post("work")
    assert status == 503, (status, body)
    assert "Retry-After" in {h.title() for h in headers}
    assert api.ready() == 503


Fault = Callable[[Place], AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {"READONLY": readonly, "NOREPLICAS": noreplicas, "BUSY": busy}


@pytest.mark.parametrize("word", ["READONLY", "NOREPLICAS", "BUSY"])
@pytest.mark.parametrize("load", ["idle", "under load"])
@pytest.mark.beside(seconds=22)
def test_f46_writes_are_refused(place: Place, word: str, load: str) -> None:
    """F46: READONLY (also NOREPLICAS, BUSY) for 4 s: 503 meanwhile, consuming 5 s after, no restart."""
    worker = place.worker("-c", "10")
    api = place.api()
    pids = worker.tree()
    if load == "idle":
        with FAULTS[word](place):
            _unavailable(api)
            last(3)
        took = _consumes_again(place, 5)
    else:
        with traffic(place):
            last(0.5)
            with FAULTS[word](place):
                _unavailable(api)
                last(2)
            took = _consumes_again(place, 5)
    until(lambda: api.ready() == 200, 5, "the API is ready again")
    v = place.verdict(30)
    assert worker.tree() == pids
    _calm(place, 4)
    place.note(f"{word} {load}: {v.figures()} consuming_after={took:.2f}s")


@pytest.mark.beside(seconds=20)
def test_f43_memory_is_full(place: Place) -> None:
    """F43: maxmemory below what is used: new jobs are refused, leases renewed, ends reported."""
    place.worker("-c", "20")
    api = place.api()
    running = place.submit("work", [{"seconds": 1.5 * LEASE}] * 10)
    place.wait_started(10)
    waiting = place.submit("work", 300)
    with memory_full(place):
        status, body, _ = api.post("work")
        assert status in (503, 507), (status, body)
        assert api.ready() == 503
        place.wait_ended([*running, *waiting], 20)
    # Ended jobs are dropped early where memory is short: what ran to its end may be gone.
    v = place.verdict(20, trimmed=True)
    assert not v.duplicated
    assert _consumes_again(place, 5) < 5
    _calm(place, 4)
    place.note(v.figures())


@pytest.mark.beside(seconds=20, server=DURABLE)
def test_f45_scripts_are_flushed(place: Place) -> None:
    """F45: SCRIPT FLUSH every 100 ms under load, then a restart with an empty cache: nobody notices."""
    worker = place.worker("-c", "10")
    with traffic(place):
        for _ in range(40):
            flush_scripts(place)
            last(0.1)
        with server_killed(place, politely=True):
            last(0.3)
        assert _consumes_again(place, 8) < 8
    v = place.verdict(30)
    assert "NOSCRIPT" not in worker.text()
    _calm(place, 4)
    place.note(v.figures())


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
@pytest.mark.beside(seconds=20, server=DURABLE)
def test_f48_restart_on_the_same_data(place: Place, how: str) -> None:
    """F48: kill -9 and SIGTERM with appendfsync always, under load: nothing acknowledged is lost."""
    worker = place.worker("-c", "10")
    with traffic(place, every=0.005):
        for _ in range(3):
            last(0.4)
            with server_killed(place, politely=how == "SIGTERM"):
                last(0.3)
        took = _consumes_again(place, 8)
    v = place.verdict(30)
    assert worker.alive
    place.note(f"{how}: {v.figures()} consuming_after={took:.2f}s")


EVERYSEC = {"persistent": True, "appendfsync": "everysec"}


@pytest.mark.beside(seconds=20, server=EVERYSEC)
def test_f48_clean_restart_with_everysec(place: Place) -> None:
    """P1: after a SIGTERM the file is whole: nothing acknowledged is lost."""
    place.worker("-c", "10")
    with traffic(place, every=0.005):
        for _ in range(3):
            last(0.4)
            with server_killed(place, politely=True):
                last(0.3)
    place.note(place.verdict(30).figures())


@pytest.mark.beside(seconds=20, server=EVERYSEC)
def test_f48_kill_9_with_everysec(place: Place) -> None:
    """P1: at most what was acknowledged in the last two seconds before a kill is gone, and is counted."""
    place.worker("-c", "10")
    with traffic(place, every=0.005):
        for _ in range(4):
            last(0.8)
            with server_killed(place):
                last(0.3)
    # What a run has reported may be forgotten as well, and then it runs again.
    v = place.verdict(30, rerun_allowed=lambda *_: True, raises=False)
    answered, kills = place.acknowledged_at(), [began for began, _ in place.outages]
    too_old = [i for i in v.lost if not any(0 <= kill - answered[i] <= 2 for kill in kills)]
    assert not too_old, too_old
    rest = [problem for problem in v.problems if not problem.startswith("V1 lost")]
    assert not rest, rest
    place.note(f"4 kills: {v.figures()}")


@pytest.mark.beside(seconds=25)
def test_f48_start_while_loading(place: Place) -> None:
    """F48: workers and API are started while the server loads its data: both wait and come up."""
    fill(place)
    place.submit("work", 5)
    with loading(place):
        worker = place.worker("-c", "10", ready=False)
        process = place.process("api", "--port", "0")
        until(lambda: process.url() and worker.children(), 30, "both are up")
        api = Api(process, process.url() or "")
        assert api.ready() == 503
    v = place.verdict(15)
    assert worker.alive
    until(lambda: api.ready() == 200, 5, "the API is ready")
    place.note(v.figures())


@pytest.mark.beside(seconds=20)
def test_f50_redis_is_down(place: Place) -> None:
    """F50 (short): the server is gone for 6 s: little CPU, flat memory, few log lines, and back at once."""
    worker = place.worker("-c", "10")
    tree = [psutil.Process(pid) for pid in worker.tree()]
    place.submit("work", 20)
    place.verdict(20)
    with server_killed(place):
        last(0.5)
        cpu = sum(sum(p.cpu_times()[:2]) for p in tree)
        rss = sum(p.memory_info().rss for p in tree)
        last(6)
        cpu = (sum(sum(p.cpu_times()[:2]) for p in tree) - cpu) / 6
        grown = sum(p.memory_info().rss for p in tree) - rss
    # In memory only: what was there before is gone with the server.
    place.ledger.path.write_text("")
    assert _consumes_again(place, 6) < 6
    _calm(place, 6)
    assert cpu < 0.10, f"{cpu:.0%} of a core"
    assert grown < 3_000_000
    place.note(f"down for 6 s: {cpu:.1%} CPU for supervisor and child, {grown / 1e6:+.1f} MB")


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=610)
def test_f50_redis_is_down_for_ten_minutes(place: Place) -> None:
    """F50 in full."""
    worker = place.worker("-c", "10")
    tree = [psutil.Process(pid) for pid in worker.tree()]
    with server_killed(place):
        last(5)
        cpu = sum(sum(p.cpu_times()[:2]) for p in tree)
        rss = sum(p.memory_info().rss for p in tree)
        last(600)
        cpu = (sum(sum(p.cpu_times()[:2]) for p in tree) - cpu) / 600
        grown = sum(p.memory_info().rss for p in tree) - rss
    assert _consumes_again(place, 6) < 6
    assert cpu < 0.10
    assert grown < 3_000_000
    place.note(f"down for 600 s: {cpu:.1%} CPU, {grown / 1e6:+.1f} MB")


@pytest.mark.parametrize("how", ["CLIENT PAUSE", "SIGSTOP", "BUSY", "LOADING", "kill -9"])
@pytest.mark.beside(seconds=20, server=DURABLE)
def test_f49_the_server_stalls(place: Place, how: str) -> None:
    """F49: nobody is answered for longer than a lease, with runs under way: none runs twice."""
    worker = place.worker("-c", "10")
    fill(place)
    place.submit("work", [{"seconds": 2.3 * LEASE}] * 5)
    place.wait_started(5)
    match how:
        case "CLIENT PAUSE":
            with paused(place, 1.4 * LEASE):
                pass
        case "SIGSTOP":
            with server_stopped(place):
                last(1.4 * LEASE)
        case "BUSY":
            with busy(place):
                last(1.4 * LEASE)
        case "LOADING":
            with loading(place):
                last(1.4 * LEASE)
        case "kill -9":
            with server_killed(place):
                last(1.4 * LEASE)
    assert _consumes_again(place, 6) < 6
    v = place.verdict(30)
    assert not v.duplicated, worker.text()
    place.note(f"{how}: {v.figures()}")
