"""A long past costs nothing: each call works as hard beside 2,000 jobs of a state as beside 20,000."""

from collections.abc import Callable
from typing import Any

from support.queue import LEASE, MINUTE, TYPE, Bench
from taskq import calls
from taskq.calls import Call
from taskq.model import JobSpec
from taskq.states import State

FEW, MANY = 2_000, 20_000
SLOWEST_MS = 250
"""Wall time on a machine that is busy with other tests: what stops everybody is caught."""

FILL = """
for i = 1, tonumber(ARGV[3]) do
  local id = ARGV[2] .. i
  redis.call('HSET', KEYS[1] .. 'job:' .. id, 'state', ARGV[1], 'type', ARGV[4], 'payload', '{}',
    'created_at', ARGV[5], 'finished_at', ARGV[5])
  redis.call('ZADD', KEYS[1] .. ARGV[1], ARGV[5] + i / 4096, id)
end
"""
"""Ended jobs as a run leaves them, without the hour that it takes to run so many."""


def fill(bench: Bench, per_state: int) -> None:
    for state in (State.SUCCEEDED, State.FAILED):
        for at in range(0, per_state, 5000):
            n, prefix = min(5000, per_state - at), f"{state.value[0]}{at // 5000}x"
            words = (state.value, prefix, n, TYPE, int(bench.now))
            bench.redis.eval(FILL, 1, bench.keys.prefix, *words)
    bench.configure(succeeded_max=10_000_000, failed_max=10_000_000)
    for at in range(0, per_state, 1000):
        bench.add(*(f"w{at + i}" for i in range(min(1000, per_state - at))), job_type="waits")


Doing = Callable[[Bench], Call[Any]]
EVERYTHING: dict[str, Doing] = {
    "counts": lambda b: calls.counts(b.keys, now=b.now),
    "show": lambda b: calls.show(b.keys, ["f0x1", "s0x1"], now=b.now),
    "check": lambda b: calls.check(b.keys, ["f0x2", "s0x2"], now=b.now),
    "page of failed": lambda b: calls.page(b.keys, State.FAILED, now=b.now),
    "page of a type": lambda b: calls.page(
        b.keys, State.FAILED, job_type="none", budget=200, now=b.now
    ),
    "retry": lambda b: calls.retry(b.keys, [(f"f0x{i}", "") for i in range(10, 110)], now=b.now),
    "delete": lambda b: calls.delete(b.keys, [f"f0x{i}" for i in range(110, 210)], now=b.now),
    "purge": lambda b: calls.purge(b.keys, [State.QUEUED], job_type="waits", limit=250, now=b.now),
    "enqueue": lambda b: calls.enqueue(b.keys, [JobSpec("new", TYPE)], now=b.now),
    "claim": lambda b: calls.claim(b.keys, "w1", 1, 1, [TYPE], lease_ms=LEASE, now=b.now),
    "promote": lambda b: calls.promote(b.keys, now=b.now),
    "expire": lambda b: calls.expire(b.keys, now=b.now),
    "reap": lambda b: calls.reap(b.keys, lease_ms=LEASE, now=b.now),
    "rollup": lambda b: calls.rollup(b.keys, now=b.now),
    "trim": lambda b: calls.trim(b.keys, 400, now=b.now),
    "trim with memory short": lambda b: calls.trim(b.keys, 200, 4, now=b.now),
}


def costs(bench: Bench) -> dict[str, int]:
    """Commands that each call runs."""
    out = {}
    for name, doing in EVERYTHING.items():
        if name == "trim":
            bench.configure(succeeded_max=10)
        call = doing(bench)
        bench.redis.config_resetstat()
        bench.run(call)
        out[name] = commands(bench)
    return out


def commands(bench: Bench) -> int:
    """Commands within scripts since the last reset."""
    stats = bench.redis.info("commandstats")
    ours = ("cmdstat_config|resetstat", "cmdstat_eval", "cmdstat_evalsha")
    return sum(s["calls"] for name, s in stats.items() if name not in ours)


def slow(bench: Bench) -> list[tuple[float, bytes]]:
    found = bench.redis.slowlog_get(128)
    return [(e["duration"] / 1000, e["command"][:80]) for e in found if b"EVAL" in e["command"]]


def test_f51_no_call_grows_with_what_has_ended(bench: Bench) -> None:
    """F51: also a purge, a retention that is far behind, and a retry of dead letters go in bounded steps."""
    fill(bench, FEW)
    few = costs(bench)
    bench.redis.flushdb()
    fill(bench, MANY)
    bench.redis.config_set("slowlog-log-slower-than", SLOWEST_MS * 1000)
    bench.redis.slowlog_reset()
    try:
        assert costs(bench) == few
        left, page = MANY, 1
        while page:
            n, page = bench.run(
                calls.purge(bench.keys, [State.QUEUED], limit=1000, page=page, now=bench.now)
            )
            left -= n
        assert left == 250 - 100  # one page was purged before, a hundred were retried
        while bench.trim()[2]:
            pass
        assert bench.redis.zcard(bench.keys.state(State.SUCCEEDED)) == 10
        assert not slow(bench)
    finally:
        bench.redis.config_set("slowlog-log-slower-than", 10_000)


def test_f79_every_page_costs_what_the_first_does(bench: Bench) -> None:
    """F79: the hundredth page and the last of 20,000 dead letters are as cheap as the first."""
    fill(bench, MANY)
    cursor, costs_of_pages, listed = None, [], 0
    while True:
        call = calls.page(bench.keys, State.FAILED, limit=300, cursor=cursor, now=bench.now)
        bench.redis.config_resetstat()
        found = bench.run(call)
        costs_of_pages.append(commands(bench))
        listed += len(found.jobs)
        if (cursor := found.cursor) is None:
            break
    assert listed == MANY
    assert max(costs_of_pages) <= costs_of_pages[0] + 5
    assert costs_of_pages[0] < 300 + 30


def test_f79_a_filter_that_finds_nothing_gives_up_early(bench: Bench) -> None:
    """F79: a page of a type of which there is nothing looks at its budget of entries, and not at all."""
    fill(bench, MANY)
    bench.wait(MINUTE)
    call = calls.page(bench.keys, State.FAILED, job_type="none", budget=200, now=bench.now)
    bench.redis.config_resetstat()
    found = bench.run(call)
    assert not found.jobs
    assert found.cursor is not None
    assert commands(bench) < 250
