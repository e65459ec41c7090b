"""One broken item or key never loses or wedges its neighbours.

A job's hash may be missing or something else than a hash, a container may hold a member that is no job,
a whole container may be of the wrong type. Whatever it is: good items pass, bad ones go to quarantine or
are refused, and a container that cannot be written makes the call refuse before its first write.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.queue import LEASE, MINUTE, SECOND, TYPE, Bench, ids, runs
from support.sends import JOB, SENDS, Run
from taskq import calls
from taskq.calls import Failure, Success
from taskq.errors import BrokenKey
from taskq.model import JobSpec
from taskq.states import State

GOOD = [f"good{i}" for i in range(9)]
BAD = "bad"
TEN = [*GOOD[:5], BAD, *GOOD[5:]]
"""Nine good ids around one that will be broken."""


def is_a_string(bench: Bench, ulid: str) -> None:
    bench.redis.set(bench.keys.job(ulid), "not a hash")


def is_a_list(bench: Bench, ulid: str) -> None:
    bench.redis.delete(bench.keys.job(ulid))
    bench.redis.rpush(bench.keys.job(ulid), "not a hash")


def is_missing(bench: Bench, ulid: str) -> None:
    bench.redis.delete(bench.keys.job(ulid))


def has_garbage_numbers(bench: Bench, ulid: str) -> None:
    """Everything that a script reckons with; its state, worker and fence still stand."""
    fields = [
        "priority",
        "attempts",
        "failures",
        "crashes",
        "lost",
        "started_at",
        "eligible_at",
        "created_at",
        "expires_at",
    ]
    for field in fields:
        bench.redis.hset(bench.keys.job(ulid), field, "\xff?")


Breakage = Callable[[Bench, str], None]
BREAKAGES: list[Breakage] = [is_a_string, is_a_list, is_missing]
each_breakage = pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda b: b.__name__)
also_garbage = pytest.mark.parametrize(
    "breakage", [*BREAKAGES, has_garbage_numbers], ids=lambda b: b.__name__
)


# --- one broken job among nine good ones ----------------------------------------------------------


@also_garbage
def test_claim_takes_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN)
    breakage(bench, BAD)
    taken = ids(bench.take(most=10))
    assert [u for u in taken if u != BAD] == GOOD
    assert BAD in taken or BAD in bench.quarantined()
    assert not bench.line()
    assert not bench.findings(*GOOD)


@also_garbage
@pytest.mark.parametrize("how", ["promote", "claim"])
def test_promote_moves_the_nine(bench: Bench, breakage: Breakage, how: str) -> None:
    bench.add(*TEN, delay_ms=SECOND)
    breakage(bench, BAD)
    bench.wait(2 * SECOND)
    if how == "promote":
        bench.promote()
    else:
        bench.claim(most=0)
    assert [u for u in bench.line() if u != BAD] == GOOD
    assert BAD in bench.line() or BAD in bench.quarantined()
    assert not bench.findings(*GOOD)


@also_garbage
def test_finish_ends_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN)
    jobs = bench.take(most=10)
    breakage(bench, BAD)
    words = dict(zip(TEN, bench.finish(*jobs), strict=True))
    assert {words[u] for u in GOOD} == {"OK"}
    assert words[BAD] in ("OK", "BROKEN", "GONE")
    assert bench.states(GOOD) == {State.SUCCEEDED}
    assert not bench.findings(*GOOD)


@also_garbage
@pytest.mark.parametrize("end", ["fail", "release", "snooze"])
def test_other_exits_let_the_nine_go(bench: Bench, breakage: Breakage, end: str) -> None:
    bench.add(*TEN)
    jobs = bench.take(most=10)
    breakage(bench, BAD)
    exits: dict[str, tuple[Callable[..., list[str]], State]] = {
        "fail": (bench.fail, State.RETRYING),
        "release": (bench.release, State.QUEUED),
        "snooze": (bench.snooze, State.SCHEDULED),
    }
    send, state = exits[end]
    words = dict(zip(TEN, send(*jobs), strict=True))
    assert {words[u] for u in GOOD} == {state.name}
    assert words[BAD] in (state.name, "BROKEN", "GONE")
    assert bench.states(GOOD) == {state}
    assert not bench.findings(*GOOD)


@also_garbage
def test_reap_recovers_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN)
    bench.take(most=10)
    breakage(bench, BAD)
    bench.wait(LEASE + 1)
    assert not bench.reap().more
    assert [u for u in bench.line() if u != BAD] == GOOD
    assert BAD in bench.line() or BAD in bench.quarantined()
    assert not bench.redis.exists(bench.keys.processing("w1"))
    assert not bench.findings(*GOOD)


@each_breakage
def test_reconcile_hands_back_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN)
    bench.take(most=10)
    breakage(bench, BAD)
    assert bench.run(calls.reconcile(bench.keys, "w1", 1, [], now=bench.now)).released == 9
    assert bench.line() == GOOD
    assert BAD in bench.quarantined()
    assert not bench.redis.exists(bench.keys.processing("w1"))


@also_garbage
def test_expire_ends_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN, expires_ms=SECOND)
    breakage(bench, BAD)
    bench.wait(2 * SECOND)
    assert bench.expire()[0] in (9, 10)
    assert bench.states(GOOD) == {State.FAILED}
    assert not bench.redis.exists(bench.key("expiring"))
    assert not bench.findings(*GOOD)


@also_garbage
@pytest.mark.parametrize("options", [{}, {"delay_ms": SECOND}], ids=["queued", "scheduled"])
def test_purge_cancels_the_nine(bench: Bench, breakage: Breakage, options: dict[str, Any]) -> None:
    bench.add(*TEN, **options)
    breakage(bench, BAD)
    done, more = bench.run(
        calls.purge(bench.keys, [State.QUEUED, State.SCHEDULED], limit=100, now=bench.now)
    )
    assert (done in (9, 10), more) == (True, 0)
    assert bench.states(GOOD) == {State.CANCELLED}
    assert not bench.findings(*GOOD)


@also_garbage
@pytest.mark.parametrize("options", [{}, {"digest": "d"}], ids=["plain", "digest"])
def test_trim_drops_the_nine(bench: Bench, breakage: Breakage, options: dict[str, Any]) -> None:
    bench.add(*TEN, **options)
    bench.finish(*bench.take(most=10))
    breakage(bench, BAD)
    bench.configure(succeeded_max=0)
    assert bench.trim()[0] in (9, 10)
    assert bench.states(GOOD) == {None}
    assert not bench.redis.exists(bench.key("succeeded"))
    assert not bench.findings(*GOOD)


@also_garbage
def test_operators_calls_serve_the_nine(bench: Bench, breakage: Breakage) -> None:
    """Cancel, retry, edit and delete: each item has its own answer."""
    bench.add(*TEN)
    breakage(bench, BAD)
    changes = [(u, 5, int(bench.now) + MINUTE) for u in TEN]
    edited = bench.run(calls.edit(bench.keys, changes, now=bench.now))
    assert {word for u, (word, _) in zip(TEN, edited, strict=True) if u != BAD} == {"OK"}
    assert set(bench.cancel(*GOOD, BAD)[:9]) == {"CANCELLED"}
    deleted = bench.run(calls.delete(bench.keys, TEN, now=bench.now))
    assert {word for u, (word, _) in zip(TEN, deleted, strict=True) if u != BAD} == {"DELETED"}


@also_garbage
def test_retry_brings_back_the_nine(bench: Bench, breakage: Breakage) -> None:
    bench.add(*TEN)
    bench.fail(*bench.take(most=10), max_attempts=1)
    breakage(bench, BAD)
    words = dict(zip(TEN, bench.retry(*TEN), strict=True))
    assert {words[u] for u in GOOD} == {"QUEUED"}
    assert [u for u in bench.line() if u != BAD] == GOOD


@each_breakage
def test_enqueue_stores_the_nine(bench: Bench, breakage: Breakage) -> None:
    """A key in the way of a new job is refused, or (a hash that is not there) no obstacle."""
    breakage(bench, BAD)
    words = dict(zip(TEN, bench.add(*TEN), strict=True))
    assert {words[u] for u in GOOD} == {"QUEUED"}
    assert words[BAD] in ("BROKEN_KEY", "QUEUED")
    assert bench.line() == [u for u in TEN if words[u] == "QUEUED"]


def test_a_live_job_in_a_terminal_set_is_not_trimmed_away(bench: Bench) -> None:
    """A member that does not belong there costs its place in the set, never the job."""
    bench.add(*TEN, BAD)
    jobs = [j for j in bench.take(most=10) if j.ulid != BAD]
    bench.finish(*jobs)
    bench.redis.zadd(bench.key("succeeded"), {BAD: bench.now})
    bench.configure(succeeded_max=0)
    bench.trim()
    assert bench.state(BAD) == State.RUNNING
    assert not bench.redis.exists(bench.key("succeeded"))


def test_a_line_that_cannot_be_written_does_not_stop_promotion_of_others(bench: Bench) -> None:
    """More jobs than a page for a broken line stand before the good ones."""
    bench.add(*(f"stuck{i}" for i in range(250)), delay_ms=SECOND, job_type="stuck")
    bench.add(*GOOD, delay_ms=SECOND + 1)
    bench.redis.set(bench.keys.ready("stuck"), "not a zset")
    bench.wait(2 * SECOND)
    for _ in range(3):
        bench.promote(limit=100)
    assert bench.line() == GOOD
    assert bench.states(f"stuck{i}" for i in range(250)) == {State.SCHEDULED}


def test_a_line_that_cannot_be_written_does_not_stop_recovery_of_others(bench: Bench) -> None:
    bench.add(BAD, job_type="stuck")
    bench.add(*GOOD)
    bench.take("w1", 10, "stuck", TYPE)
    bench.redis.set(bench.keys.ready("stuck"), "not a zset")
    bench.wait(LEASE + 1)
    assert not bench.reap().more, "nothing that another call could do now"
    assert bench.line() == GOOD
    assert bench.state(BAD) == State.RUNNING
    bench.redis.delete(bench.keys.ready("stuck"))
    bench.wait(LEASE + 1)
    bench.reap()
    assert bench.line("stuck") == [BAD]
    assert not bench.findings()


def test_a_line_that_cannot_be_written_does_not_stop_expiry_of_others(bench: Bench) -> None:
    bench.add(*(f"stuck{i}" for i in range(150)), expires_ms=SECOND, job_type="stuck")
    bench.add(*GOOD, expires_ms=SECOND + 1)
    bench.redis.set(bench.keys.ready("stuck"), "not a zset")
    bench.wait(2 * SECOND)
    for _ in range(3):
        bench.expire(limit=100)
    assert bench.states(GOOD) == {State.FAILED}


def test_an_expired_job_that_cannot_be_ended_does_not_stop_claims(bench: Bench) -> None:
    bench.add(BAD, expires_ms=SECOND)
    bench.wait(2 * SECOND)
    bench.add(*GOOD)
    bench.redis.set(bench.key("failed"), "not a zset")
    assert ids(bench.take(most=10)) == GOOD
    assert bench.line() == [BAD]


# --- a member that is no job ----------------------------------------------------------------------

NOISE = b"\xff\x00{}'\" noise"

ZSETS = [
    "ready:mail",
    "scheduled",
    "retrying",
    "blocked",
    "leases",
    "dead",
    "expiring",
    "later",
]
ZSETS += ["succeeded", "failed", "cancelled", "stubs:succeeded", "stubs:failed", "stubs:cancelled"]


def noise_in(bench: Bench, name: str) -> None:
    key = bench.key(name)
    if name in ZSETS:
        bench.redis.zadd(key, {NOISE: 1})
        if name == "ready:mail":
            bench.redis.sadd(bench.keys.lines, TYPE)
    elif name in ("lines", "cancelling"):
        bench.redis.sadd(key, NOISE)
    elif name in ("holders", "config", "totals", "ticks"):
        bench.redis.hset(key, NOISE, NOISE)
    else:
        bench.redis.lpush(key, NOISE)


def live_a_day(bench: Bench) -> None:
    """Jobs through every script; fails if one of them does not get where it should."""
    bench.add("late", delay_ms=SECOND)
    bench.add("old", expires_ms=SECOND)
    bench.add(*GOOD)
    bench.beat("w1")
    bench.wait(2 * SECOND)
    bench.expire()
    bench.promote()
    jobs = {job.ulid: job for job in bench.take(most=12)}
    assert set(jobs) == {"late", *GOOD}
    assert bench.beat("w1", holds=10).status == "OK"
    assert bench.finish(jobs["good0"]) == ["OK"]
    assert bench.fail(jobs["good1"], max_attempts=1) == ["FAILED"]
    assert bench.fail(jobs["good2"], delay_ms=SECOND) == ["RETRYING"]
    assert bench.release(jobs["good3"]) == ["QUEUED"]
    assert bench.snooze(jobs["good4"], delay_ms=SECOND) == ["SCHEDULED"]
    assert bench.cancel("good5") == ["CANCELLING"]
    assert "good5" in bench.beat("w1", holds=5).cancel
    bench.run(calls.reconcile(bench.keys, "w1", 1, runs([jobs["good6"]]), now=bench.now))
    bench.wait(LEASE + 1)
    bench.reap()
    bench.reap()
    assert bench.states(["good5"]) == {State.CANCELLED}
    assert bench.retry("good1") == ["QUEUED"]
    bench.expire()
    bench.trim()
    bench.run(calls.rollup(bench.keys, now=bench.now + 11 * MINUTE))
    bench.run(calls.counts(bench.keys, now=bench.now))
    left = {"late", *GOOD} - {"good0", "good5"}
    rest = bench.take("w2", most=20)
    assert set(ids(rest)) == left
    assert set(bench.finish(*rest, worker="w2")) == {"OK"}
    assert not bench.findings("late", "old", *GOOD)


PLACES = [*ZSETS, "lines", "cancelling", "holders", "config", "totals", "ticks", "processing:w1"]


@pytest.mark.parametrize("name", PLACES)
def test_noise_in_a_container_disturbs_nobody(bench: Bench, name: str) -> None:
    noise_in(bench, name)
    live_a_day(bench)


def test_a_set_of_jobs_loses_its_noise_to_quarantine(bench: Bench) -> None:
    for name in ("ready:mail", "scheduled", "processing:w1"):
        noise_in(bench, name)
    live_a_day(bench)
    assert NOISE in bench.redis.hkeys(bench.keys.quarantine)


@pytest.mark.parametrize("value", ["", "many", "{}"])
def test_a_setting_that_is_no_number_counts_as_not_set(bench: Bench, value: str) -> None:
    """Settings can be written past the library, with redis-cli."""
    for name in [*calls.SETTINGS, "listen_until", "min_protocol"]:
        bench.redis.hset(bench.keys.config, name, value)
    live_a_day(bench)


# --- a container of the wrong type ----------------------------------------------------------------

CONTAINERS = [*PLACES, "events", "quarantine", "wake:mail", "control:w1", "unique:one"]
CONTAINERS += ["history:running", "log:running"]


def busy_queue(bench: Bench) -> dict[str, Run]:
    """One job in every state; the run of each."""
    bench.listen()
    made: dict[str, Run] = {}
    for name in ("retrying", "failed", "succeeded", "stopping", "running"):
        bench.add(name, unique="one" if name == "running" else None)
        (job,) = bench.take()
        made[name] = Run("w1", job.fence)
        if name == "retrying":
            bench.fail(job)
        elif name == "failed":
            bench.fail(job, max_attempts=1)
        elif name == "succeeded":
            bench.finish(job)
        elif name == "stopping":
            bench.cancel(name)
    for name in ("queued", "cancelled"):
        bench.add(name, expires_ms=5 * MINUTE)
        made[name] = Run("w1", "0")
    bench.add("scheduled", delay_ms=MINUTE)
    made["scheduled"] = Run("w1", "0")
    bench.cancel("cancelled")
    assert not bench.findings()
    return made


def about_each(send: str, bench: Bench, made: dict[str, Run]) -> list[calls.Call[Any]]:
    """The matrix's call about each job in turn; one call where the script walks the queue by itself."""
    built = [(ulid, SENDS[send](bench, run)) for ulid, run in made.items()]
    if JOB not in built[0][1].args:
        return [built[0][1]]
    return [replace(c, args=[ulid if arg == JOB else arg for arg in c.args]) for ulid, c in built]


