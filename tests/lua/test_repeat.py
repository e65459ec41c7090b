"""Sequences that broke earlier drafts of the protocol, and calls that come twice, late or never.

The names (R1, N3 ..) are those under which the sequences were first written down.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.queue import LEASE, MINUTE, SECOND, TYPE, Bench, ids, reconcile
from taskq import calls
from taskq.errors import BrokenKey, InvalidInput
from taskq.model import Reconciled
from taskq.states import State

HOUR = 60 * MINUTE


# --- leases, fences and lost answers --------------------------------------------------------------


def test_r1_a_claim_whose_answer_was_lost_is_answered_again(bench: Bench) -> None:
    """claim 1 -> answer lost -> claim 1 again: the same jobs and fences, and no others."""
    bench.add("a", "b", "c")
    first = bench.claim(most=2, call=1)
    again = bench.claim(most=2, call=1)
    assert (again.jobs, again.repeated) == (first.jobs, True)
    assert bench.line() == ["c"]


def test_r1_what_a_worker_does_not_know_of_goes_back_in_line(bench: Bench) -> None:
    """claim 1 -> answer lost -> claim 2 answered: the jobs of claim 1 would be stranded for ever."""
    bench.add("a", "b", "c")
    bench.claim(most=2, call=1)
    known = bench.claim(call=2).jobs
    assert reconcile(bench, 2, *known).released == 2
    assert bench.line() == ["a", "b"]
    assert bench.state("c") == State.RUNNING
    assert bench.field("a", "crashes") is None
    assert not bench.findings()


def test_r1_a_finish_that_the_server_forgot_is_not_stranded(bench: Bench) -> None:
    """finish acknowledged -> failover without it: the job runs for a worker that has forgotten it."""
    bench.add("a")
    bench.take()
    assert bench.beat("w1", holds=0).length == 1, "the worker sees that the lengths differ"
    assert reconcile(bench, 1).released == 1
    assert bench.line() == ["a"]


def test_r2_a_worker_that_was_reaped_cannot_claim_its_lease_back(bench: Bench) -> None:
    """W stalls, is reaped, wakes, claims, then beats: both are told LOST, and nothing is written."""
    bench.add("a", "b")
    bench.take()
    bench.wait(LEASE + 1)
    bench.reap()
    dump = bench.dump()
    assert bench.claim("w1").status == "LOST"
    assert bench.beat("w1", holds=1).status == "LOST"
    assert bench.dump() == dump


def test_r2_a_beat_between_two_pages_of_a_reap_saves_nothing(bench: Bench) -> None:
    """Page one took some of W's jobs; W beats: LOST, and page two takes the rest."""
    bench.add(*(f"j{i}" for i in range(5)))
    bench.take(most=5)
    bench.wait(LEASE + 1)
    assert bench.reap(limit=2).more
    assert bench.beat("w1", holds=5).status == "LOST"
    while bench.reap(limit=2).more:
        pass
    assert len(bench.line()) == 5
    assert not bench.findings()


def test_r2_a_claim_that_arrives_after_its_sender_died_takes_nothing(bench: Bench) -> None:
    """W sends claim and is killed; the supervisor reaps W; then Redis reads the claim."""
    bench.add("a")
    bench.crash("w1")
    assert bench.claim("w1").status == "LOST"
    assert bench.line() == ["a"]


def test_r3_a_dead_workers_id_is_not_adopted(bench: Bench) -> None:
    """The same id again within minutes (a fixed host name and pid): its list is not inherited."""
    bench.add("a")
    bench.take("host-12")
    bench.crash("host-12")
    bench.wait(3 * SECOND)
    assert bench.claim("host-12").status == "LOST"
    assert ids(bench.take("host-12-another")) == ["a"]


