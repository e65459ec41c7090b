"""Whoever calls a transition dies before or after any of its commands: nothing is lost, nothing doubled."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.crashing import LEASE_MS, MODES, QUEUE, TYPE, Crasher
from support.queue import Bench, runs
from taskq import calls
from taskq.calls import Success
from taskq.states import TERMINAL

HOUR = 3_600_000
WAITING = ("enqueue", "claim", "cancel", "purge")
HELD = (
    "finish",
    "fail",
    "fail for good",
    "release",
    "snooze",
    "crash",
    "reconcile",
    "heartbeat",
    "bury",
)
TRANSITIONS = (*WAITING, *HELD, "retry", "janitor")


@pytest.fixture
def crasher(redis_url: str) -> Iterator[Crasher]:
    crasher = Crasher(redis_url)
    yield crasher
    crasher.close()


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_killed_at_every_command(redis_url: str, crasher: Crasher, transition: str) -> None:
    """For all k: killed before the k-th command, after it was sent, after it was answered; then a drain."""
    bench = Bench.at(redis_url, QUEUE)
    points = 0
    for mode in MODES:
        for cold in (False, True):
            k = 1
            while _one_point(bench, crasher, transition, k, mode, cold):
                points += 1
                k += 1
            assert k > 1
    print(f"{transition}: {points} crash points")


def _one_point(
    bench: Bench, crasher: Crasher, transition: str, k: int, mode: str, cold: bool
) -> bool:
    bench.redis.flushdb()
    bench.now = time.time() * 1000
    bench.redis.sadd(bench.store.keys.queues, QUEUE)
    bench.listen()
    jobs = [f"{n:026d}" for n in range(4)]
    acknowledged = jobs[:3] if transition == "enqueue" else jobs
    bench.add(*acknowledged[:3], job_type=TYPE)
    if transition != "enqueue":
        bench.add(jobs[3], job_type=TYPE, delay_ms=1)
    arguments: dict[str, Any] = {"ids": jobs if transition == "enqueue" else jobs[:3], "call": 1}
    if transition in HELD or transition in ("retry", "janitor"):
        life = 1 if transition == "janitor" else LEASE_MS
        held = bench.claim("w", 3, [TYPE], call=1, lease_ms=life).jobs
        arguments["runs"] = runs(held)
        if transition == "retry":
            bench.fail(*held, worker="w", max_attempts=1)
    if cold:
        bench.redis.script_flush()
    killed = crasher.crash(transition, k, mode, **arguments)
    if killed:
        _drain(bench)
        _judge(bench, acknowledged, jobs, f"{transition}, {mode} command {k}")
    return killed


def _drain(bench: Bench) -> None:
    """An hour later: leases have run out; a good worker does what there is."""
    for n in range(1, 9):
        bench.now += HOUR
        while bench.reap().more:
            pass
        bench.promote()
        claimed = bench.claim("good", 10, [TYPE], call=n).jobs
        if claimed:
            done = [Success(j.ulid, j.fence, j.fence.encode()) for j in claimed]
            words = bench.run(calls.finish(bench.keys, "good", done, now=bench.now))
            assert set(words) == {"OK"}


def _judge(bench: Bench, acknowledged: list[str], tried: list[str], where: str) -> None:
    states = {ulid: bench.state(ulid) for ulid in tried}
    for ulid in acknowledged:
        assert states[ulid] in TERMINAL, f"{where}: {ulid} is {states[ulid]}"
    for ulid, state in states.items():
        assert state is None or state in TERMINAL, f"{where}: {ulid} is {state}"
    assert not bench.findings(), where
    ends: dict[str, list[str]] = {}
    for _, fields in bench.redis.xrange(bench.keys.events):
        event = fields[b"event"].decode()
        for ulid in fields[b"jobs"].decode().split():
            if event in ("succeeded", "cancelled"):
                ends.setdefault(ulid, []).append(event)
    assert all(len(events) == 1 for events in ends.values()), f"{where}: {ends}"
    left = [n.decode() for n in bench.redis.scan_iter(bench.keys.prefix + "*")]
    stuck = [n for n in left if n.startswith((bench.key("ready:"), bench.key("processing:")))]
    assert not stuck, f"{where}: {stuck}"
