"""How soon the jobs of what died can be claimed again: a child process, a whole host.

A few deaths in the daily suite; ``make chaos`` does many and holds them to the promise itself.
"""

import functools
import signal
import time
from collections.abc import Callable

import pytest

from support.faults import JANITOR, LEASE, Place, Process, until

pytestmark = pytest.mark.beside

CHILD = 1.0
HOST = LEASE + JANITOR + 2
BUSY = 2.0
"""What a machine adds that runs seven scenarios beside each other."""


def _held(place: Place, *pids: int) -> list[str]:
    """The lists of claimed jobs of these processes that hold any."""
    names = [n.decode() for n in place.admin.scan_iter(place.queue.prefix + "processing:*")]
    return [n for n in names if int(n.rsplit("processing:", 1)[1].split(":")[1]) in pids]


def _round(place: Place, workers: int, n: int) -> tuple[list[Process], str]:
    """Workers with ten jobs each that run until their gate is opened."""
    gate = str(place.folder / f"gate-{n}")
    fleet = [w for w in place.processes if w.alive]
    fleet += place.workers(workers - len(fleet), "-c", "10", "--processes", "2")
    before = len(place.ledger.starts())
    place.submit("work", [{"gate": gate}] * 10 * workers)
    place.wait_started(before + 10 * workers)
    return fleet, gate


def _claimable_after(place: Place, kill: Callable[[], object], *pids: int) -> list[float]:
    """Seconds from their death until each list of what these processes held was empty, for each job on it."""
    lists = {name: place.admin.llen(name) for name in _held(place, *pids)}
    out: list[float] = []
    began = time.monotonic()
    kill()

    def all_moved() -> bool:
        for name in list(lists):
            left = place.admin.llen(name)
            out.extend([time.monotonic() - began] * (lists[name] - left))
            lists[name] = left
            if not left:
                del lists[name]
        return not lists

    until(all_moved, 30, "all of them are in line again")
    return out


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]


def _report(place: Place, what: str, deaths: int, times: list[float], limit: float) -> None:
    times.sort()
    place.note(
        f"{deaths} deaths of {what}, {len(times)} jobs: claimable after "
        f"p50={times[len(times) // 2]:.2f}s p99={_p99(times):.2f}s max={times[-1]:.2f}s"
    )
    assert _p99(times) < limit, times[-20:]


def _children(place: Place, deaths: int, limit: float) -> None:
    times: list[float] = []
    for n in range(deaths):
        (worker,), gate = _round(place, 1, n)
        victim = next(pid for pid in worker.children() if _held(place, pid))
        place.disturb(*worker.tree())
        kill = functools.partial(worker.signal, signal.SIGKILL, victim)
        times += _claimable_after(place, kill, victim)
        open(gate, "w").close()
        place.wait_ended(list(place.tried()), 60)
    place.verdict(60)
    _report(place, "a child", deaths, times, limit)


def _hosts(place: Place, deaths: int, limit: float) -> None:
    times: list[float] = []
    for n in range(deaths):
        fleet, gate = _round(place, 2, n)
        victim = next(worker for worker in fleet if _held(place, *worker.children()))
        kill = functools.partial(place.kill, victim)
        times += _claimable_after(place, kill, *victim.tree())
        open(gate, "w").close()
        place.wait_ended(list(place.tried()), 60)
    place.verdict(60)
    _report(place, "a host", deaths, times, limit)


@pytest.mark.beside(seconds=20)
def test_jobs_of_a_dead_child_are_claimable_within_a_second(place: Place) -> None:
    """F91: a child process."""
    _children(place, 3, CHILD + BUSY)


@pytest.mark.beside(seconds=30)
def test_jobs_of_a_dead_host_are_claimable_after_its_lease(place: Place) -> None:
    """F91: a whole host."""
    _hosts(place, 2, HOST + BUSY)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=200)
def test_jobs_of_a_dead_child_are_claimable_within_a_second_many_times(place: Place) -> None:
    _children(place, 40, CHILD)


@pytest.mark.slow_fault
@pytest.mark.beside(seconds=200)
def test_jobs_of_a_dead_host_are_claimable_after_its_lease_many_times(place: Place) -> None:
    _hosts(place, 20, HOST)