def test_r4_a_fence_is_never_used_again(bench: Bench) -> None:
    """claim, release, claim by the same worker in the same millisecond: the old fence opens nothing."""
    bench.add("a")
    (first,) = bench.take()
    bench.release(first)
    (second,) = bench.take()
    assert int(second.fence) > int(first.fence)
    dump = bench.dump()
    assert bench.release(first) == ["QUEUED"], "a repeat is told what it did, and does no more"
    assert bench.finish(first) == ["STALE"]
    assert bench.fail(first) == ["STALE"]
    assert bench.dump() == dump


def test_r4_a_restore_that_forgot_a_claim_does_not_repeat_its_fence(bench: Bench) -> None:
    """The server lost the claim; time went on, so the next fence is higher than the forgotten one."""
    bench.add("a")
    (forgotten,) = bench.take()
    bench.redis.flushdb()
    bench.wait(1)
    bench.add("a")
    (second,) = bench.take("w1")
    assert int(second.fence) > int(forgotten.fence)
    assert bench.finish(forgotten) == ["STALE"]


def test_r6_a_lease_of_a_clock_that_went_back_is_clamped(bench: Bench) -> None:
    """The promoted replica is ten minutes behind: leases would end ten minutes late."""
    bench.add("a")
    bench.take()
    bench.now -= 10 * MINUTE
    bench.reap()
    bench.wait(LEASE + 2)
    assert bench.reap().jobs == 1


def test_r8_a_list_without_a_lease_gets_one_lease_of_grace(bench: Bench) -> None:
    """`leases` is lost (evicted, deleted, restored): live jobs are not all run again at once."""
    bench.add("a")
    bench.take()
    bench.redis.delete(bench.keys.leases)
    bench.reap()
    bench.wait(LEASE - 1)
    assert bench.reap().jobs == 0
    bench.wait(2)
    assert bench.reap().jobs == 1


def test_r17_nine_neighbours_of_a_broken_job_are_claimed_and_finished(bench: Bench) -> None:
    """One hash of ten replaced by a string (the rest of this is in test_broken)."""
    jobs = [f"j{i}" for i in range(10)]
    bench.add(*jobs)
    bench.redis.set(bench.keys.job("j4"), "x")
    taken = bench.take(most=10)
    assert bench.finish(*taken) == ["OK"] * 9
    assert bench.quarantined() == {"j4"}


def test_r29_whatever_makes_work_claimable_leaves_wake_tokens(bench: Bench) -> None:
    """enqueue, promote, release, reap, retry, resume, an earlier due time: each one wakes."""

    def woken() -> int:
        n = bench.tokens()
        bench.redis.delete(bench.keys.wake(TYPE))
        return n

    bench.add("a", "b")
    assert woken() == 2
    a, b = bench.take(most=2)
    bench.release(a)
    assert woken() == 1, "release"
    bench.fail(b, delay_ms=SECOND)
    assert woken() == 1, "a retry that is due before all others"
    bench.wait(2 * SECOND)
    bench.promote()
    assert woken() == 1, "promote"
    bench.take("w2")
    bench.crash("w2")
    assert woken() == 1, "reap"
    bench.configure(paused=True)
    woken()
    bench.configure(paused=False)
    assert woken() > 0, "resume"
    for job in bench.take("w3", 5):
        bench.fail(job, worker="w3", max_attempts=1)
    bench.retry("a")
    assert woken() == 1, "retry"
    bench.add("later", delay_ms=HOUR)
    assert woken() == 1, "a first due time"
    bench.add("even later", delay_ms=2 * HOUR)
    assert woken() == 0, "not the first: nobody sleeps past it"
    bench.edit("later", run_at_ms=int(bench.now) + SECOND)
    assert woken() == 1, "an earlier due time"


@pytest.mark.parametrize("how", ["fail", "snooze"])
def test_r29_an_earlier_due_time_wakes_who_sleeps_until_a_later_one(bench: Bench, how: str) -> None:
    """Whether a submission, a failure or a nap brings it."""
    waits = {"fail": bench.fail, "snooze": bench.snooze}[how]
    bench.add("a", "b", "c")
    first, second, third = bench.take(most=3)
    for job, delay_ms, tokens in ((first, HOUR, 1), (second, 2 * HOUR, 0), (third, MINUTE, 1)):
        waits(job, delay_ms=delay_ms)
        assert bench.tokens() == tokens, f"in {delay_ms} ms"
        bench.redis.delete(bench.keys.wake(TYPE))
    waits(third, delay_ms=MINUTE)
    assert bench.tokens() == 0, "said twice"


