"""Bulk actions: one runner at a time, carried on by others, and never about what came later."""

import asyncio
import time
from typing import Any

import pytest

from support.queue import Bench
from taskq import bulk as module
from taskq import calls
from taskq.bulk import Bulks
from taskq.errors import BulkNotFound, IdempotencyConflict, InvalidInput, QueueFull
from taskq.ids import UlidFactory
from taskq.janitor import Janitor
from taskq.selection import BulkFilter
from taskq.states import State
from taskq.store import AsyncStore

ulid = UlidFactory()
FAILED = BulkFilter("q", (State.FAILED,))


@pytest.fixture
def bench(redis_url: str) -> Bench:
    """A queue under the server's own clock, as bulk actions see it."""
    made = Bench.at(redis_url)
    made.now = None  # type: ignore[assignment]
    made.store.know_queue("q")
    return made


def failed(bench: Bench, n: int, **options: Any) -> list[str]:
    """``n`` dead letters; their ids."""
    ids = [ulid() for _ in range(n)]
    for at in range(0, n, 500):
        bench.add(*ids[at : at + 500], **options)
        jobs = bench.take(f"w{ids[at]}", 500, options.get("job_type", "mail"))
        bench.fail(*jobs, worker=f"w{ids[at]}", max_attempts=1)
    return ids


async def test_retries_all_that_had_failed_and_counts_them(bench: Bench, store: AsyncStore) -> None:
    ids = failed(bench, 450)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    assert (bulk.state, bulk.done) == ("running", 0)
    assert await bulks.run(bulk.id) == "ENDED"
    bulk = await bulks.get(bulk.id)
    assert (bulk.state, bulk.matched, bulk.done, bulk.skipped) == ("done", 450, 450, 0)
    assert bench.states(ids) == {State.QUEUED}
    assert not bench.findings()


async def test_a_job_that_fails_again_is_not_retried_twice(bench: Bench, store: AsyncStore) -> None:
    """Between two pages everything that was retried fails once more."""
    ids = failed(bench, 500)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    page = 0
    while await bulks.run(bulk.id, seconds=0) == "MORE":
        page += 1
        worker = f"again{page}"
        bench.fail(*bench.take(worker, 500), worker=worker, max_attempts=1)
        assert page < 10
    assert (await bulks.get(bulk.id)).done == 500
    attempts = {bench.field(job, "attempts") for job in ids}
    assert attempts <= {"1", "2"}, "each ran once more at most"


async def test_what_comes_after_the_start_is_left_alone(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 10)
    bulks = Bulks(store)
    bulk = await bulks.start("delete", FAILED)
    until = time.time() + 0.01
    while time.time() < until:
        await asyncio.sleep(0.002)
    late = failed(bench, 5)
    await bulks.run(bulk.id)
    assert (await bulks.get(bulk.id)).done == 10
    assert bench.states(late) == {State.FAILED}


async def test_one_runner_at_a_time(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 500)
    one, other = Bulks(store), Bulks(store)
    bulk = await one.start("retry", FAILED)
    keys, name = store.keys.queue("q"), bulk.id[2:]
    await store.run(calls.bulk_take(keys, name, "somebody", lease_ms=module.LEASE_MS))
    assert await one.run(bulk.id) == await other.run(bulk.id) == "HELD"
    assert (await one.get(bulk.id)).step == 0
    bench.redis.hset(bench.key(f"bulk:{name}"), "runner_until", 0)
    assert await one.run(bulk.id, seconds=0) == "MORE"
    assert await other.run(bulk.id) == "ENDED", "given back when its time was over"


async def test_when_its_process_dies_a_janitor_carries_it_on(
    bench: Bench, store: AsyncStore
) -> None:
    """Dies between a page and its count: the page is done again, and nothing is done twice."""
    ids = failed(bench, 500)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    assert await bulks.run(bulk.id, seconds=0) == "MORE"
    before = await bulks.get(bulk.id)
    assert before.done == module.PAGE
    keys = store.keys.queue("q")
    jobs, _, _ = await module.matching(store, FAILED, before.cursor, 200)
    await store.run(calls.retry(keys, [(job.ulid, str(job.fence)) for job in jobs]))
    await store.run(calls.bulk_take(keys, bulk.id[2:], "dies now", lease_ms=module.LEASE_MS))
    janitor = Janitor(store, every_seconds=0.001, lease_seconds=15)
    await janitor.round()
    assert (await bulks.get(bulk.id)).step == before.step, "its lease has not run out"
    bench.redis.hset(bench.key(f"bulk:{bulk.id[2:]}"), "runner_until", 0)
    await janitor.round()
    after = await bulks.get(bulk.id)
    assert (after.state, after.done) == ("done", 300), "what was not counted is not there any more"
    assert bench.states(ids) == {State.QUEUED}
    assert {bench.field(job, "attempts") for job in ids} == {"1"}


