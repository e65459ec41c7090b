"""What stands behind leases over HTTP: the record, its claim's fate, and runs that are past their time."""

from typing import Any

import pytest

from support.queue import LEASE, MINUTE, SECOND, TYPE, Bench, ids
from taskq import calls
from taskq.errors import BrokenKey
from taskq.model import HeldReply, LeaseRecord, OverdueRun

HOUR = 60 * MINUTE


def record(n: int = 1) -> LeaseRecord:
    return LeaseRecord(f"n{n}", f"q:secret{n}", f"w{n}", "owner", "label", LEASE)


def opened(bench: Bench, n: int = 1, **options: Any) -> LeaseRecord | None:
    return bench.run(
        calls.lease(bench.keys, record(n), **{"keep_ms": MINUTE, "now": bench.now, **options})
    )


def settled(bench: Bench, word: Any, n: int = 1, look_at: float | None = None) -> str:
    at = bench.now + MINUTE if look_at is None else look_at
    return bench.run(
        calls.settle(bench.keys, f"n{n}", word, look_at=at, keep_ms=MINUTE, now=bench.now)
    )


def overdue(bench: Bench, **options: Any) -> list[OverdueRun]:
    call = calls.overdue(bench.keys, **{"timeout_ms": HOUR, "now": bench.now, **options})
    return bench.run(call)[1]


def held(bench: Bench, worker: str = "w1", full: bool = False) -> HeldReply:
    return bench.run(calls.held(bench.keys, worker, full=full, now=bench.now))


# --- the record -----------------------------------------------------------------------------------


def test_a_key_answers_the_lease_that_it_has_opened(bench: Bench) -> None:
    assert opened(bench, 1, key="k", request="r") == record(1)
    assert opened(bench, 2, key="k", request="r") == record(1)
    assert opened(bench, 2, key="other", request="r") == record(2)
    assert opened(bench, 3) == record(3)
    assert opened(bench, 4) == record(4)


def test_a_key_with_another_request_is_refused(bench: Bench) -> None:
    opened(bench, 1, key="k", request="r")
    dump = bench.dump()
    assert opened(bench, 2, key="k", request="s") is None
    assert bench.dump() == dump


def test_a_repeat_learns_what_became_of_the_claim(bench: Bench) -> None:
    opened(bench, 1, key="k")
    settled(bench, "answered")
    again = opened(bench, 2, key="k")
    assert again is not None
    assert (again.lease, again.claim) == ("q:secret1", "answered")


def test_a_closed_lease_makes_room_for_a_new_one(bench: Bench) -> None:
    opened(bench, 1, key="k", request="r")
    settled(bench, "closed")
    assert opened(bench, 2, key="k", request="r") == record(2)
    assert opened(bench, 3, key="k", request="r") == record(2)


def test_a_key_whose_record_is_gone_opens_a_new_one(bench: Bench) -> None:
    opened(bench, 1, key="k", request="r")
    bench.redis.delete(bench.keys.lease("n1"))
    assert opened(bench, 2, key="k", request="r") == record(2)


def test_everything_about_a_lease_has_a_time_to_live(bench: Bench) -> None:
    opened(bench, 1, key="k")
    settled(bench, "answered")
    for name in ("lease:n1", "lease-key:k"):
        assert 0 < bench.redis.pttl(bench.key(name)) <= MINUTE


@pytest.mark.parametrize("name", ["lease:n1", "lease-key:k"])
def test_a_broken_record_is_refused(bench: Bench, name: str) -> None:
    bench.redis.rpush(bench.key(name), "x")
    with pytest.raises(BrokenKey):
        opened(bench, 1, key="k")
    assert len(bench.dump()) == 1


# --- the claim's fate -----------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("answered", "closed"), ("closed", "answered")])
def test_the_first_word_stands(bench: Bench, first: str, second: str) -> None:
    opened(bench)
    assert settled(bench, first) == first.upper()
    assert settled(bench, second) == first.upper()
    assert settled(bench, first) == first.upper()