def test_r29_wake_tokens_are_bounded_and_end_with_the_line(bench: Bench) -> None:
    bench.add(*(f"j{i}" for i in range(200)))
    assert bench.tokens() == 64
    assert 0 < bench.redis.ttl(bench.keys.wake(TYPE)) <= 60
    bench.take(most=200)
    assert bench.tokens() == 0


def test_n1_an_idle_workers_lease_runs_out_without_a_mark(bench: Bench) -> None:
    """It ran one job here, then worked for another queue: its next look is welcome."""
    bench.add("a")
    bench.finish(*bench.take())
    bench.wait(LEASE + 1)
    bench.reap()
    assert not bench.redis.exists(bench.keys.dead)
    bench.add("b")
    assert bench.claim("w1").status == "OK"


def test_n2_many_dead_marks_do_not_hide_an_expired_lease(bench: Bench) -> None:
    """A crash loop marks 150 workers dead; the lease that runs out next is still reaped."""
    for n in range(150):
        bench.crash(f"crashed{n}")
    bench.add("a")
    bench.take()
    bench.wait(LEASE + 1)
    assert bench.reap().jobs == 1


def test_n2_a_dead_mark_goes_after_an_hour(bench: Bench) -> None:
    bench.crash("w1")
    bench.wait(HOUR + 1)
    bench.reap()
    assert not bench.redis.exists(bench.keys.dead)


def test_n3_a_lease_that_vanished_over_a_list_is_set_again_by_a_beat(bench: Bench) -> None:
    """`leases` is lost, and a beat comes before the next reap: the runs go on."""
    bench.add("a")
    bench.take()
    bench.redis.delete(bench.keys.leases)
    assert bench.beat("w1", holds=1).status == "OK"
    bench.wait(LEASE - 1)
    assert bench.reap().jobs == 0


def test_n3_a_beat_for_jobs_that_are_not_there_is_told_lost(bench: Bench) -> None:
    assert bench.beat("w1", holds=1).status == "LOST"
    assert bench.beat("w1", holds=0).status == "OK"


def test_n8_an_old_run_finishes_nothing(bench: Bench) -> None:
    """reap put the job back with its fence unchanged; the old run's reports meet a queued job."""
    bench.add("a")
    (old,) = bench.take()
    bench.crash("w1")
    for word in (bench.finish(old), bench.fail(old), bench.release(old), bench.snooze(old)):
        assert word == ["STALE"]
    (new,) = bench.take("w2")
    assert bench.finish(old) == ["STALE"]
    assert bench.finish(new, worker="w2", result=b'"new"') == ["OK"]
    assert bench.field("a", "result") == '"new"'


def test_n9_a_repeat_does_not_answer_jobs_of_an_older_claim(bench: Bench) -> None:
    """Claim 2's jobs were handed back meanwhile; its repeat must not name those of claim 1."""
    bench.add("a", "b")
    bench.claim(call=1)
    (b,) = bench.claim(call=2).jobs
    bench.release(b)
    assert bench.claim(call=2).jobs == ()


def test_n9_a_claim_that_comes_after_a_later_one_is_stale(bench: Bench) -> None:
    bench.add("a", "b", "c")
    bench.claim(call=1)
    bench.claim(call=2)
    assert bench.claim(call=1).status == "STALE"
    assert bench.line() == ["c"]


def test_n9_a_claim_that_took_nothing_is_numbered_too(bench: Bench) -> None:
    """Its late repeat must not take jobs that nobody waits for."""
    bench.add("a")
    bench.claim(call=1)
    assert bench.claim(call=2).jobs == ()
    bench.add("b")
    assert bench.claim(call=2).jobs == ()
    assert bench.line() == ["b"]


