"""A state machine that drives the real scripts on a real server beside a plain model, with a moved clock.

After every step each job's state, owner, fence and counters agree with the model, and doctor's check
finds every id in the one place its state names.
"""

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.plain import ENDED, LEASE, WAITING, PlainJob, PlainQueue
from taskq import calls
from taskq.calls import Call, Failure, Success
from taskq.connection import connect
from taskq.embedded import EmbeddedServer
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.states import State
from taskq.store import Store

START = 1_800_000_000_000.0
TYPES = ["a", "b", "c"]
delays = st.sampled_from([None, None, 0, 1, 5_000, 40_000])


class Machine(RuleBasedStateMachine):
    url: str

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(connect(self.url), Keys("model"))
        self.store.redis.flushall()
        self.keys = self.store.keys.queue("q")
        self.model = PlainQueue()
        self.ulid = UlidFactory()
        self.step = 0
        self.clock = START
        self.workers = ["w0", "w1", "w2"]
        self.made = 3
        self.numbers: dict[str, int] = {}
        self.claims: list[tuple[str, str, int]] = []
        self.reports: list[Any] = []

    @property
    def now(self) -> float:
        """The clock on a grid of its own for each step, so that no two places in line are equal."""
        return self.clock + (self.step * 4 % 2048) / 2048

    def tick(self) -> float:
        self.step += 1
        self.clock += 1
        return self.now

    def run(self, call: Call[Any]) -> Any:
        return self.store.run(call)

    def pick(self, data: st.DataObject, what: list[Any]) -> Any:
        return data.draw(st.sampled_from(what))

    # --- rules ----------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.tick()

    @rule(
        job_type=st.sampled_from(TYPES),
        priorities=st.lists(st.integers(-3, 3), min_size=1, max_size=3),
        delay=delays,
        expires=st.sampled_from([None, None, 3, 30_000]),
        unique=st.sampled_from([None, None, None, "k"]),
    )
    def enqueue(
        self,
        job_type: str,
        priorities: list[int],
        delay: int | None,
        expires: int | None,
        unique: str | None,
    ) -> None:
        now = self.tick()
        specs = [
            JobSpec(self.ulid(), job_type, b"{}", p, delay, expires_ms=expires, unique=unique)
            for p in priorities
        ]
        outcomes = self.run(calls.enqueue(self.keys, specs, now=now))
        for i, (spec, outcome) in enumerate(zip(specs, outcomes, strict=True)):
            holder = self.model.live_holder(unique) if unique else None
            if holder:
                assert (outcome.outcome, outcome.holder) == ("UNIQUE", holder.id)
                continue
            place = now + i / 2048
            later = delay is not None and delay > 0
            self.model.jobs[spec.id] = PlainJob(
                spec.id,
                job_type,
                spec.priority,
                "scheduled" if later else "queued",
                place + (delay or 0) if later else place - spec.priority * 10_000,
                unique,
                int(place + expires) if expires else None,
            )
            assert outcome.created
        self.reports.append(
            lambda now: calls.enqueue(self.keys, specs, now=now) if not unique else None
        )

    @rule(data=st.data(), most=st.integers(1, 4))
    def claim(self, data: st.DataObject, most: int) -> None:
        now = self.tick()
        worker = self.pick(data, self.workers)
        number = self.numbers.get(worker, 0) + 1
        self.numbers[worker] = number
        self._claim(worker, number, most, now)

    @precondition(lambda self: self.numbers)
    @rule(data=st.data(), back=st.integers(0, 1))
    def claim_again(self, data: st.DataObject, back: int) -> None:
        """The answer to a claim was lost, or it arrives late."""
        worker = self.pick(data, sorted(self.numbers))
        number = self.numbers[worker] - back
        known = self.model.calls.get(worker)
        if number < 1 or (known is None and worker not in self.model.dead):
            return
        if known is not None and number > known[0]:
            return
        self._claim(worker, number, 4, self.tick())

    def _claim(self, worker: str, number: int, most: int, now: float) -> None:
        reply = self.run(
            calls.claim(self.keys, worker, number, most, TYPES, lease_ms=int(LEASE), now=now)
        )
        expected = self.model.claim(worker, number, most, now)
        if isinstance(expected, str):
            assert reply.status == expected
        else:
            assert [job.ulid for job in reply.jobs] == expected
            self.claims += [(job.ulid, worker, int(job.fence)) for job in reply.jobs]

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        how=st.sampled_from(["finish", "fail", "fatal", "crash", "release", "snooze"]),
    )
    def report(self, data: st.DataObject, how: str) -> None:
        """Any claim that ever was, so that late and repeated reports are common."""
        now = self.tick()
        ulid, worker, fence = self.pick(data, self.claims[-12:])
        make = _report(self.keys, how, worker, ulid, str(fence))
        words = self.run(make(now))
        self.reports.append(make)
        assert self.run(make(now)) == words, "a repeat is answered the same"
        job = self.model.owned(ulid, worker, fence)
        if job is None:
            return
        assert "STALE" not in words
        if how == "finish":
            self.model.end(job, "succeeded")
        elif how in ("fail", "fatal"):
            self.model.fail(job, now + 2_000, 3 if how == "fail" else 0)
        elif how == "crash":
            self.model.crash(job)
        elif how == "release":
            self.model.requeue(job)
        elif job.cancel:
            self.model.end(job, "cancelled")
        else:
            job.state, job.place, job.worker = "scheduled", now + 7_000, None

    @precondition(lambda self: self.reports)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """Whatever was sent once may come again, now or much later: it changes nothing."""
        call = self.pick(data, self.reports)(self.tick())
        if call is not None:
            self.run(call)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        now = self.tick()
        worker = self.pick(data, self.workers)
        held = self.model.held(worker)
        (beat,) = self.run(calls.heartbeat(self.keys, [(worker, int(LEASE), len(held))], now=now))
        if worker in self.model.dead:
            assert beat.status == "LOST"
            return
        assert (beat.status, beat.length) == ("OK", len(held))
        assert set(beat.cancel) == {job.id for job in held if job.cancel}
        self.model.leases[worker] = now + LEASE

    @rule()
    def reap(self) -> None:
        now = self.tick()
        self.run(calls.reap(self.keys, lease_ms=int(LEASE), now=now))
        self.model.reap_expired(now)

    @rule(data=st.data(), counter=st.sampled_from(["crashes", "lost", "none"]))
    def worker_dies(self, data: st.DataObject, counter: Any) -> None:
        now = self.tick()
        worker = self.pick(data, self.workers)
        call = calls.reap(
            self.keys, lease_ms=int(LEASE), targets=[(worker, counter, "died")], now=now
        )
        self.run(call)
        self.run(call)
        self.model.reap(worker, counter)
        self.workers[self.workers.index(worker)] = f"w{self.made}"
        self.made += 1

    @rule(data=st.data())
    def reconcile(self, data: st.DataObject) -> None:
        """The worker has forgotten some of what it claimed."""
        now = self.tick()
        worker = self.pick(data, self.workers)
        held = self.model.held(worker)
        known = [job for job in held if data.draw(st.booleans())]
        answered = self.numbers.get(worker, 0) - data.draw(st.integers(0, 1))
        reply = self.run(
            calls.reconcile(
                self.keys, worker, answered, [(j.id, str(j.fence)) for j in known], now=now
            )
        )
        if worker in self.model.dead:
            assert reply.status == "LOST"
            return
        forgotten = [job for job in held if job not in known and job.call <= answered]
        assert reply.released == len(forgotten)
        for job in forgotten:
            self.model.requeue(job)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        now = self.tick()
        ulid = self.pick(data, list(self.model.jobs)[-12:])
        job = self.model.jobs[ulid]
        ((word, _),) = self.run(calls.cancel(self.keys, [ulid], now=now))
        self.run(calls.cancel(self.keys, [ulid], now=now))
        if job.state == "running":
            assert word == "CANCELLING"
            job.cancel = True
        elif job.state in WAITING:
            assert word == "CANCELLED"
            self.model.end(job, "cancelled")
        else:
            assert word == "ENDED"

    @precondition(lambda self: any(j.state == "failed" for j in self.model.jobs.values()))
    @rule(data=st.data(), stale=st.booleans())
    def retry(self, data: st.DataObject, stale: bool) -> None:
        now = self.tick()
        job = self.pick(data, [j for j in self.model.jobs.values() if j.state == "failed"])
        seen = job.fence - 1 if stale and job.fence else job.fence
        make = lambda now: calls.retry(  # noqa: E731
            self.keys, [(job.id, str(seen) if job.fence else "")], now=now
        )
        ((word, _),) = self.run(make(now))
        if seen != job.fence:
            assert word == "STALE"
            return
        holder = self.model.live_holder(job.unique) if job.unique else None
        if holder is not None:
            assert word == "UNIQUE"
            return
        assert word == "QUEUED"
        job.state, job.place = "queued", now - job.priority * 10_000
        job.failures = job.crashes = job.lost = 0
        job.expires_at = job.worker = None

    @precondition(lambda self: any(j.state in WAITING for j in self.model.jobs.values()))
    @rule(data=st.data(), priority=st.integers(-3, 3))
    def edit_priority(self, data: st.DataObject, priority: int) -> None:
        now = self.tick()
        job = self.pick(data, [j for j in self.model.jobs.values() if j.state in WAITING])
        self.run(calls.edit(self.keys, [(job.id, priority, None)], now=now))
        if job.state == "queued":
            job.place += (job.priority - priority) * 10_000
        job.priority = priority

    @rule(states=st.sets(st.sampled_from([State.SCHEDULED, State.QUEUED, State.RETRYING])))
    def purge(self, states: set[State]) -> None:
        if self.step % 7:
            return
        self.run(calls.purge(self.keys, sorted(states), now=self.tick()))
        for job in self.model.jobs.values():
            if job.state in states:
                self.model.end(job, "cancelled")

    @rule()
    def promote(self) -> None:
        now = self.tick()
        self.run(calls.promote(self.keys, now=now))
        self.model.promote(now)

    @rule()
    def expire(self) -> None:
        now = self.tick()
        self.run(calls.expire(self.keys, now=now))
        self.model.expire(now)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.run(calls.configure(self.keys, {"paused": paused}, now=self.tick()))
        self.model.paused = paused

    @rule(ms=st.sampled_from([10, 2_500, 9_000, 16_000]))
    def time_passes(self, ms: int) -> None:
        self.tick()
        self.clock += ms

    @rule()
    def scripts_are_flushed(self) -> None:
        self.store.redis.script_flush()

    # --- what holds after every step ------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        ids = list(self.model.jobs)
        if not ids:
            return
        stored = self.run(calls.show(self.keys, ids))
        for job, plain in zip(stored, self.model.jobs.values(), strict=True):
            assert job is not None
            assert job.state == plain.state
            assert job.cancel_requested == plain.cancel
            counters = (job.attempts, job.failures, job.crashes, job.lost)
            assert counters == (plain.attempts, plain.failures, plain.crashes, plain.lost)
            if plain.state == "running":
                assert (job.worker, job.fence) == (plain.worker, plain.fence)

    @invariant()
    def everything_is_in_its_place(self) -> None:
        assert self.run(calls.check(self.keys, list(self.model.jobs))) == []
        counts = self.run(calls.counts(self.keys, now=self.now)).counts
        for state in (*WAITING, "running", *ENDED):
            of_state = sum(1 for job in self.model.jobs.values() if job.state == state)
            assert counts[state] == of_state, state

    def teardown(self) -> None:
        self.store.close()


def _report(keys: Any, how: str, worker: str, ulid: str, fence: str) -> Any:
    if how == "finish":
        return lambda now: calls.finish(keys, worker, [Success(ulid, fence, b"1")], now=now)
    if how == "crash":
        return lambda now: calls.crash(keys, worker, [(ulid, fence, "died")], now=now)
    if how == "release":
        return lambda now: calls.release(keys, worker, [(ulid, fence)], "stop", now=now)
    if how == "snooze":
        return lambda now: calls.snooze(keys, worker, [(ulid, fence, 7_000)], now=now)
    most = 3 if how == "fail" else 0
    return lambda now: calls.fail(keys, worker, [Failure(ulid, fence, b"{}", 2_000, most)], now=now)


@pytest.mark.slow
def test_scripts_agree_with_the_model(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.ping()
    Machine.url = server.url
    machine: Any = Machine.TestCase
    machine.settings = settings(
        max_examples=100,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
