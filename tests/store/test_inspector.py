"""What is shown of queues, jobs and their past, against a real server."""

import json
from dataclasses import FrozenInstanceError, asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from support.queue import MINUTE, Bench
from taskq import calls, codec, inspector
from taskq.errors import InvalidInput, JobNotFound, QueueNotFound, Unavailable
from taskq.ids import UlidFactory
from taskq.inspector import Inspector, unserved
from taskq.keys import Keys
from taskq.present import job_to_dict, queue_to_dict, rfc3339, statistics_to_dict
from taskq.registry import WorkerInfo
from taskq.states import State
from taskq.stats import REMEMBER_SECONDS, latency
from taskq.store import AsyncStore

ulid = UlidFactory()


@pytest.fixture
def look(store: AsyncStore) -> Inspector:
    return Inspector(store)


def bench(url: str, queue: str = "q") -> Bench:
    """A queue under the server's own clock, since statistics are read by it."""
    made = Bench.at(url, queue)
    made.now = None  # type: ignore[assignment]
    made.store.know_queue(queue)
    return made


def worker(queues: tuple[str, ...], types: tuple[str, ...]) -> WorkerInfo:
    return WorkerInfo("w1", "h", 1, 0, "0.1", 0, 0, "running", queues, types, 10, 0)


# --- queues -----------------------------------------------------------------------------------------


async def test_queues_are_listed_by_name_with_their_counts(redis_url: str, look: Inspector) -> None:
    bench(redis_url, "b").add(ulid(), ulid())
    bench(redis_url, "a").add(ulid(), job_type="sms")
    infos = await look.queues()
    assert [(info.name, info.counts["queued"]) for info in infos] == [("a", 1), ("b", 2)]
    assert infos[0].types[0].job_type == "sms"


async def test_no_queue_is_an_empty_list(redis_url: str, look: Inspector) -> None:
    assert await look.queues() == []
    assert (await look.jobs()).jobs == ()


async def test_a_second_look_is_one_round_trip_and_as_fresh_as_the_first(
    redis_url: str, look: Inspector, store: AsyncStore, round_trips: list[int]
) -> None:
    bench(redis_url, "b").add(ulid())
    bench(redis_url, "c").add(ulid())
    await look.queues()
    round_trips.clear()
    bench(redis_url, "b").add(ulid())
    assert [(i.name, i.counts["queued"]) for i in await look.queues()] == [("b", 2), ("c", 1)]
    assert round_trips == [3]
    # One came, and one went.
    bench(redis_url, "a").add(ulid())
    await store.pipeline([("SREM", store.keys.queues, "b")])
    assert [(i.name, i.counts["queued"]) for i in await look.queues()] == [("a", 1), ("c", 1)]
    assert [info.name for info in await look.queues({"c", "x"})] == ["c"]


@pytest.mark.parametrize("looks", [1, 2])
async def test_only_the_first_queues_are_looked_at(
    redis_url: str, look: Inspector, looks: int
) -> None:
    names = [f"q{i:03d}" for i in range(120)]
    for name in names:
        bench(redis_url, name)
    for _ in range(looks):
        found, left_out = await look.over_queues(calls.counts, most=70)
        assert (list(found), left_out) == (names[:70], 50)
    found, left_out = await look.over_queues(calls.counts, wanted=lambda n: n[-1] == "7", most=10)
    assert (list(found), left_out) == (names[7:100:10], 2)
    assert all(info.name == name for name, info in found.items())
    found, left_out = await look.over_queues(calls.counts, ["z", "q000", "q"])
    assert (list(found), left_out) == (["z", "q000", "q"], 0)


async def test_scripts_that_the_server_has_lost_are_sent_again(
    redis_url: str, look: Inspector, store: AsyncStore
) -> None:
    for n in range(1, 4):
        bench(redis_url, f"q{n}").add(*(ulid() for _ in range(n)))
    await look.queues()
    await store.pipeline([("SCRIPT", "FLUSH")])
    assert [info.counts["queued"] for info in await look.queues()] == [1, 2, 3]


