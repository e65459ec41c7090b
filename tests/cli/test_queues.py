"""Queues and workers on the command line, and why a job waits."""

import re

from support.cli import Cli, ulid
from support.queue import Bench
from taskq.keys import Keys

# --- queues -----------------------------------------------------------------------------------------


WORKER = {
    "host": "host",
    "pid": "7",
    "state": "running",
    "queues": "default",
    "types": "sms",
    "slots": "10",
    "busy": "3",
}


def test_queues_are_listed_and_shown(cli: Cli, q: Bench) -> None:
    q.add(ulid(), ulid())
    q.redis.hset("taskq:worker:w1", mapping=WORKER)
    q.redis.zadd("taskq:workers", {"w1": 1})
    head, row = (line.split() for line in cli("queues", "list").stdout.splitlines())
    assert row[:2] == ["default", "2"]
    assert head[-3:] == ["SINCE", "WORKERS", "PAUSED"]
    assert re.fullmatch(r"\d+s", row[-3])
    assert row[-2:] == ["1", "-"]
    (listed,) = cli.json("queues", "list")["queues"]
    assert (listed["workers"], listed["holders"]) == (1, 0)
    assert listed["head_since"] == listed["types"][0]["head_since"]
    assert 0 <= listed["head_age"] < 60
    workers = cli("workers").stdout.splitlines()[1].split()
    assert workers[:3] == ["host:7", "running", "3/10"]
    lease = {**WORKER, "host": "", "pid": "0", "kind": "http", "label": "gpu-1"}
    q.redis.hset("taskq:worker:gpu-1:http:0a1b", mapping=lease)
    q.redis.zadd("taskq:workers", {"gpu-1:http:0a1b": 2})
    assert cli("workers").stdout.splitlines()[2].split()[0] == "gpu-1:http"
    shown = cli("queues", "show", "default").stdout
    assert "no live worker runs it" in shown
    document = cli.json("queues", "show", "default")
    assert document["types"][0]["served"] is False
    assert document["counts"]["queued"] == 2
    assert "no queue 'other'" in cli("queues", "show", "other", code=1).stderr


def test_queues_are_paused_and_resumed(cli: Cli, q: Bench) -> None:
    cli("queues", "pause", "default", "--type", "mail")
    cli("queues", "pause", "default", "--type", "sms")
    cli("queues", "pause", "default")
    document = cli.json("queues", "show", "default")
    assert (document["paused"], document["paused_types"]) == (True, ["mail", "sms"])
    assert "still paused: mail, sms" in cli("queues", "resume", "default").stdout
    assert "still paused: sms" in cli("queues", "resume", "default", "--type", "mail").stdout
    document = cli.json("queues", "show", "default")
    assert (document["paused"], document["paused_types"]) == (False, ["sms"])
    refused = cli("queues", "pause", "other", code=1).stderr
    assert "(taskq queues set other paused=true --create makes it)" in refused


def test_a_purge_must_be_confirmed_by_name(cli: Cli, q: Bench) -> None:
    q.add(*(ulid() for _ in range(600)))
    q.add(ulid(), delay_ms=60_000)
    refused = cli("queues", "purge", "default", stdin="y\n", code=1)
    assert "601 waiting jobs" in refused.stderr
    assert "nothing was changed" in refused.stderr
    shown = cli("queues", "purge", "default", "--state", "queued", stdin="default\n").stdout
    assert "600 jobs cancelled" in shown
    assert "1 job cancelled" in cli("queues", "purge", "default", "--yes").stdout


def test_queues_are_set(cli: Cli, q: Bench) -> None:
    shown = cli("queues", "set", "default", "max_depth=5", "paused_types=b,a", "paused=true").stdout
    assert shown == "max_depth = 5\npaused_types = a b\npaused = 1\n"
    assert cli("queues", "set", "default", "max_depth=").stdout == "max_depth = (default)\n"
    assert cli.json("queues", "show", "default")["settings"] == {}
    refused = cli("queues", "set", "new", "max_depth=5", code=1).stderr
    assert "no queue 'new'" in refused
    assert "--create makes it" in refused
    assert cli.json("queues", "list")["queues"][0]["name"] == "default"
    cli("queues", "set", "new", "max_depth=5", "--create")
    assert cli.json("queues", "show", "new")["settings"] == {"max_depth": 5}