async def test_a_runner_that_was_held_up_counts_nothing(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 500)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    keys, name = store.keys.queue("q"), bulk.id[2:]
    old = await store.run(calls.bulk_take(keys, name, "old", lease_ms=1))
    assert isinstance(old, dict)
    bench.redis.hset(bench.key(f"bulk:{name}"), "runner_until", 0)
    assert await bulks.run(bulk.id, seconds=0) == "MORE"
    late = calls.bulk_step(
        keys, name, fence=int(old["fence"]), step=1, cursor="", looked=9, matched=9, done=9,
        skipped=0, last=True, lease_ms=1,
    )  # fmt: skip
    assert await store.run(late) == "STALE"
    assert (await bulks.get(bulk.id)).done == module.PAGE


async def test_the_same_page_reported_twice_counts_once(bench: Bench, store: AsyncStore) -> None:
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    keys, name = store.keys.queue("q"), bulk.id[2:]
    taken = await store.run(calls.bulk_take(keys, name, "r", lease_ms=10_000))
    assert isinstance(taken, dict)
    page = calls.bulk_step(
        keys, name, fence=int(taken["fence"]), step=1, cursor="c", looked=9, matched=9, done=8,
        skipped=1, last=False, lease_ms=10_000,
    )  # fmt: skip
    assert [await store.run(page), await store.run(page)] == ["OK", "OK"]
    assert (await bulks.get(bulk.id)).done == 8


async def test_stops_where_it_is(bench: Bench, store: AsyncStore) -> None:
    ids = failed(bench, 500)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    await bulks.run(bulk.id, seconds=0)
    stopped = await bulks.stop(bulk.id)
    assert (stopped.state, stopped.done) == ("stopped", module.PAGE)
    assert await bulks.run(bulk.id) == "ENDED"
    assert (await bulks.stop(bulk.id)).finished_at == stopped.finished_at
    assert [bench.state(job) for job in ids].count(State.QUEUED) == module.PAGE


async def test_cancels_what_waits_and_only_that_where_it_says_so(
    bench: Bench, store: AsyncStore
) -> None:
    waiting, later, running = ulid(), ulid(), ulid()
    bench.add(running)
    bench.take()
    bench.add(waiting)
    bench.add(later, delay_ms=60_000)
    bulks = Bulks(store)
    only = BulkFilter("q", (State.QUEUED, State.SCHEDULED))
    bulk = await bulks.start("cancel", only)
    await bulks.run(bulk.id)
    assert bench.states([waiting, later]) == {State.CANCELLED}
    assert bench.field(running, "cancel") is None
    bulk = await bulks.start("cancel", BulkFilter("q"))
    await bulks.run(bulk.id)
    assert bench.field(running, "cancel") == "cancelled"
    assert (await bulks.get(bulk.id)).done == 1


async def test_a_job_that_starts_before_its_page_is_not_stopped(
    bench: Bench, store: AsyncStore
) -> None:
    bench.add("a")
    bench.take()
    words = await store.run(calls.cancel(store.keys.queue("q"), ["a"], waiting_only=True))
    assert words == [("RUNNING", None)]
    assert bench.field("a", "cancel") is None


async def test_edits_each_job_once(bench: Bench, store: AsyncStore) -> None:
    ids = [ulid() for _ in range(450)]
    bench.add(*ids)
    bulks = Bulks(store)
    bulk = await bulks.start("edit", BulkFilter("q"), priority=-3)
    await bulks.run(bulk.id)
    assert (await bulks.get(bulk.id)).done == 450
    assert {bench.field(job, "priority") for job in ids} == {"-3"}


async def test_filters_by_type_kind_time_and_ids(bench: Bench, store: AsyncStore) -> None:
    old = failed(bench, 3)
    other = failed(bench, 2, job_type="sms")
    kind = bench.field(other[0], "fingerprint") or ""
    bulks = Bulks(store)
    for wanted, n in (
        (BulkFilter("q", job_type="sms"), 2),
        (BulkFilter("q", fingerprint=kind), 2),
        (BulkFilter("q", fingerprint="unknown"), 0),
        (BulkFilter("q", ids=(old[0], other[0], ulid())), 2),
        (BulkFilter("q", ids=(old[0], other[0]), job_type="sms"), 1),
        (BulkFilter("q", since=1), 5),
        (BulkFilter("q", before=2), 0),
        (BulkFilter("q", since=int(time.time() * 1000) + 60_000), 0),
    ):
        preview = await bulks.preview("retry", wanted)
        assert (preview.matched, preview.complete) == (n, True), wanted
    bulk = await bulks.start("retry", BulkFilter("q", ids=tuple(old)))
    await bulks.run(bulk.id)
    assert bench.states(old) == {State.QUEUED}
    assert bench.states(other) == {State.FAILED}


async def test_a_held_unique_key_is_skipped_and_counted(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 1, unique="k")
    bench.add(ulid(), unique="k")
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    await bulks.run(bulk.id)
    bulk = await bulks.get(bulk.id)
    assert (bulk.matched, bulk.done, bulk.skipped) == (1, 0, 1)


