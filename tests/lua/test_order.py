"""Who runs first: age-adjusted priority over all lines of a queue, and its bound.

``score = eligible_at - priority * aging_ms``, lowest first. Once in line, a job can be overtaken only by
jobs that became eligible less than ``(their priority - its priority) * aging_ms`` after it did.
"""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.queue import LEASE, MINUTE, SECOND, START, TYPE, Bench, ids
from taskq.model import Claimed, JobSpec
from taskq.ordering import (
    AGING_MS_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TICK,
    overtaking_window_ms,
    score,
)

YEAR_2100 = 4_102_444_800_000.0
AGING = AGING_MS_DEFAULT

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
priorities = st.integers(PRIORITY_MIN, PRIORITY_MAX)


def emptied(bench: Bench) -> Bench:
    """A bench on a flushed server: hypothesis runs many examples in one test."""
    bench.redis.flushdb()
    bench.now, bench.claims = START, {}
    return bench


def names(n: int, prefix: str = "j") -> list[str]:
    """Ids whose alphabetical order is the reverse of their number: order by id would be seen."""
    return [f"{prefix}{n - i:05d}" for i in range(n)]


def drain(bench: Bench, job_types: Sequence[str] = (TYPE,), at_a_time: int = 1000) -> list[str]:
    """Claims everything; answers the ids in the order of the claims."""
    out: list[str] = []
    while jobs := bench.claim(most=at_a_time, job_types=job_types).jobs:
        out += ids(jobs)
    return out


# --- first in, first out --------------------------------------------------------------------------


@pytest.mark.parametrize("now", [START, YEAR_2100])
@pytest.mark.parametrize("priority", [PRIORITY_MIN, 0, PRIORITY_MAX])
@pytest.mark.parametrize("aging_ms", [AGING, 86_400_000, 0])
def test_a_thousand_jobs_of_one_call_keep_their_order(
    bench: Bench, now: float, priority: int, aging_ms: int
) -> None:
    """F25: at every allowed priority, weight of age and date the scores stay exact."""
    bench.now = now
    bench.configure(aging_ms=aging_ms)
    jobs = names(1000)
    bench.add(*jobs, priority=priority)
    assert drain(bench) == jobs


@pytest.mark.parametrize("now", [START, YEAR_2100])
def test_calls_within_one_millisecond_keep_their_order(bench: Bench, now: float) -> None:
    """The clock's microseconds tell them apart; the jobs of a call stay together."""
    jobs = names(30)
    for call in range(3):
        bench.now = now + call * 0.25
        bench.add(*jobs[call * 10 : call * 10 + 10])
    assert drain(bench) == jobs


@pytest.mark.parametrize("now", [START, YEAR_2100])
@pytest.mark.parametrize("priority", [PRIORITY_MIN, 0, PRIORITY_MAX])
def test_f25_calls_a_microsecond_apart_keep_their_order(
    bench: Bench, now: float, priority: int
) -> None:
    """F25: what the server's clock can tell apart, the scores can."""
    jobs = names(100)
    for n, job in enumerate(jobs):
        bench.now = now + n / 1000
        bench.add(job, priority=priority)
    assert drain(bench) == jobs


def test_aging_0_is_first_in_first_out_whatever_the_priority(bench: Bench) -> None:
    bench.configure(aging_ms=0)
    jobs = names(50)
    for n, job in enumerate(jobs):
        bench.add(job, priority=n * 4 - 100)
        bench.wait(1)
    assert drain(bench) == jobs


def test_higher_priority_runs_sooner_at_equal_age(bench: Bench) -> None:
    """F27: higher is sooner, and 0 is what a job has that says nothing."""
    bench.submit(*(JobSpec(f"p{p}", TYPE, priority=p) for p in (0, -100, 100, 5, -5)))
    assert drain(bench) == ["p100", "p5", "p0", "p-5", "p-100"]
    bench.submit(JobSpec("said", TYPE, priority=0), JobSpec("unsaid", TYPE))
    bench.wait(1)
    bench.submit(JobSpec("unsaid2", TYPE), JobSpec("said2", TYPE, priority=0))
    assert drain(bench) == ["said", "unsaid", "unsaid2", "said2"]


# --- the bound ------------------------------------------------------------------------------------


def test_one_point_of_priority_is_worth_aging_ms_of_waiting(bench: Bench) -> None:
    bench.add("low", priority=0)
    bench.wait(AGING - 1)
    bench.add("just in time", priority=1)
    bench.wait(2)
    bench.add("too late", priority=1)
    assert drain(bench) == ["just in time", "low", "too late"]


submissions = st.lists(
    st.tuples(st.integers(0, 400_000), priorities, st.sampled_from(["a", "b", "c"])), max_size=40
)


