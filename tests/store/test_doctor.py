"""Each planted inconsistency is found, and a healthy queue, however busy, gives none."""

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import Callable

import pytest

from support.queue import Bench
from taskq import keys as keys_module
from taskq.doctor import (
    Finding,
    drop_quarantine,
    examine,
    examine_all,
    fix,
    rebuild_registry,
    server_findings,
)
from taskq.doctor.rules import KINDS, SHARED_KINDS
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.server import ServerReport
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore

ulid = UlidFactory()


@pytest.fixture
def q(redis_url: str) -> Bench:
    """A queue under the server's own clock: what is overdue is told by it."""
    made = Bench.at(redis_url)
    made.now = None  # type: ignore[assignment]
    made.store.know_queue("q")
    return made


def one_of_each(q: Bench) -> dict[str, str]:
    """A job in every state, with all that may hang on it."""
    names = "queued unique scheduled running stopping retrying done dead gone"
    ids = {name: ulid() for name in names.split(" ")}
    q.add(ids["done"], ids["dead"], ids["gone"], ids["retrying"], ids["running"], ids["stopping"])
    jobs = {job.ulid: job for job in q.take(most=6)}
    q.finish(jobs[ids["done"]])
    q.finish(jobs[ids["gone"]], result_ttl_ms=0)
    q.fail(jobs[ids["dead"]], max_attempts=1)
    q.fail(jobs[ids["retrying"]])
    q.cancel(ids["stopping"])
    q.beat(holds=2)
    q.add(ids["queued"], expires_ms=3_600_000)
    q.add(ids["unique"], unique="k:1")
    q.add(ids["scheduled"], delay_ms=3_600_000)
    return ids


def serious(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "info"]


async def look(store: AsyncStore, page: int = 200) -> list[Finding]:
    return await examine(store, "q", page=page, pause=0)


async def the_one(store: AsyncStore, message: str, severity: str = "error") -> Finding:
    """The finding with this in its message; it is the only kind of its severity or worse."""
    found = [f for f in await look(store) if re.search(message, f.message)]
    assert found, await look(store)
    assert {f.severity for f in found} == {severity}
    return found[0]


# --- healthy queues ---------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 2, 200])
async def test_a_healthy_queue_has_no_findings(q: Bench, store: AsyncStore, page: int) -> None:
    one_of_each(q)
    assert serious(await look(store, page)) == []


async def test_an_empty_server_has_no_errors(store: AsyncStore) -> None:
    found = await examine_all(store, pause=0)
    assert [f for f in found if f.severity == "error"] == []


async def test_every_stage_of_recovery_is_healthy(q: Bench, store: AsyncStore) -> None:
    one_of_each(q)
    q.crash("w1")
    assert serious(await look(store)) == []
    q.retry(*(await _ids(store, "failed")))
    q.trim(squeeze=1)
    q.configure(paused=True, max_depth=10)
    assert serious(await look(store)) == []


async def _ids(store: AsyncStore, name: str) -> list[str]:
    (ids,) = await store.pipeline([("ZRANGE", store.keys.queue("q").prefix + name, 0, -1)])
    return [i.decode() for i in ids]


async def test_a_busy_queue_gives_no_false_findings(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    over = threading.Event()

    def work(name: str) -> None:
        mine = Bench.at(redis_url)
        mine.now = None  # type: ignore[assignment]
        while not over.is_set():
            mine.add(*(ulid() for _ in range(8)), unique=None)
            mine.add(ulid(), unique=name)
            mine.add(ulid(), delay_ms=1, expires_ms=60_000)
            jobs = mine.take(name, 8)
            mine.finish(*jobs[:3], worker=name)
            mine.finish(*jobs[3:4], worker=name, result_ttl_ms=0)
            mine.fail(*jobs[4:5], worker=name, delay_ms=1)
            mine.fail(*jobs[5:6], worker=name, max_attempts=1)
            mine.release(*jobs[6:7], worker=name)
            mine.cancel(*(job.ulid for job in jobs[7:]))
            mine.finish(*jobs[7:], worker=name)
            mine.trim(50, squeeze=1)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for page in (3, 20, 200):
            assert serious(await look(store, page)) == []
    finally:
        over.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)