async def test_a_server_that_refuses_to_tell_is_unavailable(
    look: Inspector, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a bug of ours (500): it passes by itself (503)."""

    async def loading(commands: Any) -> list[Any]:
        return [redis.exceptions.BusyLoadingError("Redis is loading") for _ in commands]

    monkeypatch.setattr(store, "pipeline", loading)
    with pytest.raises(Unavailable):
        await look.queues()
    with pytest.raises(Unavailable):
        await look.statistics("q")


async def test_a_queue_exists_from_its_first_job_or_setting_on(
    redis_url: str, look: Inspector
) -> None:
    with pytest.raises(QueueNotFound):
        await look.queue("q")
    bench(redis_url).configure(max_depth=5)
    assert (await look.queue("q")).settings == {"max_depth": "5"}
    with pytest.raises(InvalidInput):
        await look.queue("no queue}")


async def test_a_queue_outside_the_registry_is_still_seen(
    redis_url: str, store: AsyncStore, look: Inspector
) -> None:
    bench(redis_url).add(ulid())
    await store.pipeline([("DEL", store.keys.queues)])
    assert (await look.queue("q")).counts["queued"] == 1


async def test_types_that_nobody_runs_are_named(redis_url: str, look: Inspector) -> None:
    bench(redis_url).add(ulid())
    info = await look.queue("q")
    assert unserved(info, []) == ["mail"]
    assert unserved(info, [worker(("other",), ("mail",))]) == ["mail"]
    assert unserved(info, [worker(("q",), ("sms",))]) == ["mail"]
    assert unserved(info, [worker(("q",), ("mail",))]) == []


async def test_the_dict_of_a_queue_tells_settings_as_values(
    redis_url: str, look: Inspector
) -> None:
    bench(redis_url).configure(paused=True, paused_types=["b", "a"], aging_ms=0)
    shown = queue_to_dict(await look.queue("q"), [])
    assert (shown["paused"], shown["paused_types"]) == (True, ["a", "b"])
    assert shown["settings"] == {"aging_ms": 0}
    assert shown["counts"]["queued"] == 0
    json.dumps(shown)


# --- jobs -------------------------------------------------------------------------------------------


async def test_a_job_is_shown_whole(redis_url: str, look: Inspector) -> None:
    made, one = bench(redis_url), ulid()
    payload = b'{"n":12345678901234567890,"e":[],"o":{}}'
    made.add(one, payload=payload)
    shown = job_to_dict(await look.job(f"q:{one}"))
    assert shown["payload"] == {"n": 12345678901234567890, "e": [], "o": {}}
    assert (shown["id"], shown["job_type"], shown["state"]) == (f"q:{one}", "mail", "queued")
    assert shown["created_at"].endswith("Z")
    with pytest.raises(JobNotFound):
        await look.job(f"q:{ulid()}")


async def test_rows_of_a_list_carry_no_payload(redis_url: str, look: Inspector) -> None:
    bench(redis_url).add(ulid(), payload=b'"secret"')
    (job,) = (await look.jobs()).jobs
    row = job_to_dict(job, full=False)
    assert "payload" not in row
    assert "secret" not in json.dumps(row)


async def test_history_tells_times_as_text(redis_url: str, look: Inspector) -> None:
    made, one = bench(redis_url), ulid()
    made.add(one)
    made.fail(*made.take())
    line = job_to_dict(await look.job(f"q:{one}"))["history"][-2]
    assert line["event"] == "failed"
    assert line["at"].endswith("Z")


async def test_every_job_is_on_exactly_one_page(redis_url: str, look: Inspector) -> None:
    everything = set()
    for name in ("a", "b"):
        made = bench(redis_url, name)
        for state_of in range(5):
            ids = [ulid() for _ in range(7)]
            everything |= {f"{name}:{i}" for i in ids}
            made.add(*ids, delay_ms=60_000 if state_of == 1 else None)
            if state_of == 2:
                made.finish(*made.take(most=7))
            elif state_of == 3:
                made.take(most=7)
            elif state_of == 4:
                made.cancel(*ids)
    seen: list[str] = []
    cursor = None
    while True:
        page = await look.jobs(limit=4, cursor=cursor)
        assert len(page.jobs) <= 4
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(everything)
    assert len(seen) == len(set(seen)) == 70


@pytest.mark.parametrize("limit", [1, 3, 8, 50])
@pytest.mark.parametrize("calls_a_page", [1, 7, 200])
async def test_places_that_are_looked_at_together_are_listed_in_their_order(
    redis_url: str,
    look: Inspector,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    calls_a_page: int,
) -> None:
    """Among many that are empty stand some with few jobs and one with more than fit on a page."""
    monkeypatch.setattr(inspector, "PAGE_CALLS", calls_a_page)
    wanted = []
    for i in range(30):
        queue = bench(redis_url, f"q{i:02d}")
        if i % 11 == 3:
            first = [ulid() for _ in range(2 if i < 20 else 60)]
            later = [ulid() for _ in range(1 + i % 7)]
            queue.add(*first)
            queue.add(*later, delay_ms=MINUTE)
            wanted += [f"q{i:02d}:{u}" for u in (*first, *later)]
    listed: list[str] = []
    cursor = None
    for _ in range(1000):
        page = await look.jobs(limit=limit, cursor=cursor)
        assert len(page.jobs) <= limit
        listed += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
    assert listed == wanted


async def test_places_that_are_looked_at_together_are_no_more_work_than_one(
    redis_url: str, look: Inspector, raw: Any
) -> None:
    for i in range(60):
        queue = bench(redis_url, f"q{i:02d}")
        if i >= 20:
            queue.add(*(ulid() for _ in range(200)))
    asked, pages = 0, 0
    found: list[str] = []
    cursor = None
    while not pages or cursor is not None:
        raw.config_resetstat()
        page = await look.jobs(states=[State.QUEUED], job_type="mail", limit=1000, cursor=cursor)
        asked = max(asked, raw.info("commandstats")["cmdstat_hmget"]["calls"])
        found += [job.id for job in page.jobs]
        cursor, pages = page.cursor, pages + 1
    assert len(found) == len(set(found)) == 40 * 200
    assert asked <= 2000


async def test_a_list_of_a_quiet_queue_takes_few_round_trips(
    redis_url: str, look: Inspector, round_trips: list[int]
) -> None:
    bench(redis_url)
    assert (await look.jobs(queue="q")).cursor is None
    assert round_trips == [1, 2, 4, 1]


async def test_a_list_can_be_narrowed(redis_url: str, look: Inspector) -> None:
    made, other = bench(redis_url), bench(redis_url, "other")
    ids = [ulid() for _ in range(3)]
    made.add(*ids)
    made.add(ulid(), job_type="sms")
    other.add(ulid())
    page = await look.jobs(queue="q", states=[State.QUEUED], job_type="mail")
    assert [job.ulid for job in page.jobs] == ids
    assert (await look.jobs(queue="q", states=[State.FAILED])).jobs == ()


@pytest.mark.parametrize("cursor", ["nonsense", "W10", "WyJxIiwibm9uZSIsIiIsIiIsIiJd", "ä"])
async def test_a_foreign_cursor_is_refused(redis_url: str, look: Inspector, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        await look.jobs(cursor=cursor)


async def test_a_page_over_very_many_queues_is_bounded(redis_url: str, look: Inspector) -> None:
    store = bench(redis_url, "zz")
    store.add(ulid())
    store.redis.sadd(Keys().queues, *(f"q{n}" for n in range(60)))
    page = await look.jobs()
    assert (page.jobs, page.cursor is not None) == ((), True)
    pages = 1
    while page.cursor is not None and not page.jobs:
        page = await look.jobs(cursor=page.cursor)
        pages += 1
    assert [job.queue for job in page.jobs] == ["zz"]
    assert pages < 6


# --- statistics -------------------------------------------------------------------------------------


async def test_statistics_count_what_happened_by_type(redis_url: str, look: Inspector) -> None:
    made = bench(redis_url)
    made.add(*(ulid() for _ in range(5)))
    made.add(ulid(), job_type="sms")
    made.finish(*made.take(most=3))
    made.fail(*made.take(), max_attempts=1)
    found = await look.statistics("q")
    assert found.counts["enqueued"] == 6
    assert (found.counts["succeeded"], found.counts["failed"], found.counts["raised"]) == (3, 1, 1)
    (mail,) = found.types
    assert mail.counts == {"failed": 1, "raised": 1, "succeeded": 3}
    assert mail.run is not None
    assert (mail.run.count, found.wait and found.wait.count) == (4, 4)
    assert found.per_minute["enqueued"] == pytest.approx(6 / 59.5, abs=0.02)
    assert len(found.series) == 60
    assert sum(point.counts.get("enqueued", 0) for point in found.series) == 6
    json.dumps(statistics_to_dict(found))


async def test_statistics_of_an_unused_queue_are_empty(redis_url: str, look: Inspector) -> None:
    found = await look.statistics("q", 5)
    assert (found.counts, found.wait, found.types) == ({}, None, ())
    with pytest.raises(InvalidInput):
        await look.statistics("q", 0)


async def test_the_past_beyond_two_hours_comes_from_ten_minute_sums(
    redis_url: str, store: AsyncStore, look: Inspector
) -> None:
    keys = store.keys.queue("q")
    ((seconds, _),) = await store.pipeline([("TIME",)])
    minute = int(seconds) // 60
    long_ago = (minute - 600) // 10 * 10
    await store.pipeline(
        [
            ("HSET", keys.stats10(long_ago), "enqueued", 100, "run:mail:20", 7),
            # Its minutes are summed as well as still there: they must not count twice.
            ("HSET", keys.stats(minute - 60), "enqueued", 10),
            ("HSET", keys.stats10((minute - 60) // 10 * 10), "enqueued", 10),
            ("HSET", keys.stats(minute), "enqueued", 1),
        ]
    )
    assert (await look.statistics("q", 2)).counts["enqueued"] == 1
    assert (await look.statistics("q", 120)).counts["enqueued"] == 11
    day = await look.statistics("q", 1440)
    assert day.counts["enqueued"] == 111
    assert day.run is not None
    assert day.run.count == 7
    assert sum(point.minutes for point in day.series) in range(1440, 1451)


async def test_a_broken_stats_hash_is_passed_over(
    redis_url: str, store: AsyncStore, look: Inspector
) -> None:
    keys = store.keys.queue("q")
    ((seconds, _),) = await store.pipeline([("TIME",)])
    await store.pipeline(
        [
            ("SET", keys.stats(int(seconds) // 60 - 1), "not a hash"),
            ("HSET", keys.stats(int(seconds) // 60), "enqueued", 1, "odd:x", "text", "run:x:y", 1),
        ]
    )
    assert (await look.statistics("q")).counts == {"enqueued": 1}


async def test_minutes_that_are_over_are_read_once_in_a_while(
    redis_url: str, store: AsyncStore, look: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("taskq.stats.time", SimpleNamespace(monotonic=lambda: clock.now))
    keys = store.keys.queue("q")
    ((seconds, _),) = await store.pipeline([("TIME",)])
    minute = int(seconds) // 60

    async def count(minutes_ago: int) -> int:
        await store.pipeline([("HINCRBY", keys.stats(minute - minutes_ago), "enqueued:mail", 1)])
        return (await look.statistics("q", 30)).counts["enqueued"]

    assert await count(10) == 1
    assert await count(10) == 1
    # This minute, and the one before it, may still be counted in.
    assert [await count(0), await count(0), await count(1)] == [2, 3, 4]
    assert (await look.statistics("q", 30, types={"sms"})).counts == {}
    assert (await look.statistics("q", 30, types={"mail"})).counts == {"enqueued": 4}
    clock.now += REMEMBER_SECONDS
    assert await count(10) == 6


async def test_what_is_remembered_has_a_bound(
    redis_url: str, store: AsyncStore, look: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskq.stats.MOST_REMEMBERED", 100)
    for queue in ("a", "b", "c", "d"):
        await look.statistics(queue, 60)
        assert len(look._past._over) <= 101


@pytest.mark.parametrize(
    "field",
    [
        "priority",
        "attempts",
        "lost",
        "created_at",
        "eligible_at",
        "started_at",
        "worker",
        "reason",
        "fence",
    ],
)
async def test_a_row_shows_a_job_as_a_look_at_it_does(
    redis_url: str, look: Inspector, field: str
) -> None:
    """Whatever stands in its fields: rows are read by columns, and a job by itself."""
    odd = ["", "7", "-7", "+7", "1.5e3", "07", " 7", "1_0", "7" * 30, "-" + "7" * 30, "-" + "7" * 4000,
           "-9007199254740993", "7" * 5000, "x", "nan", "inf", "\xff"]  # fmt: skip
    with redis.Redis.from_url(redis_url) as raw:
        for i, value in enumerate(odd):
            queue, one = f"q{i}", ulid()
            bench(redis_url, queue).add(one, ulid(), job_type="mail")
            raw.hset(f"taskq:{{{queue}}}:job:{one}", field, value.encode("latin-1"))
            rows = (await look.jobs(queue=queue)).jobs
            assert len(rows) == 2
            for row in rows:
                alone = await look.job(row.id)
                assert job_to_dict(row, full=False) == job_to_dict(alone, full=False), value


async def test_a_row_is_a_job_like_any_other(redis_url: str, look: Inspector) -> None:
    bench(redis_url).add(ulid())
    (row,) = (await look.jobs()).jobs
    assert row == replace(row)
    assert replace(row, payload=b"{}", history=row.history) != row
    assert asdict(row).keys() == asdict(await look.job(row.id)).keys()
    assert (row.payload, row.history, row.stub) == (None, (), False)
    with pytest.raises(FrozenInstanceError):
        row.state = State.FAILED  # type: ignore[misc]


def test_a_job_has_a_json_form_so_that_a_task_may_return_one() -> None:
    job = calls.parse_job("q", "x", [b"state", b"queued", b"payload", b"{}"], (), ())
    shown = json.loads(codec.dumps({"job": job}, default=codec.plain))
    assert shown["job"]["id"] == "q:x"
    assert shown["job"]["payload"] == "{}"


def test_percentiles_lie_in_the_bucket_of_their_rank() -> None:
    assert latency({}) is None
    found = latency({0: 50, 20: 45, 24: 5})
    assert found is not None
    assert 0 < found.p50 <= 1
    assert 2**9.5 < found.p95 <= 2**10
    assert 2**11.5 < found.p99 <= 2**12
    one = latency({10: 1})
    assert one is not None
    assert 2**4.5 < one.p50 <= one.p99 <= 2**5


def test_times_are_rfc_3339() -> None:
    assert rfc3339(1_750_000_000_123) == "2025-06-15T15:06:40.123Z"
    assert rfc3339(None) is None
    assert rfc3339(1e18) is None


def test_a_payload_that_a_foreign_hand_wrote_is_shown_as_text() -> None:
    job = calls.parse_job("q", "x", [b"state", b"queued", b"payload", b"\xff{"], (), ())
    assert job is not None
    assert job_to_dict(replace(job, result=b"{"))["result"] == "{"
    assert job_to_dict(job)["payload"] == "\ufffd{"
    for odd in (b"NaN", b"[" * 5000 + b"]" * 5000):
        assert job_to_dict(replace(job, payload=odd))["payload"] == odd.decode()