def test_n10_reconcile_leaves_what_is_held_and_what_was_just_claimed(bench: Bench) -> None:
    """Held is every job whose exit is not acknowledged; a claim not yet answered is left alone."""
    bench.add("a", "b", "c")
    (a,) = bench.claim(call=1).jobs
    bench.claim(call=2)
    assert reconcile(bench, 1, a) == Reconciled("OK", 0, ())
    assert bench.line() == ["c"]


def test_n10_reconcile_names_runs_that_are_no_longer_the_callers(bench: Bench) -> None:
    """A failover forgot the claim: the worker is told to stop the run."""
    bench.add("a", "b")
    a, b = bench.take(most=2)
    assert reconcile(bench, 1, b).released == 1
    assert reconcile(bench, 1, a, b).not_mine == ("a",)
    bench.take("w2")
    assert reconcile(bench, 1, a, b).not_mine == ("a",)


def test_n12_a_cancel_is_seen_by_every_beat_until_the_run_is_over(bench: Bench) -> None:
    """The nudge may be lost; the wish stands in `cancelling`."""
    bench.add("a")
    (job,) = bench.take()
    assert bench.cancel("a") == ["CANCELLING"]
    bench.redis.delete(bench.keys.control("w1"))
    assert [bench.beat("w1", holds=1).cancel for _ in range(2)] == [("a",), ("a",)]
    assert bench.fail(job) == ["CANCELLED"]
    assert not bench.redis.exists(bench.key("cancelling"))


@pytest.mark.parametrize(
    "way", ["fail", "fail for good", "release", "snooze", "crash", "lease", "lost"]
)
def test_n12_every_exit_but_success_ends_in_cancelled(bench: Bench, way: str) -> None:
    bench.add("a")
    (job,) = bench.take()
    bench.cancel("a")
    match way:
        case "fail":
            bench.fail(job)
        case "fail for good":
            bench.fail(job, max_attempts=1)
        case "release":
            bench.release(job)
        case "snooze":
            bench.snooze(job)
        case "crash":
            bench.reap(targets=[("w1", "crashes", "killed")], max_crashes=1)
        case "lease":
            bench.wait(LEASE + 1)
            bench.reap(max_lost=1)
        case "lost":
            reconcile(bench, 1)
    assert bench.state("a") == State.CANCELLED
    assert bench.field("a", "cancel") is None
    assert not bench.redis.exists(bench.key("cancelling"))
    assert not bench.findings()


def test_n12_success_wins_over_a_cancel(bench: Bench) -> None:
    bench.add("a")
    (job,) = bench.take()
    bench.cancel("a")
    assert bench.finish(job) == ["OK"]
    assert bench.state("a") == State.SUCCEEDED
    assert not bench.redis.exists(bench.key("cancelling"))


def test_n18e_a_late_retry_does_not_touch_a_job_that_failed_again(bench: Bench) -> None:
    """retry names the run it saw fail; sent again after the next failure it is refused."""
    bench.add("a")
    (job,) = bench.take()
    bench.fail(job, max_attempts=1)
    assert bench.retry("a", fence=job.fence) == ["QUEUED"]
    assert bench.retry("a", fence=job.fence) == ["WRONG_STATE"]
    bench.fail(*bench.take(), max_attempts=1)
    assert bench.retry("a", fence=job.fence) == ["STALE"]


def test_a_retry_starts_with_a_clean_count(bench: Bench) -> None:
    bench.add("a")
    bench.take()
    bench.crash("w1")
    bench.fail(*bench.take("w2"), worker="w2", max_attempts=1)
    bench.retry("a")
    (job,) = bench.take("w3")
    assert (job.failures, job.crashes, job.lost, job.attempts) == (0, 0, 0, 3)