@pytest.mark.parametrize("send", sorted(SENDS))
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_broken_container_never_leaves_half_a_move(bench: Bench, name: str, send: str) -> None:
    """The script does its work without that key, or refuses and has written nothing."""
    made = busy_queue(bench)
    bench.redis.set(bench.key(name), "of the wrong type")
    known = set(bench.findings(*made)) | about_the_key(name, made)
    in_time = about_each(send, bench, made)
    bench.wait(12 * MINUTE)
    for call in [*in_time, *about_each(send, bench, made)[:1]]:
        dump = bench.dump()
        try:
            words = bench.words(call)
        except BrokenKey:
            words = {"BROKEN_KEY"}
        if words and words <= {"BROKEN_KEY", "BROKEN"}:
            # A claim finds `lines` broken after it has promoted, which is a whole move of its own.
            assert bench.dump() == dump or (name, call.script.name) == ("lines", "claim")
        assert set(bench.findings(*made)) <= known


def about_the_key(name: str, made: dict[str, Run]) -> set[tuple[str, str]]:
    """What the check may say besides: that the broken key itself does not hold what it should."""
    complaints = {
        "lines": "waits in a line that is not in lines",
        "holders": "its worker is not in holders",
        "unique:one": "does not hold its unique key",
        "expiring": "expires, but is not in expiring",
        "cancelling": "asked to stop, but not in cancelling",
    }
    return {(ulid, complaints[name]) for ulid in made if name in complaints}


