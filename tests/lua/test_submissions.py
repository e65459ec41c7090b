"""What a submission meets: an earlier one with its key, a unique key, a queue's limits, its own expiry."""

import pytest

from support.queue import MINUTE, SECOND, TYPE, Bench, end, ids
from taskq import calls
from taskq.model import JobSpec
from taskq.states import State

HOUR = 60 * MINUTE
DEDUP = 600 * SECOND

ENDS = pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])


# --- one submission, one job ----------------------------------------------------------------------


def test_a_repeated_submission_answers_the_stored_job(bench: Bench) -> None:
    bench.add("a")
    (again,) = bench.submit(JobSpec("a", TYPE))
    assert (again.outcome, again.state) == ("EXISTS", State.QUEUED)
    assert bench.line() == ["a"]
    assert bench.counted()["enqueued"] == 1


def test_the_same_key_with_another_body_is_refused(bench: Bench) -> None:
    bench.add("a", digest="body 1", check=True)
    assert bench.add("a", digest="body 1", check=True) == ["EXISTS"]
    assert bench.add("a", digest="body 2", check=True) == ["CONFLICT"]


@pytest.mark.parametrize("digest", [None, "body"])
def test_r9_a_job_that_left_at_once_is_recognised_for_dedup_seconds(
    bench: Bench, digest: str | None
) -> None:
    """result_ttl 0: enqueue, answer lost, run and dropped; the repeat does not run it again."""
    bench.add("a", result_ttl_ms=0, digest=digest)
    (job,) = bench.take()
    bench.finish(job)
    assert bench.state("a") is None
    assert bench.finish(job) == ["OK"], "the repeated report too"
    assert bench.add("a", digest=digest, check=True) == ["EXISTS"]
    bench.wait(DEDUP + 1)
    bench.trim()
    assert bench.add("a", digest=digest, check=True) == ["QUEUED"]


@ENDS
@pytest.mark.parametrize("digest", [None, "body"])
def test_r9_a_job_that_retention_took_is_recognised_too(
    bench: Bench, state: State, digest: str | None
) -> None:
    end(bench, "a", state, digest=digest)
    bench.configure(**{f"{state.value}_max": 0})
    bench.trim()
    assert bench.state("a") is None
    (again,) = bench.submit(JobSpec("a", TYPE, digest=digest, check=True))
    assert (again.outcome, again.state) == ("EXISTS", state)
    if digest:
        assert bench.add("a", digest="another", check=True) == ["CONFLICT"]


@ENDS
def test_r9_a_deleted_job_is_recognised_too(bench: Bench, state: State) -> None:
    end(bench, "a", state)
    bench.run(calls.delete(bench.keys, ["a"], now=bench.now))
    assert bench.add("a", check=True) == ["EXISTS"]


def test_a_stub_of_a_first_life_does_not_take_the_second_with_it(bench: Bench) -> None:
    """An id stored again without a look at stubs stays when its stub goes."""
    end(bench, "other", State.CANCELLED, digest="d")
    end(bench, "a", State.SUCCEEDED)
    bench.configure(succeeded_max=0, cancelled_max=0)
    bench.trim()
    bench.add("a")
    bench.wait(DEDUP + 1)
    bench.trim()
    assert bench.state("a") == State.QUEUED
    assert set(bench.dump()) == {
        "job:a",
        "ready:mail",
        "lines",
        "wake:mail",
        "config",
        "totals",
    } | {n for n in bench.dump() if n.startswith(("holders", "leases"))}


def test_dedup_max_ends_the_window_early(bench: Bench) -> None:
    bench.redis.hset(bench.keys.config, "dedup_max", 1)
    bench.add("a", "b", result_ttl_ms=0, digest="d")
    bench.finish(*bench.take(most=2))
    assert not bench.redis.exists(bench.keys.job("a"))
    assert bench.redis.exists(bench.keys.job("b"))


# --- unique keys ----------------------------------------------------------------------------------


@ENDS
def test_every_end_frees_the_unique_key(bench: Bench, state: State) -> None:
    end(bench, "a", state, unique="k")
    assert bench.add("b", unique="k") == ["QUEUED"]


@pytest.mark.parametrize("way", ["expired", "expired at claim", "purged", "crashed", "cancelled"])
def test_every_other_end_frees_the_unique_key_too(bench: Bench, way: str) -> None:
    bench.add("a", unique="k", expires_ms=SECOND if "expired" in way else None)
    match way:
        case "expired":
            bench.wait(2 * SECOND)
            bench.expire()
        case "expired at claim":
            bench.wait(2 * SECOND)
            bench.take()
        case "purged":
            bench.run(calls.purge(bench.keys, [State.QUEUED], now=bench.now))
        case "crashed":
            bench.take()
            bench.reap(targets=[("w1", "crashes", "killed")], max_crashes=1)
        case _:
            (job,) = bench.take()
            bench.cancel("a")
            bench.release(job)
    assert bench.add("b", unique="k") == ["QUEUED"]


def test_a_live_holder_refuses_a_second_and_is_named(bench: Bench) -> None:
    bench.add("a", unique="k")
    for state in ("queued", "running", "retrying"):
        (refused,) = bench.submit(JobSpec("b", TYPE, unique="k"))
        assert (refused.outcome, refused.holder) == ("UNIQUE", "a"), state
        if state == "queued":
            (job,) = bench.take()
        elif state == "running":
            bench.fail(job)
    assert bench.state("b") is None