def test_n19_watching_an_id_that_is_not_stored_does_not_swallow_it(bench: Bench) -> None:
    """result?wait arrives before the enqueue; even a hash without a state is no job."""
    assert bench.run(calls.watch(bench.keys, ["a"], now=bench.now)) == [None]
    assert not bench.dump()
    bench.redis.hset(bench.keys.job("a"), "watched", "1")
    assert bench.add("a") == ["QUEUED"]
    assert ids(bench.take()) == ["a"]


# --- reports that come twice ------------------------------------------------------------------------


def crash_run(bench: Bench, *jobs: Any) -> list[str]:
    died = [(j.ulid, j.fence, "signal 9") for j in jobs]
    return bench.run(calls.crash(bench.keys, "w1", died, now=bench.now))


REPORTS: dict[str, tuple[Callable[..., list[str]], str]] = {
    "finish": (Bench.finish, "OK"),
    "fail": (Bench.fail, "RETRYING"),
    "release": (Bench.release, "QUEUED"),
    "snooze": (Bench.snooze, "SCHEDULED"),
    "crash": (crash_run, "QUEUED"),
}
each_report = pytest.mark.parametrize("how", REPORTS)
LEAVES = pytest.mark.parametrize("how", [how for how in REPORTS if how != "finish"])


@each_report
@pytest.mark.parametrize("ttl", [None, 0])
def test_a_report_that_comes_again_is_answered_the_same(
    bench: Bench, how: str, ttl: int | None
) -> None:
    """In one call, and in the next."""
    send, word = REPORTS[how]
    bench.add("a", "b", result_ttl_ms=ttl)
    a, b = bench.take(most=2)
    assert send(bench, a, b, a) == [word] * 3
    dump = bench.dump()
    assert send(bench, b, a) == [word] * 2
    assert bench.dump() == dump


@LEAVES
def test_a_report_that_comes_again_after_the_next_claim_is_answered_the_same(
    bench: Bench, how: str
) -> None:
    """What was handed back is often claimed before the repeat of a lost answer arrives."""
    send, word = REPORTS[how]
    bench.add("a")
    (job,) = bench.take()
    send(bench, job)
    bench.wait(2 * MINUTE)
    (again,) = bench.take("w2")
    dump = bench.dump()
    assert send(bench, job) == [word]
    assert bench.dump() == dump
    assert bench.finish(again, worker="w2") == ["OK"]
    assert send(bench, job) == [word]


@LEAVES
def test_a_report_that_comes_again_after_a_cancel_is_answered_the_same(
    bench: Bench, how: str
) -> None:
    send, _ = REPORTS[how]
    bench.add("a")
    (job,) = bench.take()
    bench.cancel("a")
    assert send(bench, job) == ["CANCELLED"]
    assert send(bench, job) == ["CANCELLED"]


@LEAVES
@pytest.mark.parametrize("other", ["fail", "release", "snooze"])
def test_another_report_of_a_run_that_has_left_is_refused(
    bench: Bench, how: str, other: str
) -> None:
    """Only the same one is a repeat: a failure after a hand-back has not been recorded."""
    if other == how:
        return
    bench.add("a")
    (job,) = bench.take()
    REPORTS[how][0](bench, job)
    assert REPORTS[other][0](bench, job) == ["STALE"]


@LEAVES
def test_reconcile_does_not_call_a_run_lost_that_has_reported_its_end(
    bench: Bench, how: str
) -> None:
    """The report's answer is on its way: the run counts as held, and there is nothing to stop."""
    bench.add("a", "b")
    a, b = bench.take(most=2)
    REPORTS[how][0](bench, a)
    bench.finish(b)
    assert reconcile(bench, 1, a, b) == Reconciled("OK", 0, ())


def test_the_end_of_a_run_that_comes_late_is_answered_by_what_was_recorded(bench: Bench) -> None:
    bench.add("a")
    (job,) = bench.take()
    assert bench.fail(job, max_attempts=1) == ["FAILED"]
    assert bench.fail(job, max_attempts=1) == ["FAILED"]
    assert bench.release(job) == ["STALE"]


