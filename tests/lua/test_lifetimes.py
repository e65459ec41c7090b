"""F09: nothing that a job needs runs out before the job does, however long it waits or is tried again."""

from support.queue import LEASE, MINUTE, Bench
from taskq import calls
from taskq.states import State

HOUR = 60 * MINUTE
DAY = 24 * HOUR
BRIEF = ("wake:", "stats:", "stats10:", "control:", "error:")
"""Keys that may have a time to live: hints and figures, none of which a job needs."""


def nothing_runs_out(bench: Bench, ulid: str) -> None:
    """No key with a time to live is the job's, or holds its id."""
    named = 0
    for name, value in bench.dump(leave_out=()).items():
        # A kind of failure names one of its jobs, as an example.
        mine = ulid in name or (ulid in repr(value) and not name.startswith("error:"))
        named += mine
        lasts = bench.redis.pttl(bench.key(name)) == -1
        assert lasts or name.startswith(BRIEF), name
        assert lasts or not mine, name
    assert named >= 2, "its hash, and the set or list that it is in"


def a_night(bench: Bench) -> None:
    """What janitors do to a queue, many times an hour."""
    bench.reap()
    bench.promote()
    bench.expire()
    bench.trim()
    while bench.run(calls.rollup(bench.keys, now=bench.now)):
        pass


def test_f09_a_delay_of_a_month(bench: Bench) -> None:
    """F09: a delayed job with all that may hang on it: unique key, digest, expiry after that."""
    bench.add("job-of-years", delay_ms=30 * DAY, unique="k", digest="d", expires_ms=60 * DAY)
    for _ in range(10):
        nothing_runs_out(bench, "job-of-years")
        a_night(bench)
        bench.wait(3 * DAY - 1)
    assert bench.state("job-of-years") == State.SCHEDULED
    bench.wait(10)
    a_night(bench)
    assert bench.take()[0].ulid == "job-of-years"
    nothing_runs_out(bench, "job-of-years")


def test_f09_a_chain_of_retries(bench: Bench) -> None:
    """F09: sixty failures with an hour between them; its history goes with it, and nothing before."""
    bench.add("job-of-years", unique="k", max_attempts=1000)
    for n in range(60):
        (job,) = bench.take()
        nothing_runs_out(bench, "job-of-years")
        assert bench.fail(job, delay_ms=HOUR, max_attempts=1000) == ["RETRYING"]
        nothing_runs_out(bench, "job-of-years")
        bench.wait(HOUR)
        a_night(bench)
        assert bench.field("job-of-years", "failures") == str(n + 1)
    assert bench.redis.llen(bench.keys.history("job-of-years")) > 0
    assert bench.add("other", unique="k") == ["UNIQUE"]


def test_f09_a_pause_of_eight_days(bench: Bench) -> None:
    """F09: a paused queue with waiting, delayed and held jobs: all of them are there afterwards."""
    bench.add("held", "waits")
    (held,) = bench.take()
    bench.add("later", delay_ms=DAY)
    bench.configure(paused=True)
    for _ in range(8):
        bench.wait(DAY)
        a_night(bench)
        bench.run(calls.heartbeat(bench.keys, [("w1", LEASE, 1)], now=bench.now))
        for ulid in ("held", "waits", "later"):
            nothing_runs_out(bench, ulid)
    bench.configure(paused=False)
    assert {job.ulid for job in bench.take("w2", 10)} >= {"waits", "later"}
    assert held.ulid == "held"


def test_f09_an_expiry_that_was_asked_for_is_an_end(bench: Bench) -> None:
    """F09: a job that was to start within an hour ends as failed, and says why."""
    bench.add("job-of-years", expires_ms=HOUR)
    bench.wait(HOUR + 1)
    a_night(bench)
    assert bench.state("job-of-years") == State.FAILED
    assert "expire" in (bench.field("job-of-years", "error") or "").lower()
