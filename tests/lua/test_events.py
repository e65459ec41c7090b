"""Events, while somebody listens: each job under the state that it is now in, once a call."""

from collections.abc import Callable
from typing import Any

import pytest

from support.queue import MINUTE, TYPE, Bench, runs
from support.sends import JOB, SENDS, Run
from taskq import calls
from taskq.model import JobSpec
from taskq.states import State


@pytest.fixture
def bench(redis_url: str) -> Bench:
    bench = Bench.at(redis_url)
    bench.listen()
    return bench


def told(bench: Bench) -> dict[str, list[str]]:
    """Ids by event since the last look; fails if an event was written twice."""
    entries = bench.redis.xrange(bench.keys.events)
    bench.redis.delete(bench.keys.events)
    out: dict[str, list[str]] = {}
    for _, fields in entries:
        event, jobs = fields[b"event"].decode(), fields[b"jobs"].decode().split()
        assert event not in out, "one entry per event and call"
        assert int(fields[b"count"]) == len(jobs)
        out[event] = jobs
    return out


def about_states(events: dict[str, list[str]]) -> dict[str, set[str]]:
    return {event: set(jobs) for event, jobs in events.items() if event in {*State}}


def five_running(bench: Bench) -> list[Any]:
    """Of five running jobs the last two are asked to stop."""
    bench.add("a", "b", "c", "d", "e")
    jobs = bench.take(most=5)
    bench.cancel("d", "e")
    told(bench)
    return jobs


def test_failures_are_told_by_what_became_of_the_job(bench: Bench) -> None:
    a, b, *rest = five_running(bench)
    failures = [calls.Failure(j.ulid, j.fence, b"{}", MINUTE, 3) for j in (a, *rest)]
    failures.append(calls.Failure(b.ulid, b.fence, b"{}", MINUTE, 1))
    bench.run(calls.fail(bench.keys, "w1", failures, now=bench.now))
    assert about_states(told(bench)) == {
        "retrying": {"a", "c"},
        "failed": {"b"},
        "cancelled": {"d", "e"},
    }


def test_hand_backs_tell_the_cancelled_apart(bench: Bench) -> None:
    bench.release(*five_running(bench))
    assert about_states(told(bench)) == {"queued": {"a", "b", "c"}, "cancelled": {"d", "e"}}


def test_snoozes_tell_the_cancelled_apart(bench: Bench) -> None:
    bench.snooze(*five_running(bench))
    assert about_states(told(bench)) == {"scheduled": {"a", "b", "c"}, "cancelled": {"d", "e"}}


def test_what_is_not_held_is_told_by_where_it_went(bench: Bench) -> None:
    a, *_ = five_running(bench)
    bench.run(calls.reconcile(bench.keys, "w1", 9, runs([a]), now=bench.now))
    assert about_states(told(bench)) == {"queued": {"b", "c"}, "cancelled": {"d", "e"}}


@pytest.mark.parametrize(("most", "state"), [(2, "queued"), (1, "failed")])
def test_recovery_tells_what_became_of_the_jobs(bench: Bench, most: int, state: str) -> None:
    five_running(bench)
    bench.reap(targets=[("w1", "crashes", "killed")], max_crashes=most)
    assert about_states(told(bench)) == {state: {"a", "b", "c"}, "cancelled": {"d", "e"}}


def test_crashed_runs_tell_what_became_of_the_jobs(bench: Bench) -> None:
    died = [(j.ulid, j.fence, "signal 9") for j in five_running(bench)]
    bench.run(calls.crash(bench.keys, "w1", died, max_crashes=2, now=bench.now))
    assert about_states(told(bench)) == {"queued": {"a", "b", "c"}, "cancelled": {"d", "e"}}


def test_a_job_that_is_promoted_and_claimed_in_one_call_runs(bench: Bench) -> None:
    bench.add("a", "b", delay_ms=1)
    bench.wait(5)
    told(bench)
    bench.take(most=1)
    assert about_states(told(bench)) == {"running": {"a"}, "queued": {"b"}}


def test_an_edit_tells_where_the_job_is_now(bench: Bench) -> None:
    bench.add("a")
    told(bench)
    bench.edit("a", run_at_ms=int(bench.now) + MINUTE)
    assert about_states(told(bench)) == {"scheduled": {"a"}}
    bench.edit("a", run_at_ms=int(bench.now))
    assert about_states(told(bench)) == {"queued": {"a"}}


def waiting(bench: Bench) -> Run:
    bench.add(JOB)
    return Run("w1", "0")


def later(bench: Bench) -> Run:
    bench.add(JOB, delay_ms=MINUTE, expires_ms=2 * MINUTE)
    return Run("w1", "0")