# --- status -----------------------------------------------------------------------------------------


def test_stats_tell_counts_and_latencies(cli: Cli, q: Bench) -> None:
    q.add(ulid(), ulid())
    q.finish(*q.take(most=2))
    shown = cli("stats", "--queue", "default").stdout
    assert "2 submitted" in shown
    assert "mail" in shown
    (document,) = cli.json("stats")["queues"]
    assert document["counts"]["succeeded"] == 2
    assert document["types"][0]["run_ms"]["count"] == 2
    assert "no queue" in cli("stats", "--queue", "other", code=1).stderr


def test_the_doctor_exits_by_what_it_finds(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    document = cli.json("doctor")
    assert document["errors"] == 0
    assert all(finding["severity"] != "error" for finding in document["findings"])
    q.redis.zadd(q.key("scheduled"), {one: 1})
    document = cli.json("doctor", "--queue", "default", code=1)
    assert document["errors"] == 1
    shown = cli("doctor", code=1).stdout
    assert f"error    queue default: default:{one}: state is queued" in shown
    assert "no queue" in cli("doctor", "--queue", "other", code=1).stderr


def test_the_doctor_tells_what_waits_for_people(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    (alone,) = cli.json("doctor", "--queue", "default")["findings"][-1:]
    assert (alone["severity"], alone["subject"]) == ("info", "ready:mail")
    q.redis.zincrby(q.keys.ready("mail"), -400_000, one)
    q.redis.hincrby(q.keys.job(one), "eligible_at", -400_000)
    cli("queues", "pause", "default")
    cli("queues", "pause", "default", "--type", "mail")
    shown = cli("doctor", "--queue", "default").stdout
    assert "warning  queue default: ready:mail: 1 job waits, and no live worker" in shown
    assert "-> start a worker whose application has it: taskq worker -A MODULE:APP" in shown
    assert "info     queue default: queue: is paused, and 1 job waits" in shown
    assert "-> taskq queues resume default --type mail" in shown


def test_the_doctor_rebuilds_the_registry(cli: Cli, q: Bench) -> None:
    q.add(ulid())
    q.redis.srem(Keys().queues, "default")
    assert "no janitor looks after it" in cli("doctor", code=1).stdout
    assert "registry: entered default" in cli("doctor", "--rebuild-registry").stdout


def test_another_namespace_is_another_installation(cli: Cli, q: Bench) -> None:
    q.add(ulid())
    assert "no queues yet" in cli("queues", "list", "--namespace", "other").stdout


# --- why, and workers that are told something -------------------------------------------------------


def test_why_says_what_keeps_a_job(cli: Cli, q: Bench) -> None:
    job, other = ulid(), ulid()
    q.add(job, other)
    shown = cli("why", f"default:{other}").stdout
    assert "no live worker runs this type" in shown
    assert "place 2 in line, 0 of those before it" in shown
    assert "unknown while this holds: no_worker" in shown
    assert cli.json("why", f"default:{job}")["reason"] == "no_worker"
    q.take()
    assert "runs it" in cli("why", f"default:{job}").stdout
    assert "no job" in cli("why", f"default:{ulid()}", code=1).stderr


def test_workers_are_told_by_id_or_place(cli: Cli, q: Bench) -> None:
    q.redis.hset("taskq:worker:w1", mapping={"host": "h", "pid": "7", "queues": "default"})
    q.redis.zadd("taskq:workers", {"w1": 1})
    assert "asked to be quiet" in cli("workers", "quiet", "h:7").stdout
    assert q.redis.hget("taskq:worker:w1", "wish") == b"quiet"
    assert cli.json("workers", "stop", "w1")["workers"][0]["id"] == "w1"
    assert q.redis.hget("taskq:worker:w1", "wish") == b"stop"
    assert "no live worker" in cli("workers", "stop", "nobody", code=1).stderr
    assert "w1" in str(cli.json("workers"))