@quick
@given(submissions, st.sampled_from([0, 1, 1000, AGING]))
def test_a_job_is_overtaken_only_within_the_bound(
    bench: Bench, jobs: list[tuple[int, int, str]], aging_ms: int
) -> None:
    """Any priorities and times: whoever runs before an older job became eligible inside its window."""
    emptied(bench).configure(aging_ms=aging_ms)
    by_id: dict[str, tuple[float, int]] = {}
    for n, (at, priority, job_type) in enumerate(sorted(jobs)):
        # A call apart each, as Redis's own clock would have it.
        bench.now = START + at + n * TICK
        by_id[f"j{n}"] = (bench.now, priority)
        bench.add(f"j{n}", priority=priority, job_type=job_type)
    order = drain(bench, ["a", "b", "c"], at_a_time=7)

    assert sorted(order) == sorted(by_id)
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            (at_first, p_first), (at_second, p_second) = by_id[first], by_id[second]
            if at_first > at_second:
                window = overtaking_window_ms(p_second, p_first, aging_ms)
                assert at_first - at_second < window


@quick
@given(st.lists(st.integers(-10, 10), min_size=22, max_size=22))
def test_a_steady_stream_of_urgent_jobs_starves_nobody(bench: Bench, stream: list[int]) -> None:
    """One job comes and one runs, for ever: the first one runs when its window has passed."""
    emptied(bench).configure(aging_ms=SECOND)
    bench.add("patient", priority=-10)
    ran: list[str] = []
    for n, priority in enumerate(stream):
        bench.add(f"j{n}", priority=priority)
        bench.wait(SECOND)
        ran += ids(bench.take())
    assert "patient" in ran


# --- many lines are one order ---------------------------------------------------------------------


@quick
@given(st.integers(1, 100), st.integers(1, 50), st.integers(0, 2**32))
def test_claims_over_many_types_follow_one_global_order(
    bench: Bench, types: int, most: int, seed: int
) -> None:
    """Compared with a sorted list; every claim takes the next `most` of it, and names what is left."""
    emptied(bench)
    rng = random.Random(seed)
    kinds = [f"t{i}" for i in range(types)]
    model: list[tuple[float, str]] = []
    for n in range(rng.randint(1, 6)):
        bench.wait(rng.randint(1, 200_000))
        specs = [
            JobSpec(f"c{n}j{i}", rng.choice(kinds), priority=rng.randint(-20, 20))
            for i in range(rng.randint(1, 60))
        ]
        bench.submit(*specs)
        model += [
            (score(bench.now + i * TICK, s.priority, AGING), s.id) for i, s in enumerate(specs)
        ]
    model.sort()
    while True:
        reply = bench.claim(most=most, job_types=kinds)
        assert ids(reply.jobs) == [ulid for _, ulid in model[:most]]
        model = model[most:]
        assert reply.next_score == (model[0][0] if model else None)
        if not reply.jobs:
            break


def test_a_worker_is_served_only_types_it_knows(bench: Bench) -> None:
    bench.add("a", job_type="mail")
    bench.add("b", job_type="image")
    assert drain(bench, ["image", "other"]) == ["b"]
    assert bench.line("mail") == ["a"]


@quick
@given(st.lists(priorities, min_size=1, max_size=20), st.integers(1, 20), st.integers(-100, 100))
def test_upper_bounds_the_score_of_all_but_the_first(
    bench: Bench, wanted: list[int], most: int, limit: int
) -> None:
    """Another queue's head is the limit: at least one job, and none beyond it."""
    emptied(bench).submit(*(JobSpec(f"j{i}", TYPE, priority=p) for i, p in enumerate(wanted)))
    scores = sorted(score(START + i * TICK, p, AGING) for i, p in enumerate(wanted))
    upper = START - limit * AGING
    reply = bench.claim(most=most, upper=upper)
    taken = [scores[0], *(s for s in scores[1:] if s <= upper)][:most]
    assert len(reply.jobs) == len(taken)


@quick
@given(st.lists(st.integers(0, 400), min_size=1, max_size=20), st.integers(0, 1000))
def test_max_bytes_stops_before_payloads_pass_it(
    bench: Bench, sizes: list[int], max_bytes: int
) -> None:
    """A claim carries at least one job and no more payload than asked for."""
    emptied(bench).submit(*(JobSpec(f"j{i}", TYPE, payload=b"x" * n) for i, n in enumerate(sizes)))
    reply = bench.claim(most=100, max_bytes=max_bytes)
    fit, total = 1, sizes[0]
    while fit < len(sizes) and total + sizes[fit] <= max_bytes:
        total += sizes[fit]
        fit += 1
    assert ids(reply.jobs) == [f"j{i}" for i in range(fit)]


