"""Leases after an outage: who could not renew is spared once, and the dead are taken one lease after it.

The names (R5, N4 ..) are those under which the sequences were first written down.
"""

import pytest

from support.queue import LEASE, MINUTE, SECOND, TYPE, Bench
from taskq import calls
from taskq.model import Reaped
from taskq.states import State

HOUR = 60 * MINUTE


def _two_that_beat(bench: Bench) -> int:
    """Two workers with a job each, and a janitor; answers since when that has been trying."""
    bench.add("a", "b")
    bench.take("quick")
    bench.take("slow")
    since = int(bench.now)
    for _ in range(3):
        bench.wait(LEASE // 3)
        bench.beat("quick", holds=1)
        bench.beat("slow", holds=1)
        bench.reap(since_ms=since)
    return since


def _look(bench: Bench, since: int, ms: int, *beating: str) -> int:
    """Time goes by while the janitor looks and these workers beat; answers how many jobs were taken."""
    taken = 0
    while ms > 0:
        step = min(ms, 2 * SECOND)
        bench.wait(step)
        for worker in beating:
            bench.beat(worker, holds=1)
        taken += bench.reap(since_ms=since).jobs
        ms -= step
    return taken


def test_r5_amnesty_gives_every_lease_a_new_one_after_an_outage(bench: Bench) -> None:
    """Redis was away; leases are overdue because nobody could renew. Those that never come are taken one
    lease after it."""
    since = _two_that_beat(bench)
    bench.wait(LEASE + 1)
    assert bench.reap(since_ms=since).status == "AMNESTY"
    assert bench.states(["a", "b"]) == {State.RUNNING}
    assert _look(bench, since, LEASE - 1) == 0
    assert _look(bench, since, 1) == 2


def test_r5_a_janitor_that_has_only_just_started_gives_no_amnesty(bench: Bench) -> None:
    """The only host died and is back after 30 s: its dead jobs are picked up at once."""
    bench.add("a")
    bench.take()
    bench.beat("w1", holds=1)
    bench.wait(30 * SECOND)
    assert bench.reap(since_ms=int(bench.now) - SECOND).jobs == 1


def test_r5_who_came_during_the_outage_knows_of_it(bench: Bench) -> None:
    """A janitor that started while Redis was away, and has been refused since."""
    _two_that_beat(bench)
    bench.wait(LEASE)
    assert bench.reap(since_ms=int(bench.now) - LEASE // 2).status == "AMNESTY"


def test_r5_the_first_beat_after_an_outage_does_not_end_the_amnesty_of_the_others(
    bench: Bench,
) -> None:
    """Redis is back, one worker beats at once, another is in its back-off: its lease is not held to it."""
    since = _two_that_beat(bench)
    bench.wait(LEASE + 1)
    bench.beat("quick", holds=1)
    assert bench.reap(since_ms=since).status == "AMNESTY"
    bench.wait(2 * SECOND)
    assert bench.beat("slow", holds=1).status == "OK"
    assert bench.states(["a", "b"]) == {State.RUNNING}


@pytest.mark.parametrize("dies", ["before the end", "after it"])
def test_r5_the_dead_are_taken_one_lease_after_the_outage(bench: Bench, dies: str) -> None:
    """Also where everybody else falls silent then: those who run nothing do not beat."""
    since = _two_that_beat(bench)
    bench.wait(LEASE + 1)
    if dies == "after it":
        bench.beat("slow", holds=1)
    bench.beat("quick", holds=1)
    bench.reap(since_ms=since)
    fence = bench.redis.hget(bench.keys.job("a"), "fence").decode()
    assert bench.run(
        calls.finish(bench.keys, "quick", [calls.Success("a", fence, b"1")], now=bench.now)
    ) == ["OK"]
    assert _look(bench, since, LEASE - 1) == 0
    assert _look(bench, since, 2) == 1
    assert bench.state("b") == State.QUEUED


def test_r5_a_client_that_beats_seldom_keeps_nobody_alive(bench: Bench) -> None:
    """A lease of 30 s over HTTP, beaten every 10 s: between two of its beats it is not silent."""
    since = _two_that_beat(bench)
    bench.wait(LEASE + 1)
    bench.beat("web", lease_ms=30 * SECOND)
    bench.reap(since_ms=since)
    taken = 0
    for _ in range(2):
        taken += _look(bench, since, 10 * SECOND)
        bench.beat("web", lease_ms=30 * SECOND)
    assert taken == 2


def test_r5_whose_lease_is_longer_has_it_longer(bench: Bench) -> None:
    """Each has its own from the end of the silence on; and who comes first says nothing of the others'."""
    bench.add("a", "b")
    since = int(bench.now)
    bench.take("native")
    bench.claim("web", 1, [TYPE], lease_ms=8 * LEASE)
    bench.reap(since_ms=since)
    bench.wait(LEASE + 1)
    bench.beat("other", lease_ms=8 * LEASE)
    assert bench.reap(since_ms=since).status == "AMNESTY"
    assert _look(bench, since, LEASE) == 1
    bench.wait(7 * LEASE + 1)
    assert bench.reap(since_ms=since).status == "AMNESTY", "this silence is another"
    assert _look(bench, since, 8 * LEASE + 1) == 1


def test_r5_two_outages_in_a_quiet_queue_are_two(bench: Bench) -> None:
    """Nobody beats between them, as there is nothing to run; the janitor looks all the same."""
    since = _two_that_beat(bench)
    for _ in range(2):
        bench.wait(LEASE + 1)
        assert bench.reap(since_ms=since).status == "AMNESTY"
        bench.beat("quick", holds=1)
        bench.beat("slow", holds=1)
        assert _look(bench, since, 3 * SECOND) == 0


def test_r5_a_dead_worker_is_not_spared_again_and_again(bench: Bench) -> None:
    """A janitor that looks seldom leaves a silence between any two looks: it costs one look, not all."""
    bench.add("a")
    since = int(bench.now) - HOUR
    bench.take()
    taken = []
    for _ in range(4):
        bench.wait(LEASE * 3 // 4)
        taken.append(bench.reap(since_ms=since).jobs)
    assert taken == [0, 0, 1, 0]


def test_r5_more_than_a_page_of_the_spared_do_not_end_the_round(bench: Bench) -> None:
    """They stay due and come first: a page of them is no reason for another."""
    since = int(bench.now) - HOUR
    for n in range(150):
        bench.add(f"job{n}")
        bench.take(f"w{n}")
    bench.reap(since_ms=since)
    bench.wait(LEASE + 1)
    reaped = bench.reap(since_ms=since)
    assert (reaped.status, reaped.more, reaped.jobs) == ("AMNESTY", False, 0)
    assert _look(bench, since, LEASE + 5 * SECOND) == 150


def test_r5_a_reap_that_was_held_up_on_its_way_is_patient_too(bench: Bench) -> None:
    """Sent before the server stood still and carried out after, before anybody could beat."""
    since = _two_that_beat(bench)
    bench.wait(LEASE + 1)
    assert bench.reap(since_ms=since).status == "AMNESTY"
    bench.wait(1)
    assert bench.reap(since_ms=since).jobs == 0


def test_n4_a_janitor_that_was_stopped_itself_gives_no_amnesty(bench: Bench) -> None:
    """It was away, but others came all the while."""
    bench.add("a")
    since = int(bench.now)
    bench.take("dead")
    for _ in range(4):
        bench.wait(LEASE // 3)
        bench.beat("alive")
    assert bench.reap(since_ms=since).jobs == 1


def test_n4_amnesty_does_not_hold_back_the_known_dead(bench: Bench) -> None:
    """Workers already marked, and those a supervisor saw die, are reaped all the same."""
    since = int(bench.now)
    bench.add("a", "b", "c")
    bench.take("w1", 2)
    bench.take("w2", 1)
    bench.reap(since_ms=since)
    bench.reap(targets=[("w1", "crashes", "killed")], limit=1)
    bench.wait(LEASE + 1)
    assert bench.reap(since_ms=since).status == "AMNESTY"
    assert bench.states(["a", "b"]) == {State.QUEUED}
    assert bench.state("c") == State.RUNNING
    bench.crash("w2")
    assert bench.state("c") == State.QUEUED


def test_n4_who_was_dead_before_the_outage_is_taken_at_once(bench: Bench) -> None:
    since = _two_that_beat(bench)
    _look(bench, since, LEASE - SECOND, "quick")
    bench.wait(SECOND)
    bench.beat("quick", holds=1)
    bench.wait(LEASE + 1)
    assert bench.reap(since_ms=since) == Reaped("AMNESTY", False, 1, 1, 0)
    assert (bench.state("a"), bench.state("b")) == (State.RUNNING, State.QUEUED)


def test_n5_an_amnesty_of_a_clock_that_went_back_is_over(bench: Bench) -> None:
    """A silence that ended half an hour ahead would stop recovery for half an hour."""
    since = int(bench.now) - HOUR
    bench.reap(since_ms=since)
    bench.wait(LEASE)
    bench.reap(since_ms=since)
    bench.now -= 30 * MINUTE
    bench.add("a")
    bench.take()
    assert _look(bench, since, LEASE - 1) == 0
    assert _look(bench, since, 2) == 1
