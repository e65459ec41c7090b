"""Listing jobs page by page: every job that stays is listed once, whatever ties and goes meanwhile."""

from typing import Any

import pytest

from support.queue import MINUTE, Bench
from taskq import calls
from taskq.calls import Cursor
from taskq.model import JobSpec
from taskq.states import State


def page(bench: Bench, state: State, cursor: Cursor | None = None, **options: Any) -> calls.Page:
    return bench.run(calls.page(bench.keys, state, cursor=cursor, now=bench.now, **options))


def everything(bench: Bench, state: State, **options: Any) -> list[str]:
    """Ids of all pages, in their order; fails if they come to no end."""
    cursor, listed = None, []
    for _ in range(2000):
        found = page(bench, state, cursor, **options)
        listed += [job.ulid for job in found.jobs]
        if (cursor := found.cursor) is None:
            return listed
    raise AssertionError("pages without end")


def names(n: int) -> list[str]:
    return [f"j{i:05d}" for i in range(n)]


def tied(bench: Bench, state: State, n: int) -> list[str]:
    """``n`` jobs of one state with one and the same score; their ids in the order of a list."""
    ids = names(n)
    for at in range(0, n, 1000):
        options = {"delay_ms": MINUTE} if state == State.SCHEDULED else {}
        bench.add(*ids[at : at + 1000], **options)
    if state == State.CANCELLED:
        for at in range(0, n, 1000):
            bench.cancel(*ids[at : at + 1000])
    key = bench.keys.ready("mail") if state == State.QUEUED else bench.keys.state(state)
    bench.redis.zadd(key, dict.fromkeys(ids, bench.now + MINUTE))
    return ids[::-1] if state == State.CANCELLED else ids


TIES = pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.CANCELLED])


def test_more_jobs_of_one_run_at_than_a_page_may_look_at_are_all_listed(bench: Bench) -> None:
    due = int(bench.now) + MINUTE
    for at in range(0, 1500, 100):
        pipe = [JobSpec(u, "mail", run_at_ms=due) for u in names(1500)[at : at + 100]]
        for spec in pipe:
            bench.submit(spec)
    assert everything(bench, State.SCHEDULED) == names(1500)


@TIES
@pytest.mark.parametrize(("limit", "budget"), [(50, 60), (7, 7), (3, 1000), (1000, 1)])
def test_jobs_that_tie_are_listed_once_each(
    bench: Bench, state: State, limit: int, budget: int
) -> None:
    ids = tied(bench, state, 300)
    assert everything(bench, state, limit=limit, budget=budget) == ids


@TIES
@pytest.mark.parametrize("how", ["gone", "moved"])
def test_a_page_goes_on_though_the_last_entry_has_left_its_place(
    bench: Bench, state: State, how: str
) -> None:
    """At every page its last job goes, or gets another score: nobody behind it is left out."""
    ids = tied(bench, state, 100)
    key = bench.keys.ready("mail") if state == State.QUEUED else bench.keys.state(state)
    cursor, listed = None, []
    while True:
        found = page(bench, state, cursor, limit=9, budget=1000)
        listed += [job.ulid for job in found.jobs]
        if (cursor := found.cursor) is None:
            break
        if how == "gone":
            bench.redis.zrem(key, cursor.id)
        else:
            # To where it has been listed already.
            ahead = -1 if state == State.CANCELLED else 1
            bench.redis.zadd(key, {cursor.id: bench.now + MINUTE - ahead})
    assert listed == ids


def test_a_page_after_an_entry_of_a_long_tie_that_is_gone_is_bounded_work(bench: Bench) -> None:
    tied(bench, State.SCHEDULED, 5000)
    cursor = page(bench, State.SCHEDULED, limit=2500, budget=2500).cursor
    assert cursor is not None
    bench.redis.zrem(bench.keys.state(State.SCHEDULED), cursor.id)
    bench.redis.config_resetstat()
    found = page(bench, State.SCHEDULED, cursor, limit=5, budget=20)
    stats = bench.redis.info("commandstats")
    assert [job.ulid for job in found.jobs] == names(5000)[2500:2505]
    assert sum(s["calls"] for s in stats.values()) < 60


def test_ended_jobs_between_ties_come_newest_first(bench: Bench) -> None:
    ids = names(40)
    bench.add(*ids)
    bench.cancel(*ids)
    key = bench.keys.state(State.CANCELLED)
    bench.redis.zadd(key, {u: bench.now + i // 10 for i, u in enumerate(ids)})
    assert everything(bench, State.CANCELLED, limit=4) == ids[::-1]


def test_running_jobs_go_on_behind_the_last_one_though_the_list_got_shorter(bench: Bench) -> None:
    ids = names(30)
    bench.add(*ids)
    jobs = bench.take(most=30)
    first = page(bench, State.RUNNING, limit=10)
    bench.finish(*jobs[:5])
    rest = page(bench, State.RUNNING, first.cursor, limit=100)
    assert [job.ulid for job in (*first.jobs, *rest.jobs)] == ids


def test_a_cursor_whose_score_is_no_number_starts_its_box_again(bench: Bench) -> None:
    """It comes from outside: never an end while there are jobs."""
    bench.add("a", delay_ms=MINUTE)
    found = page(bench, State.SCHEDULED, Cursor("scheduled", "soon", "x"))
    assert [job.ulid for job in found.jobs] == ["a"]


@pytest.mark.parametrize(("limit", "budget"), [(50, 1000), (7, 1000), (20, 45), (3, 10), (19, 19)])
@pytest.mark.parametrize("every", [1, 2, 30, 131])
def test_pages_of_one_type_hold_each_of_its_jobs_once(
    bench: Bench, limit: int, budget: int, every: int
) -> None:
    """Whatever stands between them: an entry is looked at once, and no page looks at more than it may."""
    ids = names(130)
    for i, ulid in enumerate(ids):
        bench.add(ulid, job_type="mail" if i % every == 0 else "other", delay_ms=MINUTE + i)
    cursor, listed, looked = None, [], 0
    while True:
        found = page(bench, State.SCHEDULED, cursor, job_type="mail", limit=limit, budget=budget)
        listed += [job.ulid for job in found.jobs]
        looked += found.looked
        assert len(found.jobs) <= limit
        assert found.looked <= budget
        if (cursor := found.cursor) is None:
            break
        assert len(found.jobs) == limit or found.looked == budget
    assert listed == ids[::every]
    assert looked == len(ids)


@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.CANCELLED, State.RUNNING])
def test_a_page_reads_what_it_shows_and_no_more(bench: Bench, state: State) -> None:
    """However much more it may look at: what is read costs the server also where it is thrown away."""
    if state == State.RUNNING:
        bench.add(*names(500))
        bench.take(most=500)
    else:
        tied(bench, state, 500)
    with bench.redis.monitor() as monitor:
        found = page(bench, state, limit=30, budget=1000)
        asked = []
        bench.redis.ping()
        while (command := monitor.next_command())["command"] != "PING":
            asked.append(command["command"].split())
    assert len(found.jobs) == 30
    ranges = [words for words in asked if words[0] in ("ZRANGE", "ZREVRANGE", "LRANGE")]
    assert [int(words[3]) - int(words[2]) for words in ranges] == [30]
    assert sum(words[0] == "HMGET" for words in asked) == 30
