"""What is kept of jobs and for how long, and that long work is done in pages and written whole."""

import json
from typing import Any

import pytest

from support.queue import LEASE, MINUTE, SECOND, TYPE, Bench, end
from taskq import calls
from taskq.states import State

HOUR = 60 * MINUTE
DAY = 24 * HOUR

ENDS = pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])


# --- retention ------------------------------------------------------------------------------------


@ENDS
def test_retention_by_age(bench: Bench, state: State) -> None:
    bench.configure(**{f"{state.value}_seconds": 3600})
    end(bench, "a", state)
    bench.wait(HOUR)
    bench.trim()
    assert bench.state("a") == state
    bench.wait(1)
    bench.trim()
    assert bench.state("a") is None


@ENDS
def test_retention_by_count_drops_the_oldest(bench: Bench, state: State) -> None:
    for n in range(5):
        end(bench, f"j{n}", state)
        bench.wait(1)
    bench.configure(**{f"{state.value}_max": 2})
    bench.trim()
    assert [n for n in range(5) if bench.state(f"j{n}")] == [3, 4]


@ENDS
def test_retention_by_bytes_counts_what_is_kept(bench: Bench, state: State) -> None:
    """Payloads of failed and cancelled jobs, kept payloads and results of succeeded ones."""
    bench.configure(**{f"{state.value}_bytes": 100_000})
    for n in range(5):
        end(bench, f"j{n}", state, payload=b"x" * 40_000, keep_payload=True)
        bench.wait(1)
    bench.trim()
    assert [n for n in range(5) if bench.state(f"j{n}")] == [3, 4]
    bench.run(calls.delete(bench.keys, ["j3", "j4"], now=bench.now))
    assert int(bench.redis.hget(bench.key("totals"), f"bytes:{state.value}")) == 0


def test_a_big_result_counts_and_a_dropped_payload_does_not(bench: Bench) -> None:
    bench.add("a", payload=b"x" * 50_000)
    bench.finish(*bench.take(), result=b'"' + b"y" * 1998 + b'"')
    assert bench.field("a", "payload") is None
    assert int(bench.redis.hget(bench.key("totals"), "bytes:succeeded")) == 2000


def test_finish_trims_about_as_much_as_it_adds(bench: Bench) -> None:
    """Without any janitor the set stays near its cap."""
    bench.configure(succeeded_max=1000)
    for n in range(30):
        bench.add(*(f"c{n}j{i}" for i in range(50)))
        bench.finish(*bench.take(most=50))
        bench.wait(1)
    assert bench.redis.zcard(bench.key("succeeded")) <= 1000 + 16


def test_a_results_own_time_to_live_ends_it_before_retention(bench: Bench) -> None:
    """A job with a short result_ttl behind one with a long life is not kept by it."""
    bench.add("long")
    bench.finish(*bench.take())
    bench.add("short", result_ttl_ms=MINUTE)
    bench.finish(*bench.take())
    bench.wait(MINUTE)
    assert bench.expire()[1] == 1
    assert (bench.state("long"), bench.state("short")) == (State.SUCCEEDED, None)
    assert bench.add("short", check=True) == ["EXISTS"]


def test_retention_leaves_nothing_of_a_result_that_was_to_live_longer(bench: Bench) -> None:
    bench.add("a", result_ttl_ms=365 * DAY)
    bench.finish(*bench.take())
    bench.wait(DAY + 1)
    bench.trim()
    assert not bench.redis.exists(bench.key("expiring"))


def test_history_and_log_go_with_their_job(bench: Bench) -> None:
    bench.add("a")
    (job,) = bench.take()
    bench.run(calls.log(bench.keys, "w1", [(job.ulid, job.fence, 1, b"{}")], now=bench.now))
    bench.fail(job, max_attempts=1)
    bench.run(calls.delete(bench.keys, ["a"], now=bench.now))
    assert not bench.redis.exists(bench.keys.history("a"), bench.keys.log("a"))


def test_squeeze_drops_in_the_stated_order(bench: Bench) -> None:
    """Memory is short: succeeded, then cancelled, then failed, then stubs."""
    for state in (State.SUCCEEDED, State.CANCELLED, State.FAILED):
        end(bench, state.value, state, digest="d")
    gone = []
    for squeeze in (1, 2, 3):
        bench.trim(squeeze=squeeze)
        gone.append({s for s in ("succeeded", "cancelled", "failed") if bench.state(s) is None})
    assert gone == [{"succeeded"}, {"succeeded", "cancelled"}, {"succeeded", "cancelled", "failed"}]
    bench.wait(1)
    bench.trim(squeeze=4)
    assert not [name for name in bench.dump() if name.startswith(("job:", "stubs:"))]


# --- pages ----------------------------------------------------------------------------------------


