"""What ``taskq doctor --fix`` makes of a queue that lost keys, was written to by hand or was restored.

Whatever is left of a job's hash is enough: it runs, in the order it had, and no neighbour notices.
"""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.queue import LEASE, Bench
from support.workers import COMMAND, until
from taskq import calls
from taskq.calls import Repair
from taskq.cli import main as cli_main
from taskq.doctor import Finding, examine, fix, fix_all
from taskq.embedded import EmbeddedServer
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.model import Claimed
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore

ulid = UlidFactory()
HOUR = 3_600_000


@pytest.fixture
def q(redis_url: str) -> Bench:
    return at_server_time(redis_url)


def at_server_time(url: str) -> Bench:
    made = Bench.at(url)
    made.now = None  # type: ignore[assignment]
    made.store.know_queue("q")
    return made


async def mend(store: AsyncStore) -> list[Finding]:
    return [finding for finding in await fix(store, "q", pause=0) if finding.fixed]


async def wrong(store: AsyncStore) -> list[Finding]:
    """What is left: what was set aside, and what is only good to know, does not count."""
    found = await examine(store, "q", pause=0)
    return [f for f in found if f.severity != "info" and "was set aside" not in f.message]


def every_state(q: Bench) -> dict[str, str]:
    names = "done dead retrying running stopping other_run queued first scheduled unique"
    ids = {name: ulid() for name in names.split()}
    q.add(
        *(ids[n] for n in ("done", "dead", "retrying", "running", "stopping")), expires_ms=9 * HOUR
    )
    jobs = {job.ulid: job for job in q.take("w1", 5)}
    q.finish(jobs[ids["done"]])
    q.fail(jobs[ids["dead"]], max_attempts=1)
    q.fail(jobs[ids["retrying"]])
    q.cancel(ids["stopping"])
    q.add(ids["other_run"])
    q.take("w2")
    q.add(ids["queued"])
    q.add(ids["first"], priority=50, expires_ms=9 * HOUR)
    q.add(ids["scheduled"], delay_ms=HOUR)
    q.add(ids["unique"], unique="k")
    return ids


def drain(q: Bench, *workers: str) -> None:
    """The old workers are gone, an hour passes, a new one runs all there is."""
    for worker in workers or ("w1", "w2"):
        q.crash(worker)
    q.now = time.time() * 1000 + HOUR + 10_000
    while jobs := q.take("later", 50):
        q.finish(*jobs, worker="later")


# --- whole keys gone or overwritten -------------------------------------------------------------

KEYS = ["ready:mail", "lines", "scheduled", "retrying", "processing:w1", "leases", "holders"]
KEYS += ["cancelling", "succeeded", "failed", "expiring", "unique:k", "dead", "ticks", "totals"]


@pytest.mark.parametrize("how", ["deleted", "overwritten"])
@pytest.mark.parametrize("name", [*KEYS, "all of them"])
async def test_a_container_is_made_anew_from_the_jobs(
    q: Bench, store: AsyncStore, name: str, how: str
) -> None:
    ids = every_state(q)
    states = {name: q.state(one) for name, one in ids.items()}
    line = q.line()
    for key in KEYS if name == "all of them" else [name]:
        q.redis.delete(q.key(key))
        if how == "overwritten":
            q.redis.set(q.key(key), "by hand")

    await mend(store)

    assert await wrong(store) == []
    assert await mend(store) == []
    after = {name: q.state(one) for name, one in ids.items()}
    if name == "all of them":
        # Nobody is known to hold these: what ran runs again, and what was to stop is stopped.
        states |= {"running": State.QUEUED, "stopping": State.CANCELLED}
        assert [i for i in q.line() if i in line] == line
    else:
        assert q.line() == line
    assert after == states
    drain(q)
    ends = {name: q.state(one) for name, one in ids.items()}
    assert ends.pop("dead") is State.FAILED
    assert ends.pop("stopping") is State.CANCELLED
    assert set(ends.values()) == {State.SUCCEEDED}


