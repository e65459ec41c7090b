"""No call works without bound, and no key grows without one."""

import json
from typing import Any

import pytest

from support.queue import MINUTE, SECOND, TYPE, Bench, ids
from taskq import calls
from taskq.errors import OutOfMemory
from taskq.model import JobSpec
from taskq.states import State

HOUR = 60 * MINUTE


def commands(bench: Bench, call: calls.Call[Any]) -> int:
    """Commands that a call runs."""
    bench.redis.config_resetstat()
    bench.run(call)
    stats = bench.redis.info("commandstats")
    return sum(s["calls"] for name, s in stats.items() if "config" not in name)


def of_types(kinds: range, **options: Any) -> list[JobSpec]:
    return [JobSpec(f"j{i}", f"t{i}", **options) for i in kinds]


def outcomes(bench: Bench, specs: list[JobSpec]) -> set[str]:
    return {
        e.outcome for at in range(0, len(specs), 1000) for e in bench.submit(*specs[at : at + 1000])
    }


# --- job types ------------------------------------------------------------------------------------


def test_delayed_jobs_do_not_bring_in_more_types_than_there_may_be(bench: Bench) -> None:
    """They come into line by themselves: a thousand types may wait for their time, and no more."""
    assert outcomes(bench, of_types(range(1000), delay_ms=MINUTE)) == {"SCHEDULED"}
    assert bench.add("x", job_type="x", delay_ms=MINUTE) == ["TOO_MANY_TYPES"]
    assert bench.add("known", job_type="t7", delay_ms=HOUR) == ["SCHEDULED"]
    assert bench.state("x") is None


def test_the_bound_holds_within_one_call_too(bench: Bench) -> None:
    outcomes(bench, of_types(range(999), delay_ms=MINUTE))
    words = [e.outcome for e in bench.submit(*of_types(range(2000, 2003), delay_ms=MINUTE))]
    assert words == ["SCHEDULED", "TOO_MANY_TYPES", "TOO_MANY_TYPES"]


def test_a_full_queue_takes_no_new_type_for_later_either(bench: Bench) -> None:
    outcomes(bench, of_types(range(1000)))
    assert bench.add("x", job_type="x", delay_ms=MINUTE) == ["TOO_MANY_TYPES"]
    assert bench.add("known", job_type="t7", delay_ms=MINUTE) == ["SCHEDULED"]


def test_rounds_of_delayed_types_never_pass_two_thousand_lines(bench: Bench) -> None:
    """Whenever a round is due, the next thousand types are sent: the lines stop growing."""
    for n in range(5):
        outcomes(bench, of_types(range(n * 1000, (n + 1) * 1000), delay_ms=SECOND))
        bench.wait(2 * SECOND)
        bench.promote()
    assert bench.redis.scard(bench.keys.lines) <= 2000


def test_types_that_are_due_make_room_for_others(bench: Bench) -> None:
    outcomes(bench, of_types(range(1000), delay_ms=SECOND))
    bench.wait(2 * SECOND)
    bench.promote()
    bench.take("w1", 1000, *(f"t{i}" for i in range(1000)))
    assert bench.add("x", job_type="x", delay_ms=SECOND) == ["SCHEDULED"]


def test_a_type_counts_until_its_last_job_is_due(bench: Bench) -> None:
    outcomes(bench, of_types(range(1000), delay_ms=SECOND))
    assert outcomes(bench, [JobSpec(f"k{i}", f"t{i}", delay_ms=HOUR) for i in range(1000)]) == {
        "SCHEDULED"
    }
    bench.wait(MINUTE)
    bench.promote()
    bench.take("w1", 1000, *(f"t{i}" for i in range(1000)))
    assert bench.add("x", job_type="x", delay_ms=SECOND) == ["TOO_MANY_TYPES"]


def test_an_edit_to_later_is_counted(bench: Bench) -> None:
    for spec in of_types(range(1000)):
        bench.submit(spec)
        bench.edit(spec.id, run_at_ms=int(bench.now) + HOUR)
    assert bench.add("x", job_type="x", delay_ms=MINUTE) == ["TOO_MANY_TYPES"]


def test_the_list_of_later_types_goes_with_the_last_delayed_job(bench: Bench) -> None:
    bench.add("a", "b", delay_ms=HOUR)
    bench.cancel("a", "b")
    bench.promote()
    assert not bench.redis.exists(bench.key("later"))


def test_a_list_of_later_types_that_is_full_of_the_past_is_cleared_by_a_submission(
    bench: Bench,
) -> None:
    """No janitor is needed for it."""
    outcomes(bench, of_types(range(1000), delay_ms=SECOND))
    bench.wait(2 * SECOND)
    for _ in range(6):
        bench.take("w1", 1000, *(f"t{i}" for i in range(1000)))
    assert bench.redis.zcard(bench.keys.state(State.SCHEDULED)) == 0
    assert bench.add("x", job_type="x", delay_ms=SECOND) == ["SCHEDULED"]