def test_a_look_takes_nothing_and_names_the_head(bench: Bench) -> None:
    bench.add("a", priority=3)
    bench.add("later", delay_ms=MINUTE)
    reply = bench.claim(most=0)
    assert (reply.jobs, reply.next_score) == ((), START - 3 * AGING)
    assert reply.next_due == START + MINUTE


# --- who comes back keeps its place ---------------------------------------------------------------


def three(bench: Bench) -> list[Claimed]:
    """Three jobs a second apart, the first two in a worker's hands."""
    for job in ("first", "second", "third"):
        bench.add(job)
        bench.wait(SECOND)
    return bench.take(most=2)


def test_a_job_handed_back_keeps_its_place(bench: Bench) -> None:
    bench.release(*reversed(three(bench)))
    assert drain(bench) == ["first", "second", "third"]


def test_a_job_of_a_dead_worker_keeps_its_place(bench: Bench) -> None:
    three(bench)
    bench.wait(LEASE + 1)
    bench.reap()
    assert ids(bench.take("w2", 3)) == ["first", "second", "third"]


def test_a_place_is_kept_even_if_aging_was_changed_meanwhile(bench: Bench) -> None:
    """A change of aging_ms holds for new placements only."""
    bench.add("a", priority=5)
    place = bench.score("a")
    (job,) = bench.take()
    bench.configure(aging_ms=1)
    bench.release(job)
    assert bench.score("a") == place


def test_a_retry_is_eligible_when_its_back_off_ends(bench: Bench) -> None:
    first, _ = three(bench)
    bench.fail(first, delay_ms=MINUTE)
    due = bench.now + MINUTE
    bench.wait(2 * MINUTE)
    bench.promote()
    assert bench.score("first") == due


def test_a_delayed_job_is_eligible_when_due_however_late_it_is_promoted(bench: Bench) -> None:
    bench.add("delayed", delay_ms=SECOND)
    bench.wait(2 * SECOND)
    bench.add("later")
    assert drain(bench) == ["delayed", "later"]


def test_jobs_due_at_one_time_keep_the_order_of_their_submission(bench: Bench) -> None:
    jobs = names(100)
    bench.add(*jobs, run_at_ms=int(START) + SECOND)
    bench.wait(2 * SECOND)
    assert drain(bench) == jobs


def test_a_delay_of_0_waits_in_line_like_any_other(bench: Bench) -> None:
    assert set(bench.add(*names(10), delay_ms=0)) == {"QUEUED"}
    assert set(bench.add(*names(10, "p"), run_at_ms=int(START))) == {"QUEUED"}


def test_a_snoozed_job_stands_where_its_new_time_puts_it(bench: Bench) -> None:
    first, second = three(bench)
    bench.snooze(first, delay_ms=10)
    bench.release(second)
    bench.wait(10)
    assert drain(bench) == ["second", "third", "first"]


@quick
@given(priorities, priorities, st.sampled_from([0, 1000, AGING]))
def test_an_edit_of_priority_moves_a_job_by_the_difference(
    bench: Bench, before: int, after: int, aging_ms: int
) -> None:
    emptied(bench).configure(aging_ms=aging_ms)
    bench.add("a", priority=before)
    place = bench.score("a") or 0.0
    bench.wait(MINUTE)
    assert bench.edit("a", priority=after) == "OK"
    assert bench.score("a") == pytest.approx(place - (after - before) * aging_ms, abs=TICK / 2)


def test_an_edit_of_a_delayed_job_counts_when_it_is_promoted(bench: Bench) -> None:
    bench.add("a", delay_ms=SECOND)
    bench.edit("a", priority=2)
    bench.wait(SECOND)
    bench.promote()
    assert bench.score("a") == START + SECOND - 2 * AGING


def test_a_job_in_line_that_is_to_be_due_now_keeps_its_place(bench: Bench) -> None:
    bench.add("a", "b")
    bench.wait(SECOND)
    bench.edit("a", run_at_ms=int(bench.now))
    assert bench.line() == ["a", "b"]


def test_an_operators_retry_goes_to_the_end_of_its_peers(bench: Bench) -> None:
    first, _ = three(bench)
    bench.fail(first, max_attempts=1)
    bench.retry("first")
    assert ids(bench.take("w2", 3)) == ["third", "first"]


def test_scores_are_all_different(bench: Bench) -> None:
    bench.add(*names(500))
    bench.wait(1)
    bench.add(*names(500, "k"))
    places = bench.redis.zrange(bench.keys.ready(TYPE), 0, -1, withscores=True)
    assert all(a < b for (_, a), (_, b) in pairwise(places))
