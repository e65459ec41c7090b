"""Failures by kind: what is kept, what it costs, and where it ends."""

import json

import pytest

from support.queue import MINUTE, TYPE, Bench
from taskq import calls
from taskq.calls import Failure
from taskq.fingerprint import MAX_SIGNATURE, signature
from taskq.model import ErrorGroup

DAY = 24 * 60 * MINUTE


def groups(bench: Bench) -> list[ErrorGroup]:
    return bench.run(calls.errors(bench.keys, now=bench.now))


def fail(bench: Bench, ulid: str, kind: str, *, attempts: int = 1) -> None:
    bench.add(ulid)
    worker = f"w-{ulid}"
    (job,) = bench.take(worker)
    text = json.dumps({"type": kind, "message": "x"}).encode()
    failure = Failure(job.ulid, job.fence, text, MINUTE, attempts)
    bench.run(calls.fail(bench.keys, worker, [failure], now=bench.now))


def test_a_late_repeat_of_a_report_counts_once(bench: Bench) -> None:
    bench.add("a")
    (job,) = bench.take()
    for _ in range(3):
        bench.fail(job)
    assert [group.count for group in groups(bench)] == [1]


def test_a_retry_counts_its_failures_and_its_end(bench: Bench) -> None:
    bench.add("a")
    for n in range(3):
        (job,) = bench.take(f"w{n}")
        bench.fail(job, worker=f"w{n}", delay_ms=1)
        bench.wait(MINUTE)
        bench.promote()
    (group,) = groups(bench)
    assert (group.count, group.failed) == (3, 1)


def test_at_most_two_hundred_kinds_are_kept_and_the_least_recent_go(bench: Bench) -> None:
    for n in range(205):
        fail(bench, f"j{n:03}", f"Error{chr(65 + n // 26)}{chr(65 + n % 26)}")
        bench.wait(1)
    kept = groups(bench)
    assert len(kept) == 200
    assert kept[0].signature == "ErrorHW: x"
    assert len(list(bench.redis.scan_iter(bench.key("error:*"), count=1000))) == 200
    assert bench.redis.zcard(bench.key("errors")) == 200


def test_a_kind_that_is_not_seen_any_more_goes(bench: Bench) -> None:
    fail(bench, "a", "Old")
    bench.wait(31 * DAY)
    fail(bench, "b", "New")
    assert [group.signature for group in groups(bench)] == ["New: x"]
    assert not bench.redis.exists(bench.key("error:" + "0" * 16))


def test_a_job_that_succeeds_costs_nothing_of_it(bench: Bench) -> None:
    bench.add("a")
    bench.finish(*bench.take())
    assert not [name for name in bench.dump(leave_out=()) if name.startswith("error")]


@pytest.mark.parametrize("broken", ["errors", "error"])
def test_a_broken_group_never_keeps_a_report_from_counting(bench: Bench, broken: str) -> None:
    fail(bench, "a", "E")
    (group,) = groups(bench)
    name = "errors" if broken == "errors" else f"error:{group.fingerprint}"
    bench.redis.delete(bench.key(name))
    bench.redis.set(bench.key(name), "x")
    fail(bench, "b", "E")
    assert bench.field("b", "state") == "failed"


def test_a_failing_batch_costs_a_bounded_number_of_commands(bench: Bench) -> None:
    """250 failures of one kind: one group, told once."""
    ids = [f"j{n:03}" for n in range(250)]
    bench.add(*ids)
    jobs = bench.take(most=250)
    bench.redis.config_resetstat()
    bench.fail(*jobs)
    stats = bench.redis.info("commandstats")
    assert stats["cmdstat_hincrby"]["calls"] < 10
    assert groups(bench)[0].count == 250


def test_what_expired_and_what_was_lost_has_a_kind(bench: Bench) -> None:
    bench.add("a", expires_ms=MINUTE)
    bench.wait(2 * MINUTE)
    bench.expire()
    bench.add("b")
    bench.take("w2", 1, TYPE)
    bench.reap(targets=[("w2", "crashes", "signal 9")], max_crashes=1)
    assert {group.signature for group in groups(bench)} == {"Expired", "WorkerCrashed: signal 9"}
    bench.add("c", expires_ms=MINUTE)
    bench.wait(2 * MINUTE)
    bench.claim("w3")
    assert bench.field("a", "fingerprint") == bench.field("c", "fingerprint")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no user 17", "no user 4711"),
        ("cannot open '/srv/a'", "cannot open '/var/b'"),
        ("job 01K2J7Q0V4T8Z3M6N9R1S5X7YB", "job 01K2J7Q0V4T8Z3M6N9R1S5X7YC"),
        ("at 0x7fe22c92a4d0", "at 0x7fe227e12fc0"),
        ("GET https://a.example/x?y=1 failed", "GET http://b.example failed"),
        ("id 8f14e45f-ceea-467f-a0f4-0b1d8a3c9e11", "id 1f14e45f-ceea-467f-a0f4-0b1d8a3c9e12"),
    ],
)
def test_what_varies_from_run_to_run_is_left_out(one: str, other: str) -> None:
    def of(message: str) -> str:
        return signature(json.dumps({"type": "E", "message": message}).encode())[0]

    assert of(one) == of(other)
    assert of(one) != of("something else")


@pytest.mark.parametrize(
    "error", [b"", b"\xff", b"[1]", b'"x"', b"{}", b'{"type": 1, "message": []}', b"[" * 100_000,
              b'{"type":"\\ud800"}'],
)  # fmt: skip
def test_any_error_has_a_signature(error: bytes) -> None:
    text, brief = signature(error)
    assert 0 < len(text) <= MAX_SIGNATURE
    assert text.encode()
    assert len(brief) <= 1000


def test_a_frame_is_the_innermost_and_has_no_line() -> None:
    trace = 'File\n  File "/a/b.py", line 1, in outer\n  File "C:\\\\x\\\\c.py", line 9, in inner\n'
    error = json.dumps({"type": "E", "message": "m", "traceback": trace}).encode()
    assert signature(error)[0] == "E: m at c.py:inner"
    assert b"traceback" not in signature(error)[1]