# --- runs ---------------------------------------------------------------------------------------


async def test_a_live_worker_gets_its_run_back_and_ends_it(q: Bench, store: AsyncStore) -> None:
    q.add(ulid(), ulid())
    jobs = q.take(most=2)
    q.redis.lrem(q.keys.processing("w1"), 0, jobs[0].ulid)
    (fixed,) = {finding.fix for finding in await mend(store)}
    assert "listed once at its worker" in fixed
    assert q.beat(holds=2).length == 2
    assert q.claim(call=1, most=2).repeated
    assert q.finish(*jobs) == ["OK", "OK"]
    assert await wrong(store) == []


async def test_the_run_of_a_dead_worker_counts_as_lost(q: Bench, store: AsyncStore) -> None:
    q.add(one := ulid())
    (job,) = q.take()
    q.redis.delete(q.keys.processing("w1"), q.keys.leases, q.keys.holders)
    assert await mend(store)
    assert (q.state(one), q.field(one, "lost")) == (State.QUEUED, "1")
    assert q.finish(job) == ["STALE"]
    (again,) = q.take("w2")
    assert int(again.fence) > int(job.fence)


async def test_the_run_of_a_worker_whose_lease_is_over_counts_as_lost(
    q: Bench, store: AsyncStore
) -> None:
    q.add(one := ulid())
    q.take()
    q.redis.delete(q.keys.processing("w1"))
    q.redis.zadd(q.keys.leases, {"w1": 1})
    assert await mend(store)
    assert q.state(one) is State.QUEUED


async def test_a_run_lost_too_often_is_failed(q: Bench, store: AsyncStore) -> None:
    q.add(one := ulid(), unique="k")
    q.take()
    q.redis.hset(q.keys.job(one), "lost", calls.MAX_LOST - 1)
    q.redis.delete(q.keys.processing("w1"), q.keys.leases, q.keys.holders)
    assert await mend(store)
    assert q.state(one) is State.FAILED
    assert not q.redis.exists(q.key("unique:k"))
    assert await wrong(store) == []


async def test_a_list_without_a_lease_gets_one_lease_and_no_more(
    q: Bench, store: AsyncStore
) -> None:
    q.add(one := ulid())
    q.take()
    q.redis.delete(q.keys.leases)
    assert await mend(store)
    lease = q.redis.zscore(q.keys.leases, "w1")
    assert 0 < lease - time.time() * 1000 <= LEASE
    assert await mend(store) == []
    assert q.redis.zscore(q.keys.leases, "w1") == lease
    assert q.state(one) is State.RUNNING
    q.now = lease + 1
    assert q.reap().jobs == 1
    assert q.state(one) is State.QUEUED


async def test_a_dead_worker_gets_no_grace(q: Bench, store: AsyncStore) -> None:
    q.add(one := ulid())
    q.take()
    q.redis.zadd(q.keys.dead, {"w1": time.time() * 1000})
    q.redis.zrem(q.keys.leases, "w1")
    assert await mend(store)
    assert q.reap().jobs == 1
    assert q.state(one) is State.QUEUED


async def test_leftovers_of_workers_go(q: Bench, store: AsyncStore) -> None:
    now = time.time() * 1000
    q.redis.hset(q.keys.holders, "idle", "3 0 15000")
    q.redis.zadd(q.keys.dead, {"old": now - 2 * HOUR, "ahead": now + 2 * HOUR, "new": now})
    assert len(await mend(store)) == 3
    assert q.redis.hgetall(q.keys.holders) == {}
    marks = dict(q.redis.zrange(q.keys.dead, 0, -1, withscores=True))
    assert set(marks) == {b"ahead", b"new"}
    assert max(marks.values()) < time.time() * 1000 + 1
    assert await wrong(store) == []


# --- jobs ---------------------------------------------------------------------------------------


