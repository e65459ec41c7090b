"""The bytes that a client submits are the bytes that a worker is given, whatever befell the job between."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.queue import LEASE, MINUTE, Bench
from taskq import JobHandle, TaskQ, calls, codec
from taskq.model import Claimed

TYPE = "mail"
QUEUE = "default"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "empty": {},
    "numbers": {"a": 2**63, "b": 9007199254740993, "c": 10**400, "d": 1e-7, "e": -0.0, "f": 1.0},
    "containers": {"a": [], "b": {}, "c": [[], {}], "": None},
    "text": {
        "a": "\x00\r\n\t\x7f",
        "b": "\u2028\u2029",
        "c": "é😀",
        "d": "\\\"'",
        "e": "%s%d\\u0000",
    },
    "no object": [1, "2", None, True],
    "deep": nested(200),
    "big": {"a": "x" * 300_000 + "😀"},
}


@pytest.fixture
def app(redis_url: str) -> Iterator[TaskQ]:
    app = TaskQ(redis_url)
    yield app
    app.close_sync()


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """A worker's side, whose clock starts a moment after the submission."""
    bench = Bench.at(redis_url, QUEUE)
    bench.now = time.time() * 1000 + 1000
    yield bench
    bench.store.close()


Path = Callable[[Bench, JobHandle[Any]], Claimed]


def take(bench: Bench, worker: str = "w1") -> Claimed:
    (job,) = bench.take(worker)
    return job


def immediate(bench: Bench, job: JobHandle[Any]) -> Claimed:
    return take(bench)


def delayed(bench: Bench, job: JobHandle[Any]) -> Claimed:
    assert bench.take() == []
    bench.wait(MINUTE)
    return take(bench)


def promoted(bench: Bench, job: JobHandle[Any]) -> Claimed:
    bench.wait(MINUTE)
    assert bench.promote() == 1
    return take(bench)


def retried(bench: Bench, job: JobHandle[Any]) -> Claimed:
    for _ in range(2):
        assert bench.fail(take(bench)) == ["RETRYING"]
        bench.wait(MINUTE)
    return take(bench)


def crashed(bench: Bench, job: JobHandle[Any]) -> Claimed:
    take(bench)
    assert bench.crash().jobs == 1
    return take(bench, "w2")


def lost(bench: Bench, job: JobHandle[Any]) -> Claimed:
    take(bench)
    bench.wait(LEASE + 1)
    assert bench.reap().jobs == 1
    return take(bench, "w2")


def handed_back(bench: Bench, job: JobHandle[Any]) -> Claimed:
    assert bench.release(take(bench)) == ["QUEUED"]
    return take(bench, "w2")


def reconciled(bench: Bench, job: JobHandle[Any]) -> Claimed:
    take(bench)
    said = bench.run(calls.reconcile(bench.keys, "w1", 2, [], now=bench.now))
    assert said.released == 1
    return take(bench)


def snoozed(bench: Bench, job: JobHandle[Any]) -> Claimed:
    assert bench.snooze(take(bench)) == ["SCHEDULED"]
    bench.wait(MINUTE)
    return take(bench)


def dead_letter(bench: Bench, job: JobHandle[Any]) -> Claimed:
    failed = take(bench)
    assert bench.fail(failed, max_attempts=1) == ["FAILED"]
    assert bench.retry(failed.ulid) == ["QUEUED"]
    return take(bench)


def claimed_again(bench: Bench, job: JobHandle[Any]) -> Claimed:
    first = take(bench)
    (again,) = bench.claim("w1", call=1).jobs
    assert again == first
    return again


def edited(bench: Bench, job: JobHandle[Any]) -> Claimed:
    ulid = job.id.partition(":")[2]
    assert bench.edit(ulid, run_at_ms=int(bench.now) + MINUTE) == "OK"
    assert bench.edit(ulid, priority=7, run_at_ms=int(bench.now)) == "OK"
    return take(bench)


PATHS: list[Path] = [
    immediate,
    retried,
    crashed,
    lost,
    handed_back,
    reconciled,
    snoozed,
    dead_letter,
    claimed_again,
    edited,
]


def check(app: TaskQ, job: JobHandle[Any], claimed: Claimed, value: Any) -> None:
    expected = codec.dumps(value)
    assert claimed.payload == expected
    assert repr(codec.loads(claimed.payload)) == repr(value)
    assert job.info_sync().payload == expected


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_every_path(app: TaskQ, bench: Bench, path: Path, name: str) -> None:
    """F55: exact integers, [] and {}, signs of zeros, every character, on every path."""
    job = app.submit_sync(TYPE, VALUES[name])
    check(app, job, path(bench, job), VALUES[name])


@pytest.mark.parametrize("path", [delayed, promoted], ids=lambda path: path.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_every_path_of_a_delayed_job(app: TaskQ, bench: Bench, path: Path, name: str) -> None:
    """F55: and over the delay."""
    job = app.submit_sync(TYPE, VALUES[name], delay=30)
    check(app, job, path(bench, job), VALUES[name])


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"deep"}))
async def test_every_way_to_submit(redis_url: str, bench: Bench, name: str) -> None:
    app, value = TaskQ(redis_url), VALUES[name]

    @app.task(name=TYPE)
    async def mail(value: Any) -> None: ...

    made = [
        await mail.enqueue(value),
        mail.enqueue_sync(value),
        *await app.enqueue_many([mail.spec(value)]),
        *app.enqueue_many_sync([mail.options(priority=1).spec(value=value)]),
        await mail.options(idempotency_key="k").enqueue(value),
        await mail.options(unique_key="k", expires=3600).enqueue(value),
        await app.submit(TYPE, {"value": value}),
    ]
    jobs = bench.take("w1", len(made))
    if len(jobs) < len(made):  # a claim is bounded in bytes
        jobs += bench.take("w1", len(made))
    await app.close()
    assert {job.payload for job in jobs} == {codec.dumps({"value": value})}
    assert {job.ulid for job in jobs} <= {handle.id.partition(":")[2] for handle in made}
    assert len(jobs) >= 3


@pytest.mark.parametrize("name", VALUES)
def test_results_come_back_as_they_were(app: TaskQ, bench: Bench, name: str) -> None:
    job = app.submit_sync(TYPE)
    bench.finish(take(bench), result=codec.dumps(VALUES[name]))
    assert repr(job.result_sync(timeout=5)) == repr(VALUES[name])