def test_fields_of_enqueue_are_checked_before_the_first_write(bench: Bench) -> None:
    bench.redis.set(bench.key("expiring"), "of the wrong type")
    assert bench.add("a", expires_ms=SECOND, unique="one") == ["BROKEN_KEY"]
    assert set(bench.dump()) == {"expiring"}


def test_a_result_for_a_broken_job_is_refused_each_time(bench: Bench) -> None:
    """The committer that sends it again is answered the same, and its neighbours are not held up."""
    bench.add(*TEN)
    jobs = bench.take(most=10)
    is_a_string(bench, BAD)
    results = [Success(j.ulid, j.fence, b"1") for j in jobs]
    for _ in range(2):
        words = bench.run(calls.finish(bench.keys, "w1", results, now=bench.now))
        assert words == ["OK"] * 5 + ["BROKEN"] + ["OK"] * 4


def test_a_broken_line_refuses_its_own_jobs_only(bench: Bench) -> None:
    bench.redis.set(bench.keys.ready("stuck"), "not a zset")
    specs = [JobSpec("a", TYPE), JobSpec("b", "stuck"), JobSpec("c", TYPE)]
    assert [e.outcome for e in bench.submit(*specs)] == ["QUEUED", "BROKEN_KEY", "QUEUED"]
    assert ids(bench.take("w1", 10, "stuck", TYPE)) == ["a", "c"]


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_an_end_that_cannot_be_recorded_leaves_the_run_as_it_is(bench: Bench, state: str) -> None:
    bench.add("a")
    (job,) = bench.take()
    if state == "cancelled":
        bench.cancel("a")
    bench.redis.set(bench.key(state), "not a zset")
    dump = bench.dump()
    assert bench.fail(job, max_attempts=1) == ["BROKEN"]
    if state == "cancelled":
        assert bench.fail(job) == ["BROKEN"]
        assert bench.snooze(job) == ["BROKEN"]
        assert bench.release(job) == ["BROKEN"]
    assert bench.dump() == dump


