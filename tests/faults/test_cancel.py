"""Cancelling, timing out, stopping and losing a lease are four things."""

import random
import signal
import threading
import time
from collections import Counter
from typing import Any

import psutil
import pytest

from support.faults import GRACE, LEASE, RECOVERY, Place, last, until
from taskq.errors import JobNotFound, WrongState
from taskq.states import State

pytestmark = pytest.mark.beside


@pytest.mark.beside(seconds=20)
def test_f64_cancel_in_every_state(place: Place) -> None:
    """F64: the answer agrees with what becomes of the job, whatever it is doing; also twice, and unknown."""
    worker = place.worker("-c", "5")
    (delayed,) = place.submit("work", 1, delay=60)
    (retrying,) = place.submit("flaky", [{"times": 5, "after": 60}])
    (done,) = place.submit("work", 1)
    (dead,) = place.submit("hopeless", 1)
    (running,) = place.submit("work", [{"seconds": 60}])
    place.wait_ended([done, dead], 20)
    until(lambda: place.state(retrying) == "retrying", 10, "it waits for its retry")
    until(lambda: place.state(running) == "running", 10, "it runs")
    place.admin.hset(place.queue.config, "paused", "1")
    (queued,) = place.submit("work", 1)
    for job in (delayed, retrying, queued):
        assert place.client.cancel(job) == State.CANCELLED
        assert place.client.cancel(job) == State.CANCELLED, "twice is the same"
    began = time.monotonic()
    assert place.client.cancel(running) == State.RUNNING
    for job in (done, dead):
        with pytest.raises(WrongState):
            place.client.cancel(job)
    with pytest.raises(JobNotFound):
        place.client.cancel("default:" + "0" * 26)
    until(lambda: place.state(running) == "cancelled", 5, "it is stopped")
    assert time.monotonic() - began < 2
    assert place.job(running).failures == 0, "to be cancelled is not to fail"
    place.admin.hdel(place.queue.config, "paused")
    worker.stop()
    place.worker("-c", "5")
    v = place.verdict(20)
    assert len(place.ledger.starts(delayed, queued)) == 0
    assert v.states[State.CANCELLED] == 4


@pytest.mark.beside(seconds=20)
def test_f64_cancel_in_the_moment_of_the_claim(place: Place) -> None:
    """F64: 300 jobs, each cancelled 0 to 20 ms after it was stored: cancelled, or succeeded and said so."""
    place.worker("-c", "20")
    rng = random.Random(5)
    answers: dict[str, Any] = {}
    lock = threading.Lock()

    def some() -> None:
        for _ in range(75):
            with lock:
                pause = rng.uniform(0, 0.02)
            (job,) = place.submit("work", [{"seconds": 0.01}])
            last(pause)
            try:
                answers[job] = place.client.cancel(job)
            except WrongState:
                answers[job] = None

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place.verdict(20)
    started = {run.job_id for run in place.ledger.starts()}
    ended = {run.job_id for run in place.ledger.ends() if run.how == "ok"}
    for job, answer in answers.items():
        state = place.state(job)
        if answer == State.CANCELLED:
            assert (state, job in started) == ("cancelled", False)
        elif answer is None:
            assert state == "succeeded"
        else:
            assert state == "cancelled" or job in ended
    place.note(f"{Counter(str(a) for a in answers.values())}")


@pytest.mark.beside(seconds=35)
def test_f66_timeouts_reach_everything(place: Place) -> None:
    """F66: each way to overrun 1 s, more than there are slots: ended, gone, slots usable."""
    place.worker("-c", "4")
    kinds = ["await", "swallow", "subprocess"]
    ids = place.submit("overrun", [{"how": how} for how in kinds], timeout=1)
    ids += place.submit("overrun_thread", [{"how": "sleep"}, {"how": "socket"}], timeout=1)
    ids += place.submit("overrun", [{"how": "await"}], timeout=0.3)
    place.wait_started(6, 60)
    v = place.verdict(40, rerun_allowed=lambda *_: True)
    for job in place.jobs(ids).values():
        assert job is not None
        assert (job.state, job.error and job.error["type"]) == ("failed", "Timeout"), job
    for words in place.ledger.words():
        if words[0] == "CHILD":
            assert not psutil.pid_exists(int(words[2])), "what it started is gone"
    assert v.attempted == 6
    place.submit("work", 8)
    assert place.verdict(20, rerun_allowed=lambda *_: True).ok == 8