def test_of_no_record_nothing_is_said(bench: Bench) -> None:
    assert settled(bench, "answered") == "GONE"
    assert bench.dump() == {}


def test_a_lease_that_nobody_could_look_at_is_not_answered(bench: Bench) -> None:
    opened(bench)
    bench.redis.set(bench.keys.deadlines, "x")
    with pytest.raises(BrokenKey):
        settled(bench, "answered")
    assert bench.redis.hget(bench.keys.lease("n1"), "claim") is None


# --- a suspect by itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "suspect"), [("crashes", 1, True), ("lost", 3, True), ("lost", 2, False)]
)
def test_a_suspect_is_handed_out_by_itself(
    bench: Bench, field: str, value: int, suspect: bool
) -> None:
    bench.add("a", "b", "c")
    bench.redis.hset(bench.keys.job("b"), field, value)
    batches = [ids(bench.claim(f"w{n}", 5, alone=True).jobs) for n in range(3)]
    assert batches == ([["a"], ["b"], ["c"]] if suspect else [["a", "b", "c"], [], []])
    assert not bench.findings()


def test_a_suspect_among_many_lines_keeps_its_turn(bench: Bench) -> None:
    for n in range(6):
        bench.add(f"j{n}", job_type=f"t{n % 3}")
        bench.wait(1)
    bench.redis.hset(bench.keys.job("j2"), "crashes", 1)
    types = ["t0", "t1", "t2"]
    batches = [ids(bench.claim(f"w{n}", 5, types, alone=True).jobs) for n in range(3)]
    assert batches == [["j0", "j1"], ["j2"], ["j3", "j4", "j5"]]
    assert not bench.findings()


# --- runs that are past their time ----------------------------------------------------------------


def leased(bench: Bench, n: int = 1, **options: Any) -> None:
    bench.add(*(f"j{n}-{i}" for i in range(2)), **options)
    assert len(bench.take(f"w{n}", 2)) == 2
    opened(bench, n)
    settled(bench, "answered", n, look_at=bench.now)


def test_runs_are_answered_when_their_time_is_over(bench: Bench) -> None:
    leased(bench, timeout_ms=SECOND, max_attempts=7)
    assert overdue(bench) == []
    bench.wait(SECOND - 1)
    assert overdue(bench) == []
    bench.wait(1)
    found = overdue(bench)
    assert [(r.worker, r.ulid, r.failures, r.max_attempts) for r in found] == [
        ("w1", "j1-0", 0, 7), ("w1", "j1-1", 0, 7),
    ]  # fmt: skip
    assert {r.fence for r in found} == {bench.field("j1-0", "fence")}


def test_a_job_that_says_nothing_has_the_time_that_the_caller_says(bench: Bench) -> None:
    leased(bench)
    bench.wait(30 * MINUTE)
    assert overdue(bench) == []
    bench.wait(30 * MINUTE)
    assert len(overdue(bench)) == 2


def test_no_timeout_is_none(bench: Bench) -> None:
    leased(bench, timeout_ms=0)
    for _ in range(50):
        bench.wait(HOUR)
        assert overdue(bench) == []
    assert bench.redis.zscore(bench.keys.deadlines, "w1") == bench.now + HOUR


def test_a_caller_that_dies_before_it_has_failed_them_is_followed(bench: Bench) -> None:
    leased(bench, timeout_ms=SECOND)
    bench.wait(SECOND)
    assert len(overdue(bench)) == 2
    assert overdue(bench) == []  # somebody sees to them now
    bench.wait(2 * SECOND)
    assert len(overdue(bench)) == 2


def test_what_was_failed_is_not_answered_again(bench: Bench) -> None:
    leased(bench, timeout_ms=SECOND)
    bench.wait(SECOND)
    one, two = overdue(bench)
    failures = [calls.Failure(r.ulid, r.fence, b"{}", 0, 3) for r in (one, two)]
    assert bench.run(calls.fail(bench.keys, "w1", failures, now=bench.now)) == ["RETRYING"] * 2
    bench.wait(2 * SECOND)
    assert overdue(bench) == []
    assert bench.redis.zcard(bench.keys.deadlines) == 0
    assert not bench.findings()


