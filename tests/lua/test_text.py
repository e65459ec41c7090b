"""Nothing that a script pastes into JSON can break out of it, and what is read back is always an object."""

import json
from typing import Any

import pytest

from support.queue import LEASE, MINUTE, Bench, runs
from taskq import calls
from taskq.errors import InvalidInput
from taskq.states import State

BAD_WORKERS = ["", 'w"1', "w\\1", "w 1", "w\n", "ä", "w" * 201, 7, None]
BAD_WORDS = ["", 'killed "hard"', "back\\slash", "two\nlines", "ä", "x" * 201, 7, None]


@pytest.mark.parametrize("worker", BAD_WORKERS)
def test_no_call_sends_a_worker_id_that_is_none(bench: Bench, worker: Any) -> None:
    keys, run = bench.keys, ("a", "1")
    makers = [
        lambda: calls.claim(keys, worker, 1, 1, ["mail"], lease_ms=LEASE),
        lambda: calls.finish(keys, worker, []),
        lambda: calls.fail(keys, worker, []),
        lambda: calls.crash(keys, worker, [(*run, "died")]),
        lambda: calls.release(keys, worker, [run], "stop"),
        lambda: calls.snooze(keys, worker, [(*run, 1)]),
        lambda: calls.heartbeat(keys, [("w1", LEASE, 0), (worker, LEASE, 0)]),
        lambda: calls.reconcile(keys, worker, 1, [run]),
        lambda: calls.progress(keys, worker, [(*run, b"1")]),
        lambda: calls.log(keys, worker, [(*run, 1, b"{}")]),
        lambda: calls.reap(keys, lease_ms=LEASE, targets=[(worker, "lost", "gone")]),
    ]
    for make in makers:
        with pytest.raises(InvalidInput) as caught:
            make()
        assert caught.value.field == "worker"


@pytest.mark.parametrize("reason", BAD_WORDS)
def test_no_call_sends_a_reason_that_is_more_than_words(bench: Bench, reason: Any) -> None:
    makers = [
        lambda: calls.release(bench.keys, "w1", [("a", "1")], reason),
        lambda: calls.crash(bench.keys, "w1", [("a", "1", "died"), ("a", "1", reason)]),
        lambda: calls.reap(bench.keys, lease_ms=LEASE, targets=[("w1", "lost", reason)]),
    ]
    for make in makers:
        with pytest.raises(InvalidInput) as caught:
            make()
        assert caught.value.field == "reason"


def test_a_reap_counts_only_what_there_are_counters_for(bench: Bench) -> None:
    with pytest.raises(InvalidInput):
        calls.reap(bench.keys, lease_ms=LEASE, targets=[("w1", "blamed", "x")])  # type: ignore[list-item]


def test_words_with_spaces_and_signs_are_welcome(bench: Bench) -> None:
    assert calls.check_word("used more than 512 MiB (90% of 1.5 GiB); it's gone", "reason")
    assert calls.check_worker("host-1.local:42-01ABC_x") == "host-1.local:42-01ABC_x"


def lines_of(bench: Bench, ulid: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bench.redis.lrange(bench.keys.history(ulid), 0, -1)]


@pytest.mark.parametrize("kept", ["blamed killed", 'lost sig"nal\\ \n9', "nonsense", ""])
def test_what_a_reap_left_for_its_next_page_is_not_trusted(bench: Bench, kept: str) -> None:
    """The counter and reason of a reap that a page cut short stand in a hash that people can write."""
    bench.add("a", "b", "c")
    bench.take(most=3)
    bench.reap(targets=[("w1", "crashes", "killed")], limit=1)
    bench.redis.hset(bench.keys.ticks, "reason:w1", kept)
    bench.reap(max_lost=1)
    assert bench.states(["b", "c"]) <= {State.FAILED, State.QUEUED}
    for ulid in "abc":
        assert lines_of(bench, ulid)
        (job,) = bench.run(calls.show(bench.keys, [ulid], now=bench.now))
        assert job is not None
        json.loads(bench.field(ulid, "error") or "{}")
        assert job.crashes + job.lost == 1
    assert not bench.findings()


def test_a_worker_id_that_was_written_by_hand_does_not_spoil_the_history(bench: Bench) -> None:
    bench.add("a")
    bench.take()
    odd = 'w"\\\n1'
    bench.redis.rename(bench.keys.processing("w1"), bench.keys.processing(odd))
    bench.redis.hset(bench.keys.job("a"), "worker", odd)
    bench.redis.zadd(bench.keys.leases, {odd: 1})
    bench.reap()
    assert [line["event"] for line in lines_of(bench, "a")] == ["lost"]


def test_a_line_of_a_type_that_was_written_by_hand_is_quarantined_as_json(bench: Bench) -> None:
    bench.redis.sadd(bench.keys.lines, 'odd"\\')
    bench.redis.zadd(bench.keys.ready('odd"\\'), {"x": 1})
    bench.run(calls.purge(bench.keys, [State.QUEUED], now=bench.now))
    (entry,) = bench.redis.hvals(bench.keys.quarantine)
    assert json.loads(entry)["reason"] == "no job"


@pytest.mark.parametrize("stored", [b"[1, 2]", b'"text"', b"7", b"null", b"not json", b"\xff"])
def test_what_is_shown_of_a_job_is_an_object(bench: Bench, stored: bytes) -> None:
    bench.add("a")
    bench.redis.hset(bench.keys.job("a"), mapping={"error": stored, "progress": stored})
    bench.redis.rpush(bench.keys.history("a"), stored)
    bench.redis.rpush(bench.keys.log("a"), stored)
    (job,) = bench.run(calls.show(bench.keys, ["a"], now=bench.now))
    assert job is not None
    for value in (job.error, job.progress, *job.history):
        assert isinstance(value, dict)
        assert isinstance(value["message"], str)
    assert isinstance(job.log[0]["line"], str)
    if stored == b'"text"':
        assert job.error == {"message": "text"}


def test_objects_are_shown_as_they_are(bench: Bench) -> None:
    bench.add("a")
    (job,) = bench.take()
    bench.run(
        calls.progress(bench.keys, "w1", [(*runs([job])[0], b'{"value":0.5}')], now=bench.now)
    )
    (shown,) = bench.run(calls.show(bench.keys, ["a"], now=bench.now + MINUTE))
    assert shown is not None
    assert shown.progress == {"value": 0.5}