def running(bench: Bench) -> Run:
    waiting(bench)
    (job,) = bench.take()
    return Run("w1", job.fence)


def stopping(bench: Bench) -> Run:
    run = running(bench)
    bench.cancel(JOB)
    return run


def failed(bench: Bench) -> Run:
    waiting(bench)
    (job,) = bench.take()
    bench.fail(job, max_attempts=1)
    return Run("w1", job.fence)


@pytest.mark.parametrize("situation", [waiting, later, running, stopping, failed])
@pytest.mark.parametrize("name", [n for n in SENDS if not n.startswith("enqueue")])
def test_every_move_is_told_once_and_under_the_new_state(
    bench: Bench, name: str, situation: Callable[[Bench], Run]
) -> None:
    run = situation(bench)
    bench.wait(12 * MINUTE)
    told(bench)
    before = bench.state(JOB)
    bench.run(SENDS[name](bench, run))
    after = bench.state(JOB)
    events = about_states(told(bench))
    if after is not None:
        assert events == ({after.value: {JOB}} if before != after else {})


# --- listening ------------------------------------------------------------------------------------


def entries(bench: Bench) -> list[dict[str, str]]:
    return [
        {k.decode(): v.decode() for k, v in fields.items()}
        for _, fields in bench.redis.xrange(bench.keys.events)
    ]


def listen(bench: Bench, for_ms: int = MINUTE) -> str:
    return bench.run(calls.listen(bench.keys, for_ms, now=bench.now))


@pytest.fixture
def quiet(redis_url: str) -> Bench:
    """Nobody listens."""
    return Bench.at(redis_url)


def test_nothing_is_told_while_nobody_listens(quiet: Bench) -> None:
    quiet.add("a")
    listen(quiet)
    quiet.wait(MINUTE + 1)
    quiet.add("b")
    assert [e["event"] for e in entries(quiet)] == ["listening"]


def test_a_new_beginning_is_marked_and_a_renewal_is_not(quiet: Bench) -> None:
    first = listen(quiet)
    quiet.wait(MINUTE - 1)
    quiet.add("a")
    assert listen(quiet) > first
    assert [e["event"] for e in entries(quiet)] == ["listening", "queued"]
    quiet.wait(MINUTE + 1)
    last = listen(quiet)
    assert [e["event"] for e in entries(quiet)] == ["listening", "queued", "listening"]
    assert last == quiet.redis.xrevrange(quiet.keys.events, count=1)[0][0].decode()


def test_a_stream_that_was_deleted_is_a_new_beginning(quiet: Bench) -> None:
    listen(quiet)
    quiet.redis.delete(quiet.keys.events)
    listen(quiet)
    assert [e["event"] for e in entries(quiet)] == ["listening"]


def test_listening_wakes_nobody(quiet: Bench) -> None:
    quiet.add("a")
    quiet.redis.delete(quiet.keys.wake(TYPE))
    listen(quiet)
    assert quiet.tokens() == 0


def test_a_stream_that_nobody_reads_goes_by_itself(quiet: Bench) -> None:
    listen(quiet)
    assert 0 < quiet.redis.pttl(quiet.keys.events) <= MINUTE + 600_000


def test_all_jobs_of_a_big_call_are_told_with_their_types(bench: Bench) -> None:
    bench.submit(*(JobSpec(f"j{i}", "odd" if i % 2 else "even") for i in range(250)))
    bench.submit(*(JobSpec(f"k{i}", "mail") for i in range(30)))
    written = [e for e in entries(bench) if e["event"] == "queued"]
    told_of = {}
    for entry in written:
        jobs, types = entry["jobs"].split(), entry["types"].split()
        assert int(entry["count"]) == len(jobs) <= 100
        assert len(types) in (1, len(jobs))
        told_of |= dict(zip(jobs, types * len(jobs) if len(types) == 1 else types, strict=False))
    assert told_of["j0"] == "even"
    assert told_of["j249"] == "odd"
    assert told_of["k29"] == "mail"
    assert len(told_of) == 280
    assert written[-1]["types"] == "mail"


def test_the_stream_is_capped_by_bytes_too(bench: Bench) -> None:
    long = "t" * 128
    for at in range(0, 150_000, 1000):
        ids = [f"{at + i:026d}" for i in range(1000)]
        bench.submit(*(JobSpec(i, f"{long[:-1]}{n % 2}") for n, i in enumerate(ids)))
    assert bench.redis.memory_usage(bench.keys.events, samples=0) < 24 * 1024 * 1024
    assert bench.redis.xlen(bench.keys.events) < 1500