async def test_a_lost_score_is_worked_out_anew(q: Bench, store: AsyncStore) -> None:
    for priority in (0, 90, -90, 7, 0, 0):
        q.add(ulid(), priority=priority)
        time.sleep(0.002)
    line = q.line()
    q.redis.zrem(q.key("ready:mail"), *line[1::2])
    assert await mend(store)
    assert q.line() == line


async def test_of_two_jobs_with_one_unique_key_one_goes_on_without(
    q: Bench, store: AsyncStore
) -> None:
    q.add(first := ulid(), unique="k")
    q.redis.delete(q.key("unique:k"))
    q.add(second := ulid(), unique="k")
    (fixed,) = await mend(store)
    assert "goes on without its unique key" in fixed.fix
    assert q.redis.get(q.key("unique:k")) == second.encode()
    drain(q)
    assert q.states([first, second]) == {State.SUCCEEDED}
    assert await wrong(store) == []


async def test_a_state_set_by_hand_is_believed(q: Bench, store: AsyncStore) -> None:
    ids = every_state(q)
    for name, state in (
        ("queued", "cancelled"),
        ("scheduled", "queued"),
        ("retrying", "scheduled"),
    ):
        q.redis.hset(q.keys.job(ids[name]), "state", state)
    await mend(store)
    assert await wrong(store) == []
    drain(q)
    assert q.state(ids["queued"]) is State.CANCELLED
    assert q.states([ids["scheduled"], ids["retrying"]]) == {State.SUCCEEDED}


async def test_leftovers_in_expiring_end_nobody(q: Bench, store: AsyncStore) -> None:
    q.add(one := ulid())
    q.redis.zadd(q.key("expiring"), {one: 1, ulid(): 1})
    assert len(await mend(store)) == 2
    assert q.expire() == (0, 0, False)
    assert q.state(one) is State.QUEUED


async def test_a_hash_that_is_no_job_is_kept(q: Bench, store: AsyncStore) -> None:
    q.add(one := ulid(), typeless := ulid())
    q.redis.hdel(q.keys.job(typeless), "type")
    q.redis.hset(q.keys.job(orphan := ulid()), "progress", "1")
    await mend(store)
    assert await wrong(store) == []
    assert q.redis.hget(q.keys.set_aside(f"job:{orphan}"), "progress") == b"1"
    assert q.redis.hget(q.keys.set_aside(f"job:{typeless}"), "state") == b"queued"
    assert q.line() == [one]