def test_a_worker_that_holds_nothing_is_forgotten(bench: Bench) -> None:
    leased(bench)
    bench.reap(targets=[("w1", "none", "handed back")])
    bench.wait(HOUR)
    assert overdue(bench) == []
    assert not bench.redis.exists(bench.keys.deadlines)


def test_a_look_that_a_clock_set_back_has_put_far_ahead_counts_as_now(bench: Bench) -> None:
    leased(bench, timeout_ms=SECOND)
    bench.redis.zadd(bench.keys.deadlines, {"w1": bench.now + 24 * HOUR})
    bench.wait(SECOND)
    assert len(overdue(bench)) == 2


def test_a_page_is_bounded_and_goes_on(bench: Bench) -> None:
    for n in range(5):
        leased(bench, n, timeout_ms=SECOND)
    bench.wait(SECOND)
    more, runs = bench.run(calls.overdue(bench.keys, timeout_ms=HOUR, limit=2, now=bench.now))
    assert (more, len({r.worker for r in runs})) == (True, 2)
    seen = {r.worker for r in runs}
    for _ in range(3):
        seen |= {r.worker for r in overdue(bench, limit=2)}
    assert len(seen) == 5


def test_broken_jobs_do_not_keep_their_neighbours(bench: Bench) -> None:
    leased(bench, timeout_ms=SECOND)
    bench.redis.set(bench.keys.job("j1-0"), "x")
    bench.redis.hset(bench.keys.job("j1-1"), mapping={"failures": "x", "max_attempts": "y"})
    bench.wait(SECOND)
    assert [(r.ulid, r.failures, r.max_attempts) for r in overdue(bench)] == [("j1-1", 0, None)]


def test_without_leases_over_http_a_look_costs_nothing(bench: Bench) -> None:
    bench.add("a")
    bench.take()
    assert overdue(bench) == []
    assert not bench.redis.exists(bench.keys.deadlines)


# --- what is held ---------------------------------------------------------------------------------


def test_what_is_held_is_what_was_claimed(bench: Bench) -> None:
    bench.add("a", "b", payload=b'{"n":18446744073709551616}', timeout_ms=7, max_attempts=2)
    jobs = bench.take("w1", 2)
    bench.cancel("b")
    found = held(bench, full=True)
    assert [run.job for run in found.runs] == jobs
    assert [run.cancel for run in found.runs] == [False, True]
    assert [run.started_at for run in found.runs] == [bench.now, bench.now]
    assert (found.status, found.lease_until) == ("OK", bench.now + LEASE)
    assert [run.job.payload for run in held(bench).runs] == [b"", b""]
    bench.finish(jobs[0])
    assert [run.job.ulid for run in held(bench).runs] == ["b"]


def test_a_dead_worker_holds_nothing(bench: Bench) -> None:
    bench.add("a")
    bench.take()
    bench.crash()
    assert held(bench) == HeldReply("LOST")
    assert held(bench, "nobody").runs == ()


@pytest.mark.parametrize("name", ["dead", "leases", "processing:w1"])
def test_what_cannot_be_read_is_said(bench: Bench, name: str) -> None:
    bench.redis.set(bench.key(name), "x")
    with pytest.raises(BrokenKey):
        held(bench)


def test_a_spoilt_job_is_passed_over_and_its_numbers_count_as_not_set(bench: Bench) -> None:
    bench.add("a", "b", job_type=TYPE)
    bench.take("w1", 2)
    bench.redis.set(bench.keys.job("a"), "x")
    bench.redis.hset(
        bench.keys.job("b"), mapping={"started_at": "x", "failures": "?", "attempts": "z"}
    )
    (run,) = held(bench).runs
    assert (run.job.ulid, run.started_at, run.job.failures) == ("b", None, 0)
