"""Counters: their fields are bounded, and their sums since ever never go down and count nothing twice."""

import pytest

from support.queue import MINUTE, Bench
from taskq import calls
from taskq.model import JobSpec, QueueMetrics

HOUR = 60 * MINUTE


def metrics(bench: Bench) -> QueueMetrics:
    return bench.run(calls.metrics(bench.keys, now=bench.now))


def rollup(bench: Bench) -> None:
    bench.run(calls.rollup(bench.keys, now=bench.now))


def work(bench: Bench, *ulids: str, job_type: str = "mail") -> None:
    bench.add(*ulids, job_type=job_type)
    bench.finish(*bench.take("w1", len(ulids), job_type))


def test_sums_count_every_minute_once_whenever_they_are_rolled_up(bench: Bench) -> None:
    before = 0
    for i in range(90):
        work(bench, f"j{i}")
        if i % 7 in (0, 1):
            rollup(bench)
        now = metrics(bench).counters["succeeded:mail"]
        assert now == before + 1
        before = now
        bench.wait(MINUTE if i % 3 else 1000)
    bench.wait(2 * HOUR)
    rollup(bench)
    assert metrics(bench).counters["succeeded:mail"] == before
    assert metrics(bench).counters["enqueued"] == before


def test_a_clock_set_back_counts_nothing_twice(bench: Bench) -> None:
    work(bench, "a")
    bench.wait(5 * MINUTE)
    rollup(bench)
    bench.wait(-4 * MINUTE)
    assert metrics(bench).counters["succeeded:mail"] == 1
    rollup(bench)
    bench.wait(10 * MINUTE)
    rollup(bench)
    assert metrics(bench).counters["succeeded:mail"] == 1


def many_types(bench: Bench, minute: int, types: int = 900) -> None:
    """Jobs of types that nobody runs, cancelled: what any submitter may do."""
    ulids = [f"m{minute}-{i}" for i in range(types)]
    bench.submit(*(JobSpec(u, f"t{minute}.{i}") for i, u in enumerate(ulids)))
    bench.cancel(*ulids)


def test_types_beyond_the_room_of_a_minute_are_counted_as_other(bench: Bench) -> None:
    for part in range(5):
        many_types(bench, part)
    (name,) = bench.redis.scan_iter(bench.key("stats:*"))
    fields = bench.redis.hgetall(name)
    assert 2000 <= len(fields) <= 2010
    ended = [int(n) for field, n in fields.items() if field.startswith(b"cancelled:")]
    assert sum(ended) == 5 * 900
    work(bench, "late", job_type="late")
    assert bench.counted()["succeeded:other"] == 1
    assert any(field.startswith("run:other:") for field in bench.counted())


def test_ten_minute_sums_keep_the_types_that_counted_most(bench: Bench) -> None:
    for minute in range(5):
        for _ in range(3):
            work(bench, *(f"k{minute}-{_}-{i}" for i in range(3)), job_type="busy")
        many_types(bench, minute)
        bench.wait(MINUTE)
    bench.wait(20 * MINUTE)
    rollup(bench)
    sums: dict[bytes, int] = {}
    for name in bench.redis.scan_iter(bench.key("stats10:*")):
        fields = bench.redis.hgetall(name)
        assert len(fields) <= 2100
        for field, n in fields.items():
            sums[field] = sums.get(field, 0) + int(n)
    assert sums[b"succeeded:busy"] == 45
    assert sum(n for field, n in sums.items() if field.startswith(b"cancelled:")) == 4500


def test_in_the_sums_since_ever_the_types_not_seen_for_longest_make_room(bench: Bench) -> None:
    work(bench, "first", job_type="gone")
    for minute in range(6):
        bench.wait(2 * MINUTE)
        work(bench, f"b{minute}", job_type="busy")
        many_types(bench, minute, 600)
        bench.wait(2 * MINUTE)
        rollup(bench)
    counters = metrics(bench).counters
    assert bench.redis.hlen(bench.key("counters")) <= 2000
    assert "succeeded:gone" not in counters
    assert counters["succeeded:busy"] == 6
    assert counters["cancelled:t5.1"] == 1


def test_late_reports_are_counted(bench: Bench) -> None:
    bench.add("a", "b")
    jobs = bench.take(most=2)
    bench.crash()
    assert bench.finish(*jobs) == ["STALE", "STALE"]
    assert bench.fail(*jobs) == ["STALE", "STALE"]
    assert metrics(bench).counters["fenced_out"] == 4


def test_runs_that_will_be_tried_again_are_counted_apart_from_those_that_failed(
    bench: Bench,
) -> None:
    bench.add("a", "b")
    one, two = bench.take(most=2)
    bench.fail(one)
    bench.fail(two, max_attempts=1)
    counters = metrics(bench).counters
    assert (counters["raised:mail"], counters["retrying:mail"], counters["failed:mail"]) == (
        2,
        1,
        1,
    )


def test_what_is_overdue_shows(bench: Bench) -> None:
    bench.add("a", delay_ms=MINUTE)
    bench.wait(MINUTE + 5000)
    shown = metrics(bench)
    assert shown.first_due is not None
    assert shown.now - shown.first_due == pytest.approx(5000, abs=2)


def test_the_window_in_which_repeats_are_known_shows_as_it_is(bench: Bench) -> None:
    assert metrics(bench).dedup_window == 600_000
    bench.configure(dedup_max=1000)
    for at in range(2):
        bench.add(*(f"j{at}-{i}" for i in range(600)))
        for _ in range(6):
            jobs = bench.take(most=100)
            bench.finish(*jobs, result_ttl_ms=0)
        bench.wait(1000)
    assert metrics(bench).dedup_window < 3000
    bench.wait(HOUR)
    bench.configure(dedup_max=None)
    assert metrics(bench).dedup_window == 600_000
    bench.trim(squeeze=4)
    bench.wait(7000)
    assert metrics(bench).dedup_window == 7000