def test_eight_thousand_and_one_due_jobs_are_promoted(bench: Bench) -> None:
    """unpack() fails near 8,000 values."""
    jobs = [f"j{i:05d}" for i in range(8001)]
    for at in range(0, 8001, 1000):
        bench.add(*jobs[at : at + 1000], run_at_ms=int(bench.now) + SECOND)
    bench.wait(2 * SECOND)
    assert bench.promote(limit=10_000) == 8001
    assert len(bench.line()) == 8001
    assert not bench.redis.exists(bench.key("scheduled"))


def test_two_thousand_jobs_of_a_dead_worker_are_reaped_in_pages(bench: Bench) -> None:
    jobs = [f"j{i:05d}" for i in range(2000)]
    for at in (0, 1000):
        bench.add(*jobs[at : at + 1000])
        bench.wait(1)
    for _ in range(2):
        bench.take(most=1000)
    bench.wait(LEASE + 1)
    pages = 1
    while bench.reap().more:
        pages += 1
    assert 10 <= pages <= 11
    assert bench.line() == jobs
    assert not bench.redis.exists(
        bench.keys.processing("w1"), bench.keys.leases, bench.keys.holders
    )
    assert not bench.findings()


def test_purge_of_a_type_gets_past_a_page_of_other_types(bench: Bench) -> None:
    bench.add(*(f"other{i}" for i in range(30)), job_type="other", delay_ms=HOUR)
    bench.add(*(f"mine{i}" for i in range(30)), delay_ms=2 * HOUR)
    done, pages, page = 0, 0, 1
    while page:
        n, page = bench.run(
            calls.purge(
                bench.keys, [State.SCHEDULED], job_type=TYPE, limit=10, page=page, now=bench.now
            )
        )
        done, pages = done + n, pages + 1
    assert (done, pages) == (30, 7)
    assert bench.states(f"other{i}" for i in range(30)) == {State.SCHEDULED}


def test_purge_says_why(bench: Bench) -> None:
    bench.add("a")
    bench.run(calls.purge(bench.keys, [State.QUEUED], now=bench.now))
    assert (bench.state("a"), bench.field("a", "reason")) == (State.CANCELLED, "purged")


# --- what is written, is written whole -------------------------------------------------------------


@pytest.mark.parametrize("waiting", [State.QUEUED, State.SCHEDULED, State.RETRYING])
def test_a_run_past_its_expiry_that_comes_back_expires_at_once(
    bench: Bench, waiting: State
) -> None:
    """The clock of expiry was put off while it ran; back in a queue it counts again."""
    bench.add("a", expires_ms=SECOND)
    (job,) = bench.take()
    bench.wait(2 * SECOND)
    assert bench.expire()[0] == 0
    match waiting:
        case State.QUEUED:
            bench.crash("w1")
        case State.SCHEDULED:
            bench.snooze(job)
        case _:
            bench.fail(job)
    assert bench.expire()[0] == 1
    assert bench.state("a") == State.FAILED


def history_of(bench: Bench, ulid: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bench.redis.lrange(bench.keys.history(ulid), 0, -1)]


def test_every_cancellation_stands_in_the_history(bench: Bench) -> None:
    bench.add("snoozed")
    (job,) = bench.take()
    bench.add("purged", "cancelled")
    bench.cancel("cancelled")
    bench.cancel("snoozed")
    bench.snooze(job)
    bench.run(calls.purge(bench.keys, [State.QUEUED], now=bench.now))
    for ulid in ("purged", "cancelled", "snoozed"):
        assert bench.state(ulid) == State.CANCELLED
        last = history_of(bench, ulid)[-1]
        assert last == {"at": int(bench.now), "event": "cancelled"}


def test_an_edit_of_both_is_one_line_of_history(bench: Bench) -> None:
    bench.add("a")
    due = int(bench.now) + HOUR
    assert bench.edit("a", priority=4, run_at_ms=due) == "OK"
    (line,) = history_of(bench, "a")
    assert (line["event"], line["priority"], line["run_at"]) == ("edited", 4, due)
    assert bench.edit("a", priority=4, run_at_ms=due) == "OK"
    assert len(history_of(bench, "a")) == 1, "nothing to do, nothing to tell"


def test_an_edit_of_both_to_now_places_by_the_new_priority(bench: Bench) -> None:
    bench.add("a", delay_ms=HOUR)
    assert bench.edit("a", priority=4, run_at_ms=int(bench.now)) == "OK"
    assert bench.score("a") == bench.now - 4 * 10_000


def test_failures_that_cancel_trim_the_cancelled(bench: Bench) -> None:
    """The set that grew is trimmed, and no other."""
    bench.configure(cancelled_max=3)
    end(bench, "old", State.FAILED)
    bench.redis.hset(bench.keys.config, "failed_max", 0)
    for n in range(6):
        bench.add(f"j{n}")
        (job,) = bench.take()
        bench.cancel(f"j{n}")
        assert bench.fail(job) == ["CANCELLED"]
        bench.wait(1)
    assert bench.redis.zcard(bench.key("cancelled")) == 3
    assert bench.state("old") == State.FAILED