def test_log_lines_that_come_again_stand_there_once(bench: Bench) -> None:
    bench.add("a", "b")
    a, b = bench.take(most=2)

    def log(*lines: tuple[Any, int]) -> list[str]:
        items = [(j.ulid, j.fence, n, f'"{n}"'.encode()) for j, n in lines]
        return bench.run(calls.log(bench.keys, "w1", items, now=bench.now))

    def stored(ulid: str) -> list[str]:
        return [x.decode() for x in bench.redis.lrange(bench.keys.log(ulid), 0, -1)]

    assert log((a, 1), (b, 2), (a, 3)) == ["OK"] * 3
    assert log((a, 1), (b, 2), (a, 3)) == ["OK"] * 3, "the answer was lost"
    assert log((a, 3), (a, 4), (a, 4)) == ["OK"] * 3, "overlapping, and twice in one call"
    assert (stored("a"), stored("b")) == (['"1"', '"3"', '"4"'], ['"2"'])
    bench.release(a)
    (a,) = bench.take()
    assert log((a, 1)) == ["OK"]
    assert stored("a") == ['"1"', '"3"', '"4"', '"1"'], "the next run counts for itself"


def test_the_last_two_hundred_log_lines_are_kept(bench: Bench) -> None:
    bench.add("a")
    (a,) = bench.take()
    items = [(a.ulid, a.fence, n, b"%d" % n) for n in range(1, 301)]
    assert set(bench.run(calls.log(bench.keys, "w1", items, now=bench.now))) == {"OK"}
    assert bench.redis.lrange(bench.keys.log("a"), 0, -1) == [b"%d" % n for n in range(101, 301)]


@pytest.mark.parametrize("seq", [0, -1, 1.5, True, "1", None])
def test_a_log_line_has_a_number(bench: Bench, seq: Any) -> None:
    with pytest.raises(InvalidInput):
        calls.log(bench.keys, "w1", [("a", "1", seq, b"{}")])


# --- ends of patience -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "events"),
    [("crashes", ["crashed", "lost", "lost", "lost"]), ("lost", ["lost", "lost", "lost"])],
)
def test_a_job_whose_workers_die_ends_failed(bench: Bench, counter: Any, events: list[str]) -> None:
    """Its first crash makes it a suspect: that the worker above it dies from then on is a loss."""
    bench.add("a")
    for n in range(len(events)):
        assert bench.take(f"w{n}")
        bench.reap(targets=[(f"w{n}", counter, "killed")], max_crashes=3, max_lost=3)
    assert bench.state("a") == State.FAILED
    history = bench.redis.lrange(bench.keys.history("a"), 0, -1)
    assert [json.loads(line)["event"] for line in history] == events


def test_a_suspect_is_told_to_whoever_claims_it(bench: Bench) -> None:
    bench.add("a")
    bench.take("w1")
    bench.crash("w1")
    (job,) = bench.take("w2")
    assert (job.crashes, job.suspect) == (1, True)


def test_handing_back_and_snoozing_burn_nothing(bench: Bench) -> None:
    bench.add("a")
    for _ in range(5):
        bench.release(*bench.take())
    bench.snooze(*bench.take(), delay_ms=SECOND)
    bench.wait(SECOND)
    (job,) = bench.take()
    assert (job.attempts, job.failures, job.crashes, job.lost) == (7, 0, 0, 0)


def test_a_broken_set_of_leases_stops_reaping_loudly(bench: Bench) -> None:
    bench.redis.set(bench.keys.leases, "x")
    with pytest.raises(BrokenKey):
        bench.reap()


def test_the_end_of_a_watched_job_is_published_once(bench: Bench) -> None:
    bench.add("a")
    bench.run(calls.watch(bench.keys, ["a"], now=bench.now))
    with bench.redis.pubsub() as channel:
        channel.subscribe(bench.keys.done_channel("a"))
        channel.get_message(timeout=1)
        (job,) = bench.take()
        bench.finish(job)
        bench.finish(job)
        assert channel.get_message(timeout=1)["data"] == b"succeeded"
        assert channel.get_message(timeout=0) is None
