"""A graceful stop must be better than a crash."""

import os
import signal
import time

import psutil
import pytest

from support.faults import GRACE, Place, until

pytestmark = pytest.mark.beside

LIMIT = GRACE + 2 + 1.5
"""Grace, two seconds, and what a machine that is busy with other tests adds."""


def _ends(place: Place, worker: "object", began: float) -> None:
    code = worker.popen.wait(LIMIT + 5)  # type: ignore[attr-defined]
    took = time.monotonic() - began
    assert code == 0, worker.text()  # type: ignore[attr-defined]
    assert took < LIMIT, f"{took:.1f} s"


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT to the group"])
@pytest.mark.beside(seconds=15)
def test_f42_stop_with_short_and_long_runs(place: Place, how: str) -> None:
    """F42: what ends within the grace ends, the rest is in line at once and has burnt nothing."""
    worker = place.worker("-c", "30")
    short = place.submit("work", [{"seconds": 1}] * 10)
    long = place.submit("work", [{"seconds": 60}] * 10)
    place.wait_started(20)
    waiting = place.submit("work", 5, delay=0.3)
    tree = worker.tree()
    began = time.monotonic()
    if how == "SIGTERM":
        worker.popen.send_signal(signal.SIGTERM)
    else:
        os.killpg(worker.pid, signal.SIGINT)
    _ends(place, worker, began)
    assert not [pid for pid in tree if psutil.pid_exists(pid)], "no orphan runs a job"
    assert {place.state(i) for i in short} == {"succeeded"}
    jobs = place.jobs(long)
    assert {(j.state, j.failures, j.crashes, j.lost) for j in jobs.values() if j} == {
        ("queued", 0, 0, 0)
    }
    assert not place.ledger.starts(*waiting), "a stopping worker claims nothing"
    assert not place.findings()


@pytest.mark.beside(seconds=12)
def test_f42_second_signal(place: Place) -> None:
    """F42: a second SIGTERM ends it at once, and still hands everything back."""
    worker = place.worker("-c", "10", TASKQ_GRACE_SECONDS="60")
    ids = place.submit("work", [{"seconds": 60}] * 5)
    place.wait_started(5)
    worker.popen.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in worker.text(), 5, "it stops")
    began = time.monotonic()
    worker.popen.send_signal(signal.SIGTERM)
    _ends(place, worker, began)
    jobs = place.jobs(ids)
    assert {(j.state, j.crashes, j.lost) for j in jobs.values() if j} == {("queued", 0, 0)}


@pytest.mark.parametrize("when", ["start-up", "idle", "paused"])
@pytest.mark.beside(seconds=10)
def test_f42_stop_with_nothing_to_do(place: Place, when: str) -> None:
    """F42: SIGTERM while it starts, while it waits for jobs, while its queue is paused."""
    worker = place.worker("-c", "10", ready=when != "start-up")
    if when == "start-up":
        until(lambda: worker.children(), 30, "its child is being started")
    if when == "paused":
        place.admin.hset(place.queue.config, "paused", "1")
        place.submit("work", 1)
    began = time.monotonic()
    worker.popen.send_signal(signal.SIGTERM)
    _ends(place, worker, began)


@pytest.mark.beside(seconds=15)
def test_f42_stop_while_redis_is_away(place: Place) -> None:
    """F42: with the server dead it ends as quickly, and its jobs come back by their lease."""
    worker = place.worker("-c", "10")
    place.submit("work", [{"seconds": 60}] * 5)
    place.wait_started(5)
    place.server.kill()
    began = time.monotonic()
    worker.popen.send_signal(signal.SIGTERM)
    _ends(place, worker, began)
    place.server.start()


@pytest.mark.beside(seconds=15)
def test_f42_only_the_supervisor_is_killed(place: Place) -> None:
    """F42: its children hand back what they hold and end: no orphan goes on with a job."""
    worker = place.worker("-c", "10")
    ids = place.submit("work", [{"seconds": 60}] * 5)
    place.wait_started(5)
    children = worker.children()
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not any(psutil.pid_exists(pid) for pid in children), 8, "the children end")
    assert {place.state(i) for i in ids} == {"queued"}


@pytest.mark.beside(seconds=10)
def test_f42_hangup(place: Place) -> None:
    """F42: SIGHUP (its terminal is gone) loses nothing: what it held is in line within a lease."""
    worker = place.worker("-c", "10")
    ids = place.submit("work", [{"seconds": 60}] * 3)
    place.wait_started(3)
    place.disturb(*worker.tree())
    worker.popen.send_signal(signal.SIGHUP)
    place.worker("-c", "1", "-q", "elsewhere")
    until(
        lambda: not worker.alive or {place.state(i) for i in ids} == {"running"},
        10,
        "it ends or goes on",
    )
    if not worker.alive:
        until(lambda: {place.state(i) for i in ids} == {"queued"}, 10, "they are in line")
