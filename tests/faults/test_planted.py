"""Deliberate bugs in the protocol: each must turn a named check red, or the checks are worth nothing.

The text of a script is changed as it is read, in this process alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.queue import LEASE, Bench, runs
from support.smallscope import Explorer, Violation
from taskq import calls, lua

Check = Callable[[Bench], None]

BUGS: dict[str, tuple[str, str, str]] = {
    "finish without the fence": (
        "finish",
        "elseif v[3] ~= fence or v[2] ~= worker then",
        "elseif false then",
    ),
    "claim pops before it checks": (
        "claim",
        "    if head.err then\n      count('broken_line', 1)",
        "    for j = 1, #head, 2 do redis.call('ZREM', prefix .. 'ready:' .. active[i], head[j]) end\n"
        "    if head.err then\n      count('broken_line', 1)",
    ),
    "a dead worker may claim": (
        "claim",
        "  return { 'LOST' }\nend\nif most > 0",
        "end\nif most > 0",
    ),
    "reconcile hands nothing back": ("reconcile", "  if not held[id] then", "  if false then"),
    "reap marks nobody dead": ("reap", "redis.call('ZADD', prefix .. 'dead', NOW, worker)", ""),
}


@contextmanager
def planted(bug: str) -> Iterator[None]:
    name, text, instead = BUGS[bug]
    read = lua._read

    def changed(wanted: str) -> str:
        source = read(wanted)
        if wanted != name:
            return source
        assert source.count(text) == 1, f"the bug no longer fits {name}.lua"
        return source.replace(text, instead)

    lua._read = changed
    lua.load.cache_clear()
    try:
        yield
    finally:
        lua._read = read
        lua.load.cache_clear()


# --- the checks -----------------------------------------------------------------------------------


def late_report_is_refused(bench: Bench) -> None:
    """F14: A loses its lease, B runs the job, A reports: one outcome, B's."""
    bench.add("a")
    late = bench.take("A")
    bench.wait(LEASE + 1)
    bench.reap()
    (run,) = bench.take("B")
    assert bench.finish(*late, worker="A", result=b'"A"') == ["STALE"]
    assert bench.finish(run, worker="B", result=b'"B"') == ["OK"]
    assert bench.field("a", "result") == '"B"'


def every_job_stands_in_its_place(bench: Bench) -> None:
    """F01, R17: a claim takes what it answers, and nothing else leaves the line."""
    bench.add("a", "b", "c")
    bench.take("A")
    assert bench.line() == ["b", "c"]
    assert not bench.findings()


def a_dead_workers_claim_takes_nothing(bench: Bench) -> None:
    """R2: a supervisor reaps W; then its last claim is read from the socket."""
    bench.add("a")
    bench.crash("W")
    assert bench.claim("W").status == "LOST"
    assert bench.line() == ["a"]


def a_lost_answer_strands_nothing(bench: Bench) -> None:
    """R1: the answer to a claim is lost; the worker lives on and says what it holds."""
    bench.add("a", "b")
    bench.take("W")
    known = bench.take("W")
    bench.run(calls.reconcile(bench.keys, "W", 2, runs(known), now=bench.now))
    assert bench.line() == ["a"]


def an_expired_worker_stays_dead(bench: Bench) -> None:
    """R2, F14: W's lease ran out and its jobs are in line: neither a claim nor a beat brings it back."""
    bench.add("a", "b")
    bench.take("W")
    bench.wait(LEASE + 1)
    bench.reap()
    assert bench.beat("W", holds=1).status == "LOST"
    assert bench.claim("W").status == "LOST"


CHECKS: dict[str, Check] = {
    "finish without the fence": late_report_is_refused,
    "claim pops before it checks": every_job_stands_in_its_place,
    "a dead worker may claim": a_dead_workers_claim_takes_nothing,
    "reconcile hands nothing back": a_lost_answer_strands_nothing,
    "reap marks nobody dead": an_expired_worker_stays_dead,
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_is_seen(redis_url: str, bug: str) -> None:
    """Green without the bug, red with it."""
    check = CHECKS[bug]
    check(Bench.at(redis_url))
    bench = Bench.at(redis_url)
    bench.redis.flushdb()
    with planted(bug), pytest.raises(AssertionError):
        check(bench)


@pytest.mark.parametrize("bug", BUGS)
def test_the_search_finds_each_bug(redis_url: str, bug: str) -> None:
    """The search over interleavings, which knows of no bug, answers a sequence for each."""
    with planted(bug):
        explorer = Explorer(redis_url, 120, start=("w1.0 claims",))
        try:
            with pytest.raises(Violation) as found:
                explorer.explore()
        finally:
            explorer.close()
    print(f"{bug}: {found.value} ({explorer.steps} steps)")