def test_calls_stay_bounded_with_many_thousand_lines(bench: Bench) -> None:
    """More than enqueue lets in can still come: by hand, or by a retry of a thousand dead types."""
    many = [f"t{i}" for i in range(12_000)]
    bench.redis.sadd(bench.keys.lines, *many)
    pipe = bench.redis.pipeline(transaction=False)
    for job_type in many:
        pipe.zadd(bench.keys.ready(job_type), {f"j-{job_type}": 1})
    pipe.execute()
    bench.configure(max_depth=1_000_000)
    keys, now = bench.keys, bench.now
    assert len(bench.run(calls.counts(keys, now=now)).types) == 2000
    assert commands(bench, calls.counts(keys, now=now)) < 7_000
    assert commands(bench, calls.configure(keys, {"paused": True}, now=now)) < 7_000
    assert commands(bench, calls.enqueue(keys, [JobSpec("x", TYPE)], now=now)) < 2_100
    bench.configure(paused=False)
    claim = calls.claim(keys, "w1", 1, 1, many, lease_ms=1000, now=now)
    assert commands(bench, claim) < 4_000
    assert commands(bench, calls.page(keys, State.QUEUED, now=now)) < 3_000
    purge = calls.purge(keys, [State.QUEUED], job_type="t11999", now=now)
    assert commands(bench, purge) < 40
    purge = calls.purge(keys, [State.QUEUED], limit=5000, now=now)
    assert commands(bench, purge) < 30_000


def test_a_purge_of_many_thousand_lines_comes_to_its_end(bench: Bench) -> None:
    for at in range(5):
        bench.redis.sadd(bench.keys.lines, *(f"x{at}y{i}" for i in range(999)))
        specs = [JobSpec(f"k{at}j{i}", f"x{at}y{i}") for i in range(999)]
        assert outcomes(bench, specs) <= {"QUEUED", "TOO_MANY_TYPES"}
    waiting = sum(bench.run(calls.counts(bench.keys, now=bench.now)).counts[s] for s in ("queued",))
    done, at = 0, 1
    while at:
        n, at = bench.run(
            calls.purge(bench.keys, [State.QUEUED], limit=10_000, page=at, now=bench.now)
        )
        done += n
    assert done >= waiting
    assert bench.run(calls.counts(bench.keys, now=bench.now)).counts["queued"] == 0


def test_with_memory_full_lines_are_refused_and_progress_goes_on(bench: Bench) -> None:
    """Nothing takes a line away before its job goes; progress replaces itself."""
    bench.add("a")
    (job,) = bench.take()
    line = calls.log(bench.keys, "w1", [(job.ulid, job.fence, 1, b"{}")], now=bench.now)
    bench.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemory):
            bench.run(line)
        step = calls.progress(bench.keys, "w1", [(job.ulid, job.fence, b"{}")], now=bench.now)
        assert bench.run(step) == ["OK"]
        assert bench.finish(job) == ["OK"]
    finally:
        bench.redis.config_set("maxmemory", 0)
    assert not bench.redis.exists(bench.keys.log("a"))


# --- promotion, statistics, quarantine ------------------------------------------------------------


def test_a_claim_promotes_two_hundred_of_each_kind_at_most(bench: Bench) -> None:
    bench.add(*(f"s{i}" for i in range(1000)), delay_ms=SECOND)
    bench.wait(2 * SECOND)
    taken = bench.take(most=250)
    assert len(taken) == 200
    assert bench.redis.zcard(bench.keys.state(State.SCHEDULED)) == 800
    assert ids(taken) == [f"s{i}" for i in range(200)]


def test_after_a_long_pause_all_minutes_that_are_kept_are_summed(bench: Bench) -> None:
    """Minutes live for three hours: those of two and a half hours ago are not lost."""
    bench.run(calls.rollup(bench.keys, now=bench.now))
    bench.add("a")
    bench.wait(150 * MINUTE)
    bench.run(calls.rollup(bench.keys, now=bench.now))
    sums = [bench.redis.hgetall(name) for name in bench.redis.scan_iter(bench.key("stats10:*"))]
    assert [s[b"enqueued"] for s in sums if b"enqueued" in s] == [b"1"]


def test_the_first_rollup_of_a_queue_sums_what_is_kept(bench: Bench) -> None:
    bench.add("a")
    bench.wait(170 * MINUTE)
    while bench.run(calls.rollup(bench.keys, now=bench.now)):
        pass
    assert len(list(bench.redis.scan_iter(bench.key("stats10:*")))) == 1


def test_quarantine_holds_a_thousand_and_counts_the_rest(bench: Bench) -> None:
    bench.redis.zadd(bench.keys.state(State.SCHEDULED), {f"x{i}": 1 for i in range(1500)})
    bench.promote(limit=2000)
    assert bench.redis.hlen(bench.keys.quarantine) == 1000
    assert bench.counted()["quarantined"] == 1000
    assert bench.counted()["quarantine_full"] == 500


def test_a_full_quarantine_still_tells_the_latest_of_what_is_in_it(bench: Bench) -> None:
    for _ in range(2):
        bench.redis.zadd(bench.keys.state(State.SCHEDULED), {f"x{i}": 1 for i in range(1000)})
        bench.promote(limit=2000)
    assert bench.redis.hlen(bench.keys.quarantine) == 1000
    entries = [json.loads(v) for v in bench.redis.hvals(bench.keys.quarantine)]
    assert {e["reason"] for e in entries} == {"no job"}
    assert "quarantine_full" not in bench.counted()