async def test_keeps_the_pace_it_was_given(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 30)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED, per_second=20)
    began = time.monotonic()
    await bulks.run(bulk.id)
    assert time.monotonic() - began > 0.9, "30 jobs at 20 a second"
    assert (await bulks.get(bulk.id)).done == 30


async def test_refuses_what_an_action_cannot_do(bench: Bench, store: AsyncStore) -> None:
    bulks = Bulks(store)
    with pytest.raises(InvalidInput, match="retry is for jobs that are failed"):
        await bulks.start("retry", BulkFilter("q", (State.QUEUED,)))
    with pytest.raises(InvalidInput, match="no action"):
        await bulks.start("explode", BulkFilter("q"))
    with pytest.raises(InvalidInput, match="priority"):
        await bulks.start("edit", BulkFilter("q"))
    with pytest.raises(InvalidInput, match="priority"):
        await bulks.start("retry", FAILED, priority=3)
    with pytest.raises(BulkNotFound):
        await bulks.get(f"q:{ulid()}")
    with pytest.raises(BulkNotFound):
        await bulks.get("nonsense")


async def test_the_same_id_is_the_same_action(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 3)
    bulks, name = Bulks(store), ulid()
    bulk = await bulks.start("retry", FAILED, bulk_id=name)
    await bulks.run(bulk.id)
    again = await bulks.start("retry", FAILED, bulk_id=name)
    assert (again.state, again.cutoff) == ("done", bulk.cutoff)
    with pytest.raises(IdempotencyConflict):
        await bulks.start("delete", FAILED, bulk_id=name)


async def test_at_most_twenty_at_once_and_a_hundred_remembered(
    bench: Bench, store: AsyncStore
) -> None:
    bulks = Bulks(store)
    for _ in range(20):
        await bulks.start("retry", FAILED)
    with pytest.raises(QueueFull):
        await bulks.start("retry", FAILED)
    for bulk in await bulks.list("q"):
        await bulks.stop(bulk.id)
    for _ in range(90):
        await bulks.stop((await bulks.start("retry", FAILED)).id)
    assert len(await bulks.list("q")) == 100
    assert len(list(bench.redis.scan_iter(bench.key("bulk:*"), count=1000))) == 100
    assert all(bench.redis.ttl(key) > 0 for key in bench.redis.scan_iter(bench.key("bulk:*")))


async def test_an_unforeseen_error_ends_it_with_a_reason(bench: Bench, store: AsyncStore) -> None:
    ids = failed(bench, 3)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", BulkFilter("q", ids=tuple(ids)))
    bench.redis.delete(bench.key("failed"))
    bench.redis.set(bench.key("failed"), "x")
    assert await bulks.run(bulk.id) == "ENDED"
    bulk = await bulks.get(bulk.id)
    assert (bulk.state, bulk.done) == ("failed", 0)
    assert "wrong type" in (bulk.error or "")


async def test_a_thousand_are_redriven_in_seconds_by_calls_of_milliseconds(
    bench: Bench, store: AsyncStore
) -> None:
    ids = failed(bench, 1000)
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    bench.redis.config_resetstat()
    began = time.monotonic()
    await bulks.run(bulk.id)
    assert time.monotonic() - began < 5
    assert bench.states(ids) == {State.QUEUED}
    stats = bench.redis.info("commandstats")["cmdstat_evalsha"]
    assert stats["calls"] <= 35, "a page, its jobs and its count: three calls for 100 jobs"


async def test_nothing_is_left_wrong(bench: Bench, store: AsyncStore) -> None:
    failed(bench, 300)
    bulks = Bulks(store)
    for action in ("retry", "cancel", "delete"):
        bulk = await bulks.start(action, BulkFilter("q"))
        await bulks.run(bulk.id)
        assert (await bulks.get(bulk.id)).done == 300, action
    assert not bench.findings()
    assert bench.redis.zcard(bench.key("bulks")) == 0


async def test_a_lease_from_before_the_clock_went_back_holds_nobody_up(
    bench: Bench, store: AsyncStore
) -> None:
    bulks = Bulks(store)
    bulk = await bulks.start("retry", FAILED)
    ahead = int(time.time() * 1000) + 3_600_000
    mapping = {"runner": "gone", "runner_until": ahead}
    bench.redis.hset(bench.key(f"bulk:{bulk.id[2:]}"), mapping=mapping)
    assert await bulks.run(bulk.id) == "ENDED"


async def test_a_success_forgets_the_failure_before_it(bench: Bench) -> None:
    bench.add("a")
    bench.fail(*bench.take(), max_attempts=1)
    assert bench.field("a", "fingerprint")
    bench.retry("a")
    bench.finish(*bench.take("w2"), worker="w2")
    assert bench.field("a", "fingerprint") is None
