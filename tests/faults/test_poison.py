"""Jobs that take their process down, and jobs that nobody can read."""

import signal
import time
from collections import Counter
from typing import Any

import pytest

from support.faults import Place, until
from taskq.calls import MAX_CRASHES
from taskq.ids import split_id
from taskq.states import State

pytestmark = pytest.mark.beside


@pytest.mark.parametrize("how", ["kill", "exit 0", "exit 1", "sys.exit", "segfault"])
@pytest.mark.beside(seconds=25)
def test_f61_a_job_that_kills_its_worker(place: Place, how: str) -> None:
    """F61: it starts as often as the cap says, then it is a dead letter with a reason; the others succeed."""
    place.worker("-c", "10")
    (toxic,) = place.submit("dies", [{"how": how}], priority=10)
    place.submit("work", [{"seconds": 0.05}] * 60)
    v = place.verdict(60)
    assert v.states == {State.FAILED: 1, State.SUCCEEDED: 60}
    assert len(place.ledger.starts(toxic)) == 3
    job: Any = place.job(toxic)
    if how == "sys.exit":
        assert job.failures == 3
        assert "SystemExit" in job.error["type"]
    else:
        assert (job.crashes, job.error["type"]) == (MAX_CRASHES, "WorkerCrashed")
        reason = {"kill": "signal 9", "segfault": "signal 11"}
        assert reason.get(how, how) in job.error["message"], job.error
    place.note(f"{how}: {v.figures()}")


@pytest.mark.beside(seconds=25)
def test_f62_neighbours_of_poison(place: Place) -> None:
    """F62: nine innocents beside a job that kills its process each time, first in line: all nine succeed."""
    place.worker("-c", "10")
    place.submit("dies", [{"how": "kill"}], priority=100)
    innocents = place.submit("work", [{"seconds": 1.5}] * 9)
    v = place.verdict(60)
    jobs = place.jobs(innocents)
    assert {(j.state, j.crashes <= 1) for j in jobs.values() if j} == {("succeeded", True)}
    place.note(v.figures())


@pytest.mark.beside(seconds=15)
def test_f63_what_cannot_be_read_stops_nobody(place: Place) -> None:
    """F63: bodies of nonsense, first in line: dead letters with the bytes kept, the rest starts at once."""
    spoilt = place.submit("work", 8, priority=100)
    good = place.submit("work", 5)
    for job, body in zip(
        spoilt, [b"\x00", b"[]", b'{"seconds": 1', b"3", b"", b'{"v": 2}'], strict=False
    ):
        place.admin.hset(place.queue.job(split_id(job)[1]), "payload", body)
    wrong_type, no_state = spoilt[6:]
    key = place.queue.job(split_id(wrong_type)[1])
    place.admin.delete(key)
    place.admin.lpush(key, "x")
    place.admin.hdel(place.queue.job(split_id(no_state)[1]), "state")
    place.worker("-c", "2")
    place.wait_ended([*spoilt[:6], *good], 20)
    assert {place.state(i) for i in good} == {"succeeded"}
    for job in spoilt[:6]:
        shown: Any = place.job(job)
        # An empty body is one without arguments.
        assert shown.state == State.FAILED or (job == spoilt[4] and shown.state == State.SUCCEEDED)
        if shown.state == State.FAILED:
            assert (shown.attempts, shown.payload is not None) == (1, True), shown
    aside = {name.decode() for name in place.admin.hkeys(place.queue.quarantine)}
    assert aside == {split_id(wrong_type)[1], split_id(no_state)[1]}
    runs = Counter(run.job_id for run in place.ledger.starts())
    assert runs[good[0]] == 1
    began = time.time()
    (late,) = place.submit("work", 1)
    until(lambda: place.ledger.starts(late), 5, "it runs")
    assert place.ledger.starts(late)[0].at - began < 1


@pytest.mark.beside(seconds=30)
def test_f62_three_kills_from_outside(place: Place) -> None:
    """F62: the process that runs them is killed three times, as by the kernel; all end well."""
    worker = place.worker("-c", "10")
    gate = str(place.folder / "gate")
    ids = place.submit("work", [{"gate": gate}] * 3)
    for n in range(1, 4):
        until(
            lambda n=n: all(place.job(i).attempts >= n or place.state(i) == "failed" for i in ids),
            20,
            f"claimed {n} times",
        )
        children = worker.children()
        place.disturb(*worker.tree()[:-1])
        worker.signal(signal.SIGKILL, *children)
        until(lambda old=children: not set(worker.children()) & set(old), 10, "it is gone")
    (place.folder / "gate").touch()
    v = place.verdict(40, rerun_allowed=lambda *_: True)
    shown = [(j.state, j.crashes, j.attempts, j.error) for j in place.jobs(ids).values() if j]
    assert v.states == {State.SUCCEEDED: 3}, shown