def test_two_of_one_key_in_one_call_are_one_job(bench: Bench) -> None:
    assert bench.add("a", "b", unique="k") == ["QUEUED", "UNIQUE"]


@pytest.mark.parametrize("holder", ["nobody", "ended", "broken"])
def test_a_stale_lock_is_taken_over(bench: Bench, holder: str) -> None:
    """A restore can leave a lock that points at nothing."""
    if holder == "ended":
        end(bench, holder, State.SUCCEEDED)
    if holder == "broken":
        bench.redis.set(bench.keys.job(holder), "x")
    bench.redis.set(bench.key("unique:k"), holder)
    assert bench.add("a", unique="k") == ["QUEUED"]
    end_of_a = bench.take()
    bench.finish(*end_of_a)
    assert not bench.redis.exists(bench.key("unique:k"))


def test_r12_a_retry_cannot_take_a_key_that_a_live_job_holds(bench: Bench) -> None:
    """J1 failed, J2 took its key: retry of J1 is refused, and J1 does not free J2's lock."""
    end(bench, "j1", State.FAILED, unique="k")
    bench.add("j2", unique="k")
    assert bench.retry("j1") == ["UNIQUE"]
    bench.cancel("j2")
    assert bench.retry("j1") == ["QUEUED"]
    assert bench.add("j3", unique="k") == ["UNIQUE"]


def test_r12_only_the_holder_frees_a_lock(bench: Bench) -> None:
    bench.add("a", unique="k")
    (job,) = bench.take()
    bench.redis.set(bench.key("unique:k"), "somebody else")
    bench.finish(job)
    assert bench.redis.get(bench.key("unique:k")) == b"somebody else"


# --- limits of a queue ----------------------------------------------------------------------------


def test_max_depth_refuses_what_is_too_much(bench: Bench) -> None:
    """Waiting of every kind counts; running and ended jobs do not."""
    bench.configure(max_depth=3)
    bench.add("late", delay_ms=HOUR)
    assert bench.add("a", "b", "c") == ["QUEUED", "QUEUED", "FULL"]
    assert bench.add("a") == ["EXISTS"], "a repeat is answered all the same"
    bench.take(most=1)
    assert bench.add("c") == ["QUEUED"]


def test_a_thousand_types_are_enough(bench: Bench) -> None:
    """Also within one call; types that have a line already are welcome."""
    bench.submit(*(JobSpec(f"j{i}", f"t{i}") for i in range(999)))
    more = [JobSpec("x", "x"), JobSpec("y", "y"), JobSpec("x2", "x"), JobSpec("z", "t5")]
    words = [e.outcome for e in bench.submit(*more)]
    assert words == ["QUEUED", "TOO_MANY_TYPES", "QUEUED", "QUEUED"]
    assert bench.add("again", job_type="y") == ["TOO_MANY_TYPES"]


def test_a_paused_queue_hands_out_nothing(bench: Bench) -> None:
    bench.configure(paused=True)
    assert bench.add("a") == ["QUEUED"]
    reply = bench.claim()
    assert (reply.jobs, reply.next_score) == ((), None)
    bench.configure(paused=False)
    assert ids(bench.take()) == ["a"]


def test_a_paused_type_waits_and_the_others_run(bench: Bench) -> None:
    bench.configure(paused_types=["mail"])
    bench.add("a", job_type="mail")
    bench.add("b", job_type="mailer")
    assert ids(bench.take("w1", 5, "mail", "mailer")) == ["b"]
    bench.configure(paused_types=[])
    assert ids(bench.take("w1", 5, "mail", "mailer")) == ["a"]


def test_an_older_worker_is_refused_by_a_queue_that_needs_a_newer_one(bench: Bench) -> None:
    bench.redis.hset(bench.keys.config, "min_protocol", calls.PROTOCOL + 1)
    bench.add("a")
    assert bench.claim().status == "TOO_OLD"
    assert bench.line() == ["a"]


# --- expiry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [State.QUEUED, State.SCHEDULED, State.RETRYING])
def test_a_waiting_job_ends_failed_when_it_expires(bench: Bench, waiting: State) -> None:
    bench.add("a", expires_ms=MINUTE, delay_ms=HOUR if waiting == State.SCHEDULED else None)
    if waiting == State.RETRYING:
        bench.fail(*bench.take(), delay_ms=HOUR)
    assert bench.state("a") == waiting
    bench.wait(MINUTE)
    assert bench.expire()[0] == 1
    assert (bench.state("a"), bench.field("a", "reason")) == (State.FAILED, "expired")


def test_an_expired_job_is_not_run(bench: Bench) -> None:
    bench.add("a", expires_ms=SECOND)
    bench.add("b")
    bench.wait(SECOND)
    assert ids(bench.take(most=2)) == ["b"]
    assert bench.state("a") == State.FAILED


def test_a_running_job_does_not_expire(bench: Bench) -> None:
    bench.add("a", expires_ms=SECOND)
    (job,) = bench.take()
    bench.wait(HOUR)
    bench.expire()
    assert bench.finish(job) == ["OK"]


def test_what_has_expired_before_it_came_is_refused(bench: Bench) -> None:
    assert bench.add("a", expires_at_ms=int(bench.now)) == ["EXPIRED"]
    assert not bench.dump()