async def test_what_heals_before_the_second_look_is_not_reported(
    q: Bench, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ulid()
    q.add(one)
    q.redis.zadd(q.key("scheduled"), {one: 1})
    pauses = []

    async def heal(seconds: float) -> None:
        pauses.append(seconds)
        q.redis.zrem(q.key("scheduled"), one)

    monkeypatch.setattr(asyncio, "sleep", heal)
    assert serious(await examine(store, "q", pause=0.5)) == []
    assert pauses == [0.5]


# --- misplaced jobs ---------------------------------------------------------------------------------

PLANTED: dict[str, tuple[Callable[[Bench, dict[str, str]], object], str]] = {
    "an id in two places": (
        lambda q, i: q.redis.zadd(q.key("scheduled"), {i["queued"]: 1}),
        "stands in scheduled, queued",
    ),
    "an id in no place": (
        lambda q, i: q.redis.zrem(q.key("scheduled"), i["scheduled"]),
        "stands in no place",
    ),
    "an id in the line of another type": (
        lambda q, i: q.redis.zadd(q.key("ready:sms"), {i["queued"]: 1}),
        "stands in ready:sms, but is a queued job of type mail",
    ),
    "an id without a job in a line": (
        lambda q, i: q.redis.zadd(q.key("ready:mail"), {ulid(): 1}),
        "stands in ready:mail, but there is no such job",
    ),
    "an id without a job in a terminal set": (
        lambda q, i: q.redis.delete(q.keys.job(i["done"])),
        "stands in succeeded, but there is no such job",
    ),
    "a running job in no list": (
        lambda q, i: q.redis.lrem(q.key("processing:w1"), 0, i["running"]),
        "state is running, but stands in no place",
    ),
    "a running job twice in its list": (
        lambda q, i: q.redis.rpush(q.key("processing:w1"), i["running"]),
        "stands in running, running",
    ),
    "a running job in the list of another": (
        lambda q, i: q.redis.rpush(q.key("processing:w9"), i["running"]),
        "stands in processing:w9, but is running and one of w1",
    ),
    "a job that is not a hash": (
        lambda q, i: (
            q.redis.delete(q.keys.job(i["queued"])),
            q.redis.set(q.keys.job(i["queued"]), "x"),
        ),
        "is a string, not a hash",
    ),
    "a state that does not exist": (
        lambda q, i: q.redis.hset(q.keys.job(i["queued"]), "state", "odd"),
        "state is odd",
    ),
    "a line that is in no index": (
        lambda q, i: q.redis.srem(q.keys.lines, "mail"),
        "a line that is not in lines",
    ),
    "a run without a fence": (
        lambda q, i: q.redis.hdel(q.keys.job(i["running"]), "fence"),
        "runs without a fence",
    ),
    "a live job with a time to live": (
        lambda q, i: q.redis.expire(q.keys.job(i["queued"]), 1000),
        "live job with a TTL",
    ),
    "a wish to stop that stands in the job alone": (
        lambda q, i: q.redis.srem(q.key("cancelling"), i["stopping"]),
        "asked to stop, but not in cancelling",
    ),
    "a wish to stop that stands in the set alone": (
        lambda q, i: q.redis.sadd(q.key("cancelling"), i["queued"]),
        "in cancelling, but not asked to stop",
    ),
    "a wish to stop for a job that is gone": (
        lambda q, i: q.redis.sadd(q.key("cancelling"), ulid()),
        "stands in cancelling, but there is no such job",
    ),
    "an expiry that is kept nowhere": (
        lambda q, i: q.redis.zrem(q.key("expiring"), i["queued"]),
        "not in expiring",
    ),
    "a live job without its unique key": (
        lambda q, i: q.redis.delete(q.key("unique:k:1")),
        "does not hold its unique key",
    ),
    "a stub that would take a live job with it": (
        lambda q, i: q.redis.zadd(q.key("stubs:succeeded"), {i["queued"]: 1}),
        "would be deleted as a stub",
    ),
    "a stub that is in no set": (
        lambda q, i: q.redis.hset(q.keys.job(ulid()), mapping={"state": "failed", "stub": "1"}),
        "stub that is not in stubs:failed",
    ),
    "a worker that is not in holders": (
        lambda q, i: q.redis.hdel(q.keys.holders, "w1"),
        "not in holders: no janitor finds them",
    ),
    "a container of the wrong type": (
        lambda q, i: (q.redis.delete(q.key("retrying")), q.redis.set(q.key("retrying"), "x")),
        "is a string, not a zset",
    ),
    "a set of jobs that would vanish": (
        lambda q, i: q.redis.expire(q.key("failed"), 1000),
        "will vanish",
    ),
    "a setting that is no number": (
        lambda q, i: q.redis.hset(q.keys.config, "aging_ms", "fast"),
        "aging_ms is 'fast'",
    ),
    "a queue that no janitor knows": (
        lambda q, i: q.redis.srem(Keys().queues, "q"),
        "no janitor looks after it",
    ),
}

DOUBTFUL: dict[str, tuple[Callable[[Bench, dict[str, str]], object], str]] = {
    "a list without a lease": (
        lambda q, i: q.redis.zrem(q.keys.leases, "w1"),
        "without a lease",
    ),
    "a lease that ran out long ago": (
        lambda q, i: q.redis.zadd(q.keys.leases, {"w1": 1}),
        "its lease ran out",
    ),
    "jobs that were due long ago": (
        lambda q, i: q.redis.zadd(q.key("scheduled"), {i["scheduled"]: 1}),
        "1 job has been due for a minute",
    ),
    "a lock of a job that is over": (
        lambda q, i: q.redis.set(q.key("unique:other"), i["done"]),
        "no live job with this key",
    ),
    "a lock of a job that never was": (
        lambda q, i: q.redis.set(q.key("unique:other"), "nobody"),
        "no live job with this key",
    ),
    "history without a job": (
        lambda q, i: q.redis.rpush(q.keys.history(ulid()), "{}"),
        "its job is gone",
    ),
    "log lines without a job": (
        lambda q, i: q.redis.rpush(q.keys.log(i["gone"]), "{}"),
        "its job is gone",
    ),
    "a key that nobody owns": (
        lambda q, i: q.redis.set(q.key("my-notes"), "x"),
        "no part of taskq owns this key",
    ),
    "stubs of a state that does not end": (
        lambda q, i: q.redis.zadd(q.key("stubs:queued"), {"x": 1}),
        "no part of taskq owns this key",
    ),
    "wake tokens that would stay": (
        lambda q, i: q.redis.rpush(q.keys.wake("other"), "1"),
        "has no time to live",
    ),
    "something set aside": (
        lambda q, i: q.redis.hset(q.keys.quarantine, ulid(), '{"reason":"no job"}'),
        "was set aside as broken.*no job",
    ),
    "a key that is no text": (
        lambda q, i: q.redis.set(q.keys.prefix.encode() + b"job:\xff", "x"),
        "is no text",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
async def test_what_is_wrong_is_an_error(q: Bench, store: AsyncStore, what: str) -> None:
    plant, message = PLANTED[what]
    plant(q, one_of_each(q))
    found = await the_one(store, message)
    assert found.queue == "q"
    assert found.advice


@pytest.mark.parametrize("what", DOUBTFUL)
async def test_what_may_be_wrong_is_a_warning(q: Bench, store: AsyncStore, what: str) -> None:
    plant, message = DOUBTFUL[what]
    plant(q, one_of_each(q))
    await the_one(store, message, "warning")
    assert [f for f in await look(store) if f.severity == "error"] == []


FOR_PEOPLE = {
    "a lease that ran out long ago",
    "jobs that were due long ago",
    "a key that nobody owns",
    "stubs of a state that does not end",
    "something set aside",
}
"""What a janitor or a person has to see to."""


async def mend(store: AsyncStore) -> list[Finding]:
    return [finding for finding in await fix(store, "q", pause=0) if finding.fixed]


def drain(q: Bench) -> None:
    """All workers die, an hour passes, and a new one runs what there is."""
    for worker in ("w1", "w2", "w9"):
        q.crash(worker)
    q.now = time.time() * 1000 + 3_700_000
    while jobs := q.take("later", 50):
        q.finish(*jobs, worker="later")


@pytest.mark.parametrize("what", [*PLANTED, *DOUBTFUL])
async def test_it_is_said_beforehand_what_would_be_fixed(
    q: Bench, store: AsyncStore, what: str
) -> None:
    plant, message = {**PLANTED, **DOUBTFUL}[what]
    plant(q, one_of_each(q))
    dump = q.dump(leave_out=())
    found = [f for f in await look(store) if re.search(message, f.message)]
    assert {bool(f.fix) for f in found} == {what not in FOR_PEOPLE}
    assert not any(f.fixed for f in found)
    assert q.dump(leave_out=()) == dump


@pytest.mark.parametrize("what", [what for what in (*PLANTED, *DOUBTFUL) if what not in FOR_PEOPLE])
async def test_what_is_wrong_is_put_right(q: Bench, store: AsyncStore, what: str) -> None:
    plant, message = {**PLANTED, **DOUBTFUL}[what]
    planted = one_of_each(q)
    neighbours = [ulid() for _ in range(5)]
    q.add(*neighbours[:2], job_type="third")
    q.take("w2", 1, "third")
    q.add(*neighbours[2:], delay_ms=3_600_000)
    before = [q.redis.hgetall(q.keys.job(one)) for one in neighbours]
    plant(q, planted)

    mended = await mend(store)

    assert any(re.search(message, finding.message) for finding in mended)
    assert all(finding.fix for finding in mended)
    assert [f for f in serious(await look(store)) if "was set aside" not in f.message] == []
    assert [q.redis.hgetall(q.keys.job(one)) for one in neighbours] == before
    dump = q.dump(leave_out=())
    assert await mend(store) == []
    assert q.dump(leave_out=()) == dump, "a second run writes nothing"

    drain(q)
    while jobs := q.take("later", 50, "third"):
        q.finish(*jobs, worker="later")
    assert q.states(neighbours) == {State.SUCCEEDED}
    kept = {q.state(one) for one in planted.values()} - {None}
    assert kept <= TERMINAL
    await drop_quarantine(store, "q")
    assert [f for f in serious(await look(store)) if "dead as of" not in f.message] == []


async def test_what_was_set_aside_is_kept_until_it_is_dropped(q: Bench, store: AsyncStore) -> None:
    ids = one_of_each(q)
    q.redis.delete(q.key("retrying"))
    q.redis.set(q.key("retrying"), b"\xff by hand")
    q.redis.zadd(q.key("failed"), {b"\xfe\x00": 1})
    q.redis.zadd(q.key("failed"), {"no id": 1})
    await mend(store)
    assert q.redis.get(q.keys.set_aside("retrying")) == b"\xff by hand"
    assert 29 * 86400 < q.redis.ttl(q.keys.set_aside("retrying")) <= 30 * 86400
    assert q.state(ids["retrying"]) is State.RETRYING
    entries = {k: json.loads(v) for k, v in q.redis.hgetall(q.keys.quarantine).items()}
    assert base64.b64decode(entries[b"base64:/gA="]["base64"]) == b"\xfe\x00"
    assert base64.b64decode(entries[b"no id"]["base64"]) == b"no id"
    assert "a string, not a zset" in entries[b"retrying"]["reason"]
    listed = [f.subject for f in await look(store) if "was set aside" in f.message]
    assert sorted(listed) == ["base64:/gA=", "no id", "retrying"]
    assert len(await drop_quarantine(store)) == 4
    assert serious(await look(store)) == []
    assert not list(q.redis.scan_iter(q.key("set-aside:*")))


async def test_good_to_know(q: Bench, store: AsyncStore) -> None:
    q.add(ulid())
    q.redis.sadd(q.keys.lines, "idle")
    alone = await the_one(store, "1 job waits", "info")
    assert "no live worker runs this type" in alone.message
    assert alone.advice.endswith("taskq worker -A MODULE:APP -q q")
    await the_one(store, "names a line that is empty", "info")


async def test_a_flood_of_errors_is_counted_and_not_carried(q: Bench, store: AsyncStore) -> None:
    q.redis.zadd(q.key("failed"), {ulid(): 1 for _ in range(1300)})
    found = await look(store)
    assert len(found) == 1001
    assert "300 more items" in (await the_one(store, "were not looked at again")).message


# --- everything at once -----------------------------------------------------------------------------


async def test_every_queue_is_examined_and_the_server_with_them(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    other = Bench.at(redis_url, "other")
    other.add(ulid())
    q.redis.set("taskq:notes", "x")
    q.redis.set("taskq:{no queue}:job:1", "x")
    q.redis.rpush("taskq:worker:w1", "x")
    q.redis.set("elsewhere", "x")
    found = await examine_all(store, pause=0)
    told = {(f.severity, f.queue, f.subject) for f in found}
    assert ("error", "other", "other") in told
    assert ("warning", "", "taskq:notes") in told
    assert ("warning", "", "taskq:{no queue}:job:1") in told
    assert ("error", "", "taskq:worker:w1") in told
    assert not any("elsewhere" in f.subject for f in found)
    assert not any(f.queue == "q" for f in found)
    assert any("append-only" in f.message for f in found)


async def test_a_broken_registry_does_not_stop_the_doctor(q: Bench, store: AsyncStore) -> None:
    q.add(ulid())
    q.redis.delete(Keys().queues)
    q.redis.set(Keys().queues, "x")
    found = await examine_all(store, pause=0)
    assert ("error", "taskq:queues") in {(f.severity, f.subject) for f in found}


async def test_the_registry_is_rebuilt_from_the_keys(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    for name in ("a", "b", "c.d-e_f"):
        Bench.at(redis_url, name).add(ulid())
    q.redis.set("taskq:{no queue}:job:1", "x")
    q.redis.srem(Keys().queues, "a", "b", "c.d-e_f")
    q.redis.sadd(Keys().queues, "a")
    assert await rebuild_registry(store) == ["b", "c.d-e_f"]
    assert await rebuild_registry(store) == []
    members = {name.decode() for name in q.redis.smembers(Keys().queues)}
    assert members == {"a", "b", "c.d-e_f", "q"}


def test_a_report_of_the_server_becomes_findings() -> None:
    report = ServerReport("redis", "7.0.1", ("bad",), ("doubtful",), ("maxmemory", "role"))
    assert [(f.severity, f.message) for f in server_findings(report)] == [
        ("error", "bad"),
        ("warning", "doubtful"),
        ("info", "unknown, since the server does not tell: maxmemory, role"),
    ]


def test_the_doctor_knows_every_key_of_the_keys_module() -> None:
    text = re.sub(
        r"\nsucceeded, failed,( +)", r"\nsucceeded, failed, cancelled,\1", keys_module.__doc__ or ""
    )
    rows = re.findall(r"^(\S.*?)  +(hash|list|zset|set|string|stream|any)  ", text, re.MULTILINE)
    table = {
        name: of_type
        for names, of_type in rows
        for name in re.findall(r"[a-z0-9-]+:?", re.sub(r"<[^>]*>", "", names))
    }
    assert {name: kind.type for name, kind in KINDS.items()} == table
    assert set(SHARED_KINDS) == {
        "queues", "workers", "worker:", "types", "schema", "keys", "keys:", "rate:", "audit",
    }  # fmt: skip
