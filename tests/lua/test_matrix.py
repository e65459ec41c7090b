"""Every script against a job in every state: only the moves of the table, never half a move, never twice."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from support.queue import MINUTE, Bench
from support.sends import FENCED, JOB, SENDS, Run
from taskq import calls, keys
from taskq.states import TRANSITIONS, State

LATER = 12 * MINUTE
"""Past every delay, lease, expiry and dedup window used here."""


RICH: dict[str, Any] = {
    "expires_ms": 10 * MINUTE,
    "unique": "one",
    "digest": "d1",
    "payload": b'"' + b"x" * 2000 + b'"',
    "check": True,
}
"""A job that uses every optional container."""


def scheduled(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, delay_ms=MINUTE, **rich)
    return Run("w1", "0")


def queued(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, **rich)
    return Run("w1", "0")


def running(bench: Bench, rich: dict[str, Any]) -> Run:
    queued(bench, rich)
    (job,) = bench.take()
    return Run("w1", job.fence)


def asked_to_stop(bench: Bench, rich: dict[str, Any]) -> Run:
    run = running(bench, rich)
    bench.cancel(JOB)
    return run


def retrying(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, **rich)
    (job,) = bench.take()
    bench.fail(job)
    return Run("w1", job.fence)


def succeeded(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, **rich)
    (job,) = bench.take()
    bench.finish(job, result_ttl_ms=MINUTE if rich else None)
    return Run("w1", job.fence)


def failed(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, **rich)
    (job,) = bench.take()
    bench.fail(job, max_attempts=1)
    return Run("w1", job.fence)


def cancelled(bench: Bench, rich: dict[str, Any]) -> Run:
    queued(bench, rich)
    bench.cancel(JOB)
    return Run("w1", "0")


def stub(bench: Bench, rich: dict[str, Any]) -> Run:
    bench.add(JOB, **rich)
    (job,) = bench.take()
    bench.finish(job, result_ttl_ms=0)
    return Run("w1", job.fence)


def not_stored(bench: Bench, rich: dict[str, Any]) -> Run:
    return Run("w1", "0")


SITUATIONS: list[Callable[[Bench, dict[str, Any]], Run]] = [
    not_stored,
    scheduled,
    queued,
    running,
    asked_to_stop,
    retrying,
    succeeded,
    failed,
    cancelled,
    stub,
]

LATE = [
    n for n in SENDS if n.split()[0] in {*FENCED, "enqueue", "cancel", "retry", "edit", "delete"}
]
"""Calls about one job: those that walk a queue find other work a second later."""

REFUSALS = {"STALE", "GONE", "WRONG_STATE", "NOT_FOUND", "ENDED", "BROKEN", "BROKEN_KEY", "LOST"}
REFUSALS |= {"EXISTS", "CONFLICT", "UNIQUE"}


def test_the_matrix_sends_every_script(redis_url: str) -> None:
    bench = Bench.at(redis_url)
    assert {send(bench, Run("w", "1")).script.name for send in SENDS.values()} == set(TRANSITIONS)


def case(name: str, situation: Callable[..., Run]) -> Any:
    return pytest.param(name, situation, id=f"{name}-{situation.__name__}".replace(" ", "-"))


def cases(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("name", "situation"), [case(name, situation) for name in names for situation in SITUATIONS]
    )


every_age = pytest.mark.parametrize("age", [1, LATER], ids=["soon", "later"])
every_kind = pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])


@every_kind
@every_age
@cases(SENDS)
def test_a_script_moves_a_job_only_as_the_table_says(
    redis_url: str, name: str, situation: Callable[..., Run], age: int, options: dict[str, Any]
) -> None:
    bench = Bench.at(redis_url)
    bench.listen()
    run = situation(bench, options)
    assert not bench.findings(), "the situation itself is sound"
    bench.wait(age)
    before, dump = bench.state(JOB), bench.dump()

    call = SENDS[name](bench, run)
    words = bench.words(call)

    after = bench.state(JOB)
    assert TRANSITIONS[call.script.name].allows(before, after)
    assert not bench.findings()
    if words and words <= REFUSALS:
        assert before == after
        assert call.script.name == "claim" or bench.dump() == dump, (
            "refused, but something was written"
        )


def everything(bench: Bench) -> dict[str, Any]:
    """Every byte, but how often a report was refused: that counts calls and not jobs."""
    dump = bench.dump(leave_out=())
    for name in [n for n in dump if n.startswith("stats:")]:
        dump[name].pop(b"fenced_out", None)
        if not dump[name]:
            del dump[name]
    return dump


@every_kind
@every_age
@cases(SENDS)
def test_a_script_sent_twice_does_its_work_once(
    redis_url: str, name: str, situation: Callable[..., Run], age: int, options: dict[str, Any]
) -> None:
    """The second try finds nothing to move, count or announce."""
    bench = Bench.at(redis_url)
    bench.listen()
    run = situation(bench, options)
    bench.wait(age)
    call = SENDS[name](bench, run)
    bench.run(call)
    once = everything(bench)

    bench.run(call)

    assert everything(bench) == once
    if name in LATE:
        bench.run(replace(call, args=[repr(bench.now + 1000), *call.args[1:]]))
        assert everything(bench) == once, "a second later"


@every_kind
@pytest.mark.parametrize("wrong", ["worker", "fence"])
@cases(FENCED)
def test_whoever_does_not_hold_the_run_changes_nothing(
    redis_url: str, name: str, situation: Callable[..., Run], wrong: str, options: dict[str, Any]
) -> None:
    bench = Bench.at(redis_url)
    run = situation(bench, options)
    stranger = Run("w9", run.fence) if wrong == "worker" else Run(run.worker, "1")
    dump = everything(bench)

    bench.run(FENCED[name](bench, stranger))

    assert everything(bench) == dump


@every_kind
@pytest.mark.parametrize("situation", SITUATIONS[1:], ids=lambda s: s.__name__)
def test_every_key_is_of_the_documented_type(
    redis_url: str, situation: Callable[..., Run], options: dict[str, Any]
) -> None:
    bench = Bench.at(redis_url)
    bench.listen()
    situation(bench, options)
    bench.run(calls.rollup(bench.keys, now=bench.now + LATER))
    documented = key_types()
    for name in bench.dump(leave_out=()):
        kind = bench.redis.type(bench.key(name)).decode()
        assert documented[re.sub(":.*", ":", name)] == kind


def key_types() -> dict[str, str]:
    """The table of ``keys.py``: ``job:`` is a hash, and so on; a cell may go on in the next line."""
    table = re.split(r"^=====.*$", keys.__doc__ or "", flags=re.MULTILINE)[2]
    types: dict[str, str] = {}
    kind = ""
    for row in table.strip().splitlines():
        kind = row[23:30].strip() or kind
        types |= {
            re.sub("<.*>", "", name.strip()): kind for name in row[:22].split(",") if name.strip()
        }
    return types


@pytest.mark.parametrize("end", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_every_end_of_a_rich_job_leaves_only_its_record(redis_url: str, end: State) -> None:
    """Locks, expiry, stop flags and lists are given back by each of the three ends."""
    bench = Bench.at(redis_url)
    {State.SUCCEEDED: succeeded, State.FAILED: failed, State.CANCELLED: cancelled}[end](
        bench, {**RICH}
    )
    left = {name for name in bench.dump() if not name.startswith(("history:", "holders", "leases"))}
    assert left - {"expiring", "totals"} == {f"job:{JOB}", end.value}