@pytest.mark.beside(seconds=30)
def test_f66_timeout_under_a_held_interpreter(place: Place) -> None:
    """F66: one C call that never gives the GIL back, from its first moment: the process is ended for it."""
    place.worker("-c", "4")
    (job,) = place.submit("overrun_thread", [{"how": "gil"}], timeout=1)
    (run,) = place.wait_started(1)
    place.disturb(run.pid)
    # The timeout, 5 s in which it may yet end, a lease without a sign of life.
    until(
        lambda: place.state(job) != "running" or len(place.ledger.starts(job)) > 1,
        15,
        "it is ended",
    )
    place.note(f"a held interpreter with timeout 1 s is ended after {time.time() - run.at:.1f} s")
    place.client.cancel(job)
    place.submit("work", 4)
    place.verdict(40)


@pytest.mark.beside(seconds=20)
def test_f66_no_timeout_is_none(place: Place) -> None:
    """F66: timeout 0 is none, not at once."""
    place.worker("-c", "4")
    place.submit("work", [{"seconds": 1.5}] * 2, timeout=0)
    assert place.verdict(20).ok == 2


@pytest.mark.beside(seconds=25)
def test_f67_four_ends_four_reasons(place: Place) -> None:
    """F67: timeout, cancel, stop and lease loss: told apart, and only cancel is final."""
    first = place.worker("-c", "10")
    (timed,) = place.submit("told", 1, timeout=1)
    (cancelled,) = place.submit("told", 1)
    until(lambda: len(place.ledger.starts(timed, cancelled)) == 2, 15, "both run")
    place.client.cancel(cancelled)
    place.wait_ended([timed, cancelled], 20)
    (stopped,) = place.submit("told", 1)
    until(lambda: place.ledger.starts(stopped), 10, "it runs")
    first.stop()
    info = place.job(stopped)
    assert (info.state, info.failures, info.crashes, info.lost) == ("queued", 0, 0, 0)
    second = place.worker("-c", "10")
    until(lambda: len(place.ledger.starts(stopped)) == 2, 10, "it runs again")
    place.freeze(second)
    third = place.worker("-c", "10")
    until(lambda: len(place.ledger.starts(stopped)) == 3, RECOVERY + 5, "and elsewhere")
    second.signal(signal.SIGCONT)
    until(lambda: "lost" in second.text(), 10, "the second says so")
    reasons = {(w[1], w[3]) for w in place.ledger.words() if w[0] == "STOPPED"}
    assert (timed, "timeout") in reasons
    assert (cancelled, "cancelled") in reasons
    assert (stopped, "stop") in reasons
    until(
        lambda: (
            (stopped, "lease_lost")
            in {(w[1], w[3]) for w in place.ledger.words() if w[0] == "STOPPED"}
        ),
        5,
        "the run whose lease was lost is told so",
    )
    assert len(place.ledger.starts(cancelled)) == 1
    first_run, second_run = place.ledger.starts(timed)[:2]
    assert second_run.at - first_run.at >= 1.4, "a timeout is retried after its back-off"
    assert place.job(timed).failures == 2
    place.client.cancel(stopped)
    place.verdict(20, rerun_allowed=lambda first, _: first.job_id == stopped)
    assert third.alive


@pytest.mark.beside(seconds=20)
def test_f68_full_slots(place: Place) -> None:
    """F68: all slots taken and more waiting: the lease is young, a cancel takes 2 s at most."""
    worker = place.worker("-c", "5")
    ids = place.submit("work", [{"seconds": 60}] * 25)
    place.wait_started(5)
    ages = []
    end = time.monotonic() + LEASE
    while time.monotonic() < end:
        ages += [
            LEASE - (score / 1000 - time.time())
            for _, score in place.admin.zrange(place.queue.leases, 0, -1, withscores=True)
        ]
        last(0.1)
    assert max(ages) < LEASE * 0.8
    victim = place.ledger.starts()[0].job_id
    began = time.monotonic()
    place.client.cancel(victim)
    until(lambda: place.state(victim) == "cancelled", 5, "it is stopped")
    assert time.monotonic() - began < 2
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < GRACE + 3.5
    assert Counter(place.state(i) for i in ids) == {"queued": 24, "cancelled": 1}
    place.note(f"oldest lease {max(ages):.2f} s of {LEASE} s")