@pytest.mark.parametrize("name", ["lines", "leases", "holders", "dead", "processing:w1"])
def test_a_claim_that_cannot_be_written_takes_nothing(bench: Bench, name: str) -> None:
    """The worker asks again, with the same number, until the key is repaired."""
    bench.add("a")
    bench.redis.set(bench.key(name), "of the wrong type")
    for _ in range(2):
        with pytest.raises(BrokenKey, match=name.partition(":")[0]):
            bench.claim(call=1)
    bench.redis.delete(bench.key(name))
    bench.redis.sadd(bench.keys.lines, TYPE)
    assert ids(bench.claim(call=1).jobs) == ["a"]


@pytest.mark.parametrize("how", ["enqueue", "promote", "release", "reap", "retry"])
def test_nothing_is_put_into_a_line_that_no_index_would_show(bench: Bench, how: str) -> None:
    bench.add("a", delay_ms=SECOND if how == "promote" else None)
    if how != "promote":
        (job,) = bench.take()
    if how == "retry":
        bench.fail(job, max_attempts=1)
    bench.wait(LEASE + 1)
    bench.redis.set(bench.keys.lines, "of the wrong type")
    match how:
        case "enqueue":
            assert bench.add("b") == ["BROKEN_KEY"]
        case "promote":
            assert bench.promote() == 0
        case "release":
            assert bench.release(job) == ["BROKEN"]
        case "reap":
            assert bench.reap().jobs == 0
        case _:
            assert bench.retry("a") == ["BROKEN"]
    assert bench.line() == []
    bench.redis.delete(bench.keys.lines)
    assert not bench.findings("a")


def test_a_broken_mark_of_the_dead_is_not_a_verdict(bench: Bench) -> None:
    """`dead` unreadable says nothing about any worker: nobody is told LOST because of it."""
    bench.add("a")
    (job,) = bench.take()
    bench.redis.set(bench.key("dead"), "not a zset")
    assert bench.beat("w1", holds=1).status == "BROKEN"
    reply = bench.run(calls.reconcile(bench.keys, "w1", 1, runs([job]), now=bench.now))
    assert reply.status == "BROKEN_KEY"


def test_failures_of_a_broken_container_are_told_once_each(bench: Bench) -> None:
    bench.add("a", "b")
    a, b = bench.take(most=2)
    bench.redis.set(bench.key("retrying"), "not a zset")
    with pytest.raises(BrokenKey):
        bench.run(
            calls.fail(
                bench.keys,
                "w1",
                [Failure(a.ulid, a.fence, b"{}", 1, 3), Failure(b.ulid, b.fence, b"{}", 1, 3)],
                now=bench.now,
            )
        )
    assert bench.states(["a", "b"]) == {State.RUNNING}