async def test_many_are_put_right_in_small_calls(
    q: Bench, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [ulid() for _ in range(2500)]
    for start in range(0, 2500, 500):
        q.add(*many[start : start + 500])
    q.redis.delete(q.key("ready:mail"), q.keys.lines)
    sizes = []
    run = store.run

    async def watched(call: Any, **options: Any) -> Any:
        if call.script.name == "repair":
            sizes.append((len(call.args) - 3) // 4)
        return await run(call, **options)

    monkeypatch.setattr(store, "run", watched)
    assert len({f.subject for f in await mend(store)} - {"ready:mail"}) == 2500
    assert max(sizes) <= 200
    assert sorted(q.line()) == sorted(many)
    assert await wrong(store) == []


async def test_the_registry_is_made_anew(q: Bench, store: AsyncStore, redis_url: str) -> None:
    Bench.at(redis_url, "b").add(ulid())
    q.add(ulid())
    q.redis.delete(Keys().queues)
    q.redis.set(Keys().queues, "by hand")
    fixed = [f for f in await fix_all(store, pause=0) if f.fixed]
    assert {f.subject for f in fixed} == {"taskq:queues", "b", "q"}
    assert q.redis.smembers(Keys().queues) == {b"b", b"q"}
    assert q.redis.get(Keys().set_aside("queues")) == b"by hand"
    assert not [f for f in await fix_all(store, pause=0) if f.fixed]


# --- nothing healthy is touched -----------------------------------------------------------------


def all_repairs(ids: dict[str, str]) -> Iterator[Repair]:
    """Every repair, about all there is."""
    boxes = {"": "", "queued": "ready:mail", "running": "processing:w1", "unique": "ready:mail"}
    for name, one in ids.items():
        yield Repair("misplaced", one)
        box = boxes.get(name) or {"done": "succeeded", "dead": "failed"}.get(name, name)
        if box in ("stopping", "other_run", "first"):
            box = {"stopping": "processing:w1", "other_run": "processing:w2"}.get(box, "ready:mail")
        yield Repair("entry", one, box)
        for other in ("expiring", "cancelling"):
            if name in ("first", "running", "done", "dead") or other == "cancelling":
                yield Repair("entry", one, other)
        yield Repair("attached", f"history:{one}")
    for worker in ("w1", "w2", "w3"):
        yield Repair("worker", worker)
        yield Repair("key", f"processing:{worker}", "list", "x")
    for name in ("leases", "dead", "scheduled", "ready:mail", "succeeded"):
        yield Repair("key", name, "zset", name)
        yield Repair("lasting", name)
    yield Repair("passing", "wake:mail", "60000")
    yield Repair("line", "mail")
    yield Repair("line", "none")
    yield Repair("lock", "k")
    yield Repair("setting", "aging_ms", "", "5")


def test_a_repair_of_what_is_in_order_by_now_writes_nothing(q: Bench) -> None:
    ids = every_state(q)
    q.configure(aging_ms=5000)
    dump = q.dump(leave_out=())
    repairs = list(all_repairs(ids))
    done = q.run(calls.repair(q.keys, repairs, lease_ms=LEASE))
    assert {r: what for r, what in zip(repairs, done, strict=True) if what} == {}
    assert q.dump(leave_out=()) == dump


class Load:
    """Threads that submit, claim and end jobs, and remember what they were told."""

    def __init__(self, url: str, threads: int = 3) -> None:
        self._url = url
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(threads)]
        self.ended: dict[str, list[str]] = {}
        self.added: list[str] = []
        self.errors: list[BaseException] = []

    def _work(self, n: int) -> None:
        try:
            mine, name = at_server_time(self._url), f"load{n}"
            while not self._over.is_set():
                self._turn(mine, name)
        except BaseException as error:
            self.errors.append(error)

    def _turn(self, q: Bench, name: str) -> None:
        new = [ulid() for _ in range(8)]
        q.add(*new[:5], job_type="load", expires_ms=HOUR)
        q.add(new[5], job_type="load", unique=f"key {name}")
        q.add(*new[6:], job_type="load", delay_ms=1)
        self.added += [*new[:5], *new[6:]]
        jobs = q.take(name, 8, "load")
        q.beat(name, holds=len(jobs))
        q.cancel(*(job.ulid for job in jobs[7:]))
        words = q.finish(*jobs[:4], worker=name) + q.fail(*jobs[4:5], worker=name, delay_ms=1)
        words += q.release(*jobs[5:6], worker=name) + q.fail(
            *jobs[6:7], worker=name, max_attempts=1
        )
        words += q.finish(*jobs[7:], worker=name)
        for job, word in zip(jobs, words, strict=True):
            self.ended.setdefault(job.ulid, []).append(word)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


async def test_under_load_nothing_healthy_is_changed(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    with Load(redis_url) as load:
        for page in (7, 200):
            found = await fix(store, "q", page=page, pause=0)
            # A line that is empty at this moment may leave the index: the next job enters it again.
            assert [f for f in found if f.fixed and f.severity != "info"] == []
    assert load.errors == []
    assert set().union(*load.ended.values()) <= {"OK", "RETRYING", "QUEUED", "FAILED"}
    assert await wrong(store) == []


async def test_under_load_what_is_broken_is_put_right(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    ids = every_state(q)
    with Load(redis_url, 2) as load:
        for _ in range(3):
            q.redis.zrem(q.key("ready:mail"), ids["queued"])
            q.redis.zadd(q.key("ready:load"), {ids["first"]: 1e13})
            q.redis.zadd(q.key("scheduled"), {ids["unique"]: 9e12, ids["running"]: 9e12})
            q.redis.zrem(q.key("retrying"), ids["retrying"])
            q.redis.lrem(q.keys.processing("w2"), 0, ids["other_run"])
            q.redis.delete(q.key("unique:k"))
            await mend(store)
            q.beat("w1", holds=2)
            q.beat("w2", holds=1)
            await asyncio.sleep(0.05)
    assert load.errors == []
    assert set().union(*load.ended.values()) <= {"OK", "RETRYING", "QUEUED", "FAILED"}
    await mend(store)
    assert await wrong(store) == []
    assert q.state(ids["other_run"]) is State.RUNNING
    drain(q)
    while jobs := q.take("later", 50, "load"):
        q.finish(*jobs, worker="later")
    assert q.states(set(ids.values()) - {ids["dead"], ids["stopping"]}) == {State.SUCCEEDED}
    assert q.states(load.added) <= TERMINAL


async def test_keys_that_vanish_under_load_lose_no_job(
    redis_url: str, q: Bench, store: AsyncStore
) -> None:
    """Evicted again and again while workers are at it: each job still ends, by whomever."""
    with Load(redis_url, 2) as load:
        for name in ("ready:load", "lines", "leases", "holders", "scheduled", "processing:load0"):
            q.redis.delete(q.key(name))
            await mend(store)
    assert load.errors == []
    await mend(store)
    assert await wrong(store) == []
    drain(q, "load0", "load1")
    while jobs := q.take("later", 50, "load"):
        q.finish(*jobs, worker="later")
    assert q.states(load.added) <= TERMINAL


# --- a restore, by the runbook ------------------------------------------------------------------


def runbook(title: str) -> str:
    """The commands below a heading of docs/operations.md."""
    text = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    found = re.search(rf"^### {title}\n.*?```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


class Operator:
    """Types the runbook's commands into a shell; ``systemctl`` and ``taskq`` are this test's."""

    def __init__(self, folder: Path, server: EmbeddedServer) -> None:
        self._folder, self._server = folder, server
        self.backup = folder / "backup"
        self.backup.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        asked, done = folder / "start-asked", folder / "started"
        self._write(
            programs / "systemctl",
            f'echo "$@" >> {folder}/systemctl.log\n'
            f'if [ "$*" = "start valkey" ]; then touch {asked}\n'
            f"while [ ! -e {done} ]; do sleep 0.05; done; fi\n",
        )
        python = shlex.quote(sys.executable)
        self._write(programs / "taskq", f'exec {python} -c {shlex.quote(COMMAND)} "$@"\n')
        self._asked, self._done = asked, done
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TASKQ_REDIS_URL": server.url,
            "DATA": str(server.data_dir),
            "BACKUP": str(self.backup),
        }

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o700)

    def follow(self, title: str, *, start: bool = False) -> str:
        command = ["bash", "-uc", runbook(title)]
        with subprocess.Popen(
            command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as shell:
            if start:
                until(lambda: self._asked.exists() or shell.poll(), 30, "the server is to start")
                if shell.poll() is None:
                    self._server.restart()
                self._done.touch()
            out, _ = shell.communicate(timeout=120)
        assert shell.returncode == 0, out
        return out

    def services(self) -> list[str]:
        return (self._folder / "systemctl.log").read_text().splitlines()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "data", persistent=True, port=0, appendfsync="always") as server:
        yield server


def go_on(q: Bench, ids: dict[str, str], running: list[Claimed]) -> list[Claimed]:
    """What happens after the copy was taken: the workers are ahead of what will be restored."""
    q.finish(*running[:2], worker="w3")
    q.take("w1", 3)
    q.add(*(ulid() for _ in range(5)))
    q.cancel(ids["scheduled"])
    return q.take("newer", 2)


BREAKAGES: dict[str, Callable[[Bench], object]] = {
    "as it was": lambda q: None,
    "and keys were lost": lambda q: q.redis.delete(
        q.keys.leases, q.keys.lines, q.key("retrying"), q.key("scheduled"), Keys().queues
    ),
}


@pytest.mark.skipif("not __import__('shutil').which('redis-cli')", reason="needs redis-cli")
@pytest.mark.parametrize("broken", BREAKAGES)
def test_a_restored_file_loses_no_job_that_it_holds(
    tmp_path: Path, own_server: EmbeddedServer, broken: str
) -> None:
    q = at_server_time(own_server.url)
    operator = Operator(tmp_path, own_server)
    ids = every_state(q)
    q.add(*(more := [ulid() for _ in range(20)]))
    ids |= {f"more {n}": one for n, one in enumerate(more)}
    running = q.take("w3", 4)
    BREAKAGES[broken](q)
    held = {name: q.state(one) for name, one in ids.items()}

    operator.follow("Taking a copy")
    newer = go_on(q, ids, running)
    out = operator.follow("Putting it back", start=True)

    assert ("--fix would" in out) == (broken != "as it was")
    assert operator.services() == [
        "stop taskq-worker@* taskq-api taskq-janitor",
        "start valkey",
        "start taskq-api taskq-janitor taskq-worker@mail",
    ]
    q = at_server_time(own_server.url)
    assert {name: q.state(one) for name, one in ids.items()} == held
    assert q.beat("newer", holds=2).status == "LOST"
    assert q.finish(*newer, worker="newer") == ["STALE"] * len(newer)
    drain(q, "w1", "w2", "w3")
    ends = {name: q.state(one) for name, one in ids.items()}
    assert (ends.pop("dead"), ends.pop("stopping")) == (State.FAILED, State.CANCELLED)
    assert set(ends.values()) == {State.SUCCEEDED}
    assert q.findings() == []


# --- the command --------------------------------------------------------------------------------


def test_the_command_says_mends_and_drops(redis_url: str, q: Bench) -> None:
    def doctor(*options: str, code: int = 0) -> Any:
        arguments = ["doctor", "--queue", "q", "--json", "--redis-url", redis_url, *options]
        done = CliRunner().invoke(cli_main, arguments)
        assert done.exit_code == code, done.output
        report = json.loads(done.stdout)
        findings = [f for f in report["findings"] if f["queue"] and f["severity"] != "info"]
        return report, {f["message"]: (f["fixed"], bool(f["fix"])) for f in findings}

    q.add(one := ulid())
    q.redis.zadd(q.key("scheduled"), {one: 9e12})
    q.redis.zadd(q.key("failed"), {"no id": 1})
    dump = q.dump(leave_out=())
    report, told = doctor(code=1)
    assert set(told.values()) == {(False, True)}
    assert (report["errors"], report["fixed"], report["fixable"]) == (2, 0, 2)
    assert q.dump(leave_out=()) == dump, "without --fix nothing is written"

    report, mended = doctor("--fix")
    assert set(told) < set(mended)
    assert {mended[message] for message in told} == {(True, True)}
    assert (report["errors"], report["fixed"], report["warnings"] >= 1) == (0, 2, True)

    report, left = doctor("--fix")
    assert (report["fixed"], len(left)) == (0, 1)
    report, left = doctor("--drop-quarantine")
    assert (report["dropped"], left) == (["no id"], {})

    shown = CliRunner().invoke(cli_main, ["doctor", "--redis-url", redis_url]).stdout
    assert "--fix would" not in shown
    q.redis.zadd(q.key("scheduled"), {one: 9e12})
    shown = CliRunner().invoke(cli_main, ["doctor", "--redis-url", redis_url]).stdout
    assert "-> --fix would put it where its state says" in shown
    assert "can be put right: taskq doctor --fix" in shown
    shown = CliRunner().invoke(cli_main, ["doctor", "--fix", "--redis-url", redis_url]).stdout
    assert f"fixed    queue q: q:{one}: state is queued" in shown
    assert "-> taken out of scheduled" in shown
