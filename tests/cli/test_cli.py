"""The command line against a real server: what it prints, and what it exits with."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, version
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from support.queue import Bench
from taskq import calls
from taskq.cli import group, main
from taskq.cli.show import of_handler
from taskq.cli.tables import age, dump, plain, table
from taskq.ids import UlidFactory
from taskq.keys import Keys

ulid = UlidFactory()
COMMAND = [sys.executable, "-c", "from taskq.cli import main; main(prog_name='taskq')"]
NOWHERE = "redis://app:s3cret@127.0.0.1:1/0"


class Cli:
    """Runs commands against one server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *args: str, stdin: str | None = None, code: int = 0) -> Result:
        env = {"TASKQ_REDIS_URL": self.url}
        result = CliRunner().invoke(main, list(args), input=stdin, env=env)
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.stderr
        return result

    def json(self, *args: str, code: int = 0) -> Any:
        return json.loads(self(*args, "--json", code=code).stdout)


@pytest.fixture
def cli(redis_url: str) -> Cli:
    return Cli(redis_url)


@pytest.fixture
def q(redis_url: str) -> Bench:
    made = Bench.at(redis_url, "default")
    made.now = None  # type: ignore[assignment]
    made.store.know_queue("default")
    return made


@pytest.fixture
def answering(q: Bench) -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Gives the next job of type mail to a function, in a thread that waits for it."""
    threads = []

    def start(answer: Callable[..., Any]) -> None:
        def work() -> None:
            q.redis.blpop([q.keys.wake("mail")], timeout=10)
            answer(*q.take())

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def failed(q: Bench, n: int = 1, job_type: str = "mail") -> list[str]:
    ids = [ulid() for _ in range(n)]
    q.add(*ids, job_type=job_type)
    q.fail(*q.take("w1", n, job_type), max_attempts=1)
    return [f"default:{i}" for i in ids]


# --- the group --------------------------------------------------------------------------------------


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"taskq {version('taskq')}\n"
    shown = cli("--help").stdout
    for command in ("submit", "jobs", "queues", "workers", "stats", "doctor", "dead", "worker"):
        assert f"\n  {command} " in shown


def test_help_imports_no_other_package() -> None:
    code = "import sys; from taskq.cli import main; main(['--help'], standalone_mode=False); " + (
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('taskq_api', 'taskq_worker', 'fastapi', 'uvicorn', 'httpx')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("api", "no_such_framework.cli:api", group.ENTRY_POINTS)
    monkeypatch.setattr(group, "_found", lambda: {"api": entry})
    shown = cli("api", code=1).stderr
    assert "taskq api needs the extra: pip install 'taskq[api]'" in shown
    assert "Serve the REST API" in cli("--help").stdout


def test_a_broken_part_of_our_own_is_no_missing_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("api", "taskq.no_such_module:api", group.ENTRY_POINTS)
    monkeypatch.setattr(group, "_found", lambda: {"api": entry})
    assert "cannot be loaded" in cli("api", code=1).stderr


def test_commands_of_other_packages_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("extra", f"{__name__}:extra", group.ENTRY_POINTS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(EntryPoint, "load", lambda self: extra)
    monkeypatch.setattr(group, "_found", lambda: {"extra": entry})
    assert cli("extra").stdout == "done\n"


@click.command()
def extra() -> None:
    click.echo("done")


def test_wrong_use_exits_2(cli: Cli) -> None:
    for args in (
        ["nonsense"],
        ["submit"],
        ["submit", "mail", "{not json"],
        ["submit", "mail", "{}", "--priority", "1000"],
        ["submit", "mail", "{}", "--delay", "nan"],
        ["submit", "mail", "{}", "--delay", "1", "--run-at", "2030-01-01T00:00:00Z"],
        ["submit", "mail", "{}", "--run-at", "2030-01-01T00:00:00"],
        ["submit", "mail", "{}", "--run-at", "tomorrow"],
        ["submit", "two words", "{}"],
        ["submit", "mail", "--redis-url", "http://x"],
        ["jobs", "show", "no id"],
        ["jobs", "list", "--state", "odd"],
        ["jobs", "list", "--limit", "0"],
        ["jobs", "list", "--cursor", "odd"],
        ["jobs", "cancel"],
        ["dead", "retry"],
        ["queues", "set", "default"],
        ["queues", "set", "default", "depth"],
        ["queues", "set", "default", "no_such=1"],
        ["queues", "set", "default", "max_depth=many"],
        ["queues", "purge", "default", "--state", "running"],
        ["stats", "--minutes", "0"],
    ):
        result = cli(*args, code=2)
        assert "rror: " in result.stderr
        assert result.stdout == ""


def test_a_server_that_is_not_there_is_one_line_without_its_password() -> None:
    shown = Cli(NOWHERE)("queues", "list", code=1).stderr
    assert shown.count("\n") == 1
    assert shown.startswith("error: Redis is not reachable")
    assert "redis://app:***@127.0.0.1:1/0" in shown
    assert "--redis-url" in shown
    assert "s3cret" not in shown


def test_a_bug_is_one_line_unless_debugging(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oh\x1b[31m")

    monkeypatch.setattr("taskq.cli.status.run", broken)
    shown = cli("stats", code=1).stderr
    assert "RuntimeError: oh\\x1b[31m" in shown
    result = CliRunner().invoke(main, ["stats"], env={"TASKQ_DEBUG": "1"})
    assert isinstance(result.exception, RuntimeError)


def test_a_wrong_flag_is_blamed_itself(cli: Cli) -> None:
    shown = cli("queues", "list", "--redis-url", "http://x", code=2).stderr
    assert shown.startswith("error: --redis-url (TASKQ_REDIS_URL): unknown kind of URL")
    for command in ("api", "worker"):
        shown = cli(command, "--redis-url=http://x", code=2).stderr
        assert shown.startswith("error: --redis-url (TASKQ_REDIS_URL): unknown kind of URL")
    shown = cli("api", "--port", "-1", code=2).stderr
    assert shown.startswith("error: --port (TASKQ_API_PORT): ")
    assert Cli("http://x")("queues", "list", code=2).stderr.startswith("error: TASKQ_REDIS_URL: ")


def test_an_interrupt_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("taskq.cli.status.run", interrupted)
    assert cli("stats", code=130).output == ""


# --- submit -----------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_stores_the_job(cli: Cli) -> None:
    payload = '{"message": "hi", "n": 12345678901234567890}'
    job_id = cli("submit", "mail", payload, "--priority", "7", "--timeout", "1.5").stdout.strip()
    shown = cli.json("jobs", "show", job_id)
    assert shown["id"] == job_id
    assert (shown["job_type"], shown["queue"], shown["state"]) == ("mail", "default", "queued")
    assert shown["payload"] == {"message": "hi", "n": 12345678901234567890}
    assert (shown["priority"], shown["timeout"]) == (7, 1.5)


def test_submit_options_arrive(cli: Cli) -> None:
    later = cli.json("submit", "mail", "[]", "--queue", "bulk", "--run-at", "2030-01-01T00:00:00Z")
    assert (later["state"], later["queue"], later["created"]) == ("scheduled", "bulk", True)
    shown = cli.json("jobs", "show", later["id"])
    assert (shown["eligible_at"], shown["payload"]) == ("2030-01-01T00:00:00.000Z", [])
    first = cli.json("submit", "mail", "--idempotency-key", "a", "--max-attempts", "2")
    again = cli.json("submit", "mail", "--idempotency-key", "a", "--max-attempts", "2")
    assert (first["id"], first["created"], again["created"]) == (again["id"], True, False)
    assert "another body" in cli("submit", "sms", "--idempotency-key", "a", code=1).stderr
    cli("submit", "mail", "--unique-key", "k")
    assert "unique key 'k' is held" in cli("submit", "mail", "--unique-key", "k", code=1).stderr
    assert cli.json("submit", "mail", "--delay", "60")["state"] == "scheduled"


def test_submit_reads_the_payload_from_stdin(cli: Cli) -> None:
    job_id = cli("submit", "mail", "-", stdin='{"a":"ä"}').stdout.strip()
    assert cli.json("jobs", "show", job_id)["payload"] == {"a": "ä"}
    assert "limit" in cli("submit", "mail", "-", stdin='"' + "x" * 2_000_000, code=2).stderr


def test_submit_waits_for_the_result(cli: Cli, q: Bench, answering: Any) -> None:
    answering(lambda job: q.finish(job, result='{"to":"ä\x9b"}'.encode()))
    result = cli("submit", "mail", "--wait")
    assert json.loads(result.stdout) == {"to": "ä\x9b"}
    assert "\x9b" not in result.stdout
    assert "no live worker runs mail" in result.stderr


def test_a_job_that_failed_exits_1(cli: Cli, q: Bench, answering: Any) -> None:
    answering(lambda job: q.fail(job, max_attempts=1))
    result = cli("submit", "mail", "--wait", code=1)
    assert (result.stdout, "failed: E" in result.stderr) == ("", True)
    answering(lambda job: q.fail(job, max_attempts=1))
    assert cli.json("submit", "mail", "--wait", code=1)["state"] == "failed"


def test_waiting_has_an_end(cli: Cli) -> None:
    """And tells then why nothing has happened."""
    shown = cli("submit", "mail", "--wait", "--wait-timeout", "0.01", code=1).stderr
    assert "it goes on; no live worker runs this type: start a worker" in shown
    cli("queues", "pause", "default")
    shown = cli("submit", "mail", "--wait", "--wait-timeout", "0.01", code=1).stderr
    assert "it goes on; queue default is paused: taskq queues resume default" in shown


# --- jobs -------------------------------------------------------------------------------------------


def test_an_empty_installation_says_what_to_do(cli: Cli) -> None:
    hint = """submit the first job with: taskq submit print '{"message":"hi"}'"""
    assert cli("queues", "list").stdout == f"no queues yet; {hint}\n"
    assert cli("jobs", "list").stdout == f"no jobs yet; {hint}\n"
    assert "no queues yet" in cli("stats").stdout
    assert "start one with: taskq worker" in cli("workers").stdout
    assert "no dead letters" in cli("dead", "list").stdout
    assert cli.json("queues", "list") == {"queues": []}
    assert cli.json("jobs", "list") == {"jobs": [], "looked_at": 0, "next_cursor": None}
    assert cli.json("workers") == {"workers": []}
    assert cli.json("stats") == {"queues": []}


def test_jobs_are_listed_page_by_page(cli: Cli, q: Bench) -> None:
    ids = [ulid() for _ in range(5)]
    q.add(*ids)
    q.add(ulid(), job_type="sms")
    first = cli("jobs", "list", "--limit", "3", "--type", "mail")
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == [
        f"default:{i}" for i in ids[:3]
    ]
    cursor = first.stderr.split("--cursor ")[1].strip()
    rest = cli.json("jobs", "list", "--type", "mail", "--cursor", cursor)
    assert [job["id"] for job in rest["jobs"]] == [f"default:{i}" for i in ids[3:]]
    assert "payload" not in rest["jobs"][0]
    assert rest["next_cursor"] is None


def test_jobs_can_be_narrowed_to_nothing(cli: Cli, q: Bench) -> None:
    q.add(ulid())
    assert cli("jobs", "list", "--state", "failed").stdout == "no such jobs\n"
    assert "no queue 'other'" in cli("jobs", "list", "--queue", "other", code=1).stderr


def test_a_job_is_shown_with_its_timeline(cli: Cli, q: Bench) -> None:
    (job_id,) = failed(q)
    shown = cli("jobs", "show", job_id).stdout
    rows = [line.split("  ")[2:] for line in shown.split("timeline\n")[1].splitlines()]
    assert rows == [["created"], ["started #1", "by w1"], ["failed #1", "E", "by w1"]]
    assert re.search(r"^error +E$", shown, re.MULTILINE)
    assert re.search(r"^attempts +1 \(1 failure, 0 crashes, 0 lost\)$", shown, re.MULTILINE)
    for name in ("created", "started", "finished"):
        found = re.search(
            rf"^{name} +\d{{4}}-\d\d-\d\d [\d:.]{{12}} UTC \(\d+s ago\)$", shown, re.MULTILINE
        )
        assert found, shown
    assert "no job" in cli("jobs", "show", f"default:{ulid()}", code=1).stderr


TRACEBACK = """Traceback (most recent call last):
  File "/x/taskq_worker/executors/threads.py", line 9, in run
    return await loop.run_in_executor(pool, call)
           ^^^^^^^^
  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 58, in run
    result = self.fn()
  File "/app/jobs.py", line 3, in boom
    raise ValueError("boom 2\\nmore")
ValueError: boom 2
more
"""


def test_an_error_is_shown_as_python_shows_it_but_once(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    for _ in range(2):
        (run,) = q.take("host:7:ab")
        error = {"type": "ValueError", "message": "boom 2\nmore", "traceback": TRACEBACK}
        failure = calls.Failure(run.ulid, run.fence, json.dumps(error).encode(), 0, 2)
        q.run(calls.progress(q.keys, "host:7:ab", [(run.ulid, run.fence, PROGRESS)]))
        q.run(calls.fail(q.keys, "host:7:ab", [failure]))
        q.promote()
    shown = cli("jobs", "show", f"default:{one}").stdout
    at = shown.index("error")
    assert shown[at : shown.index("timeline")] == (
        """error       ValueError: boom 2
            more
            Traceback (most recent call last):
              File "/app/jobs.py", line 3, in boom
                raise ValueError("boom 2\\nmore")
"""
    )
    told = shown.split("timeline\n")[1]
    assert "Traceback" not in told
    assert re.search(
        r"^  [\d:.]{12}  failed #2  ValueError: boom 2\\nmore  by host:7$", told, re.MULTILINE
    )
    assert re.search(r"^worker +host:7$", shown, re.MULTILINE)
    assert re.search(r"^progress +50 %  half way$", shown, re.MULTILINE)
    document = cli.json("jobs", "show", f"default:{one}")
    assert "Traceback" in document["error"]["traceback"]
    assert "Traceback" not in json.dumps(document["history"])
    assert cli("jobs", "list").stdout.splitlines()[1].endswith("  host:7")


PROGRESS = b'{"fraction":0.5,"message":"half way","at":1750000000000}'


def test_a_traceback_keeps_what_is_not_ours() -> None:
    ours = TRACEBACK.split('  File "/app')[0] + "ValueError: x"
    assert of_handler(ours, keep=True) == ours.splitlines()
    assert of_handler(ours, keep=False) == []
    unfit = '  File "/x/taskq/tasks.py", line 1, in load\n    raise InvalidInput(text)\n'
    assert of_handler(TRACEBACK.split('  File "/app')[0] + unfit, keep=False) == []
    chained = f"{TRACEBACK}\nDuring handling of the above exception, another:\n\n{TRACEBACK}"
    shown = of_handler(chained, keep=True)
    assert len([line for line in shown if "/app/jobs.py" in line]) == 2
    assert "taskq_worker" not in "".join(shown)
    assert "During handling of the above exception, another:" in shown


def test_a_job_that_was_stopped_did_not_fail(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    (run,) = q.take()
    cli("jobs", "cancel", f"default:{one}")
    error = b'{"type":"Cancelled","message":"stopped because it was cancelled"}'
    q.run(calls.fail(q.keys, "w1", [calls.Failure(run.ulid, run.fence, error, 0, 0)]))
    shown = cli("jobs", "show", f"default:{one}").stdout
    rows = [line.split("  ")[2] for line in shown.split("timeline\n")[1].splitlines()]
    assert rows == ["created", "started #1", "cancel asked", "cancelled"]
    assert "reason" not in shown
    assert "error" not in shown
    assert "(0 failures, " in shown


def test_a_waiting_job_tells_why(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    assert "no live worker runs this type" in cli("jobs", "show", f"default:{one}").stdout
    cli("queues", "pause", "default", "--type", "mail")
    assert "the type is paused" in cli("jobs", "show", f"default:{one}").stdout
    cli("queues", "pause", "default")
    assert "queue default is paused" in cli("jobs", "show", f"default:{one}").stdout


def test_a_waiting_job_tells_what_waiting_has_earned_it(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one, priority=3)
    cli("queues", "set", "default", "aging_ms=1000")
    q.redis.hincrby(q.keys.job(one), "created_at", -4000)
    shown = cli("jobs", "show", f"default:{one}").stdout
    found = re.search(r"^priority +3 \(by waiting (\d+\.\d) now\)$", shown, re.MULTILINE)
    assert found, shown
    assert 7.0 <= float(found[1]) < 30
    q.finish(*q.take())
    assert re.search(r"^priority +3$", cli("jobs", "show", f"default:{one}").stdout, re.MULTILINE)


def test_a_job_is_shown_with_its_log(cli: Cli, q: Bench) -> None:
    one = ulid()
    q.add(one)
    (run,) = q.take()
    lines = [b'{"at":1750000000000,"line":"resizing\\u001b[2J"}', b"[1]"]
    for number, line in enumerate(lines, 1):
        q.run(calls.log(q.keys, "w1", [(run.ulid, run.fence, number, line)]))
    shown = cli("jobs", "show", f"default:{one}").stdout.split("log\n")[1].splitlines()
    assert shown == ["  15:06:40.000  resizing\\x1b[2J", "  -  [1]"]
    document = cli.json("jobs", "show", f"default:{one}")
    assert [line["at"] for line in document["log"]] == ["2025-06-15T15:06:40.000Z", None]
    assert [event["event"] for event in document["history"]] == ["created", "started"]


def test_a_payload_cannot_drive_the_terminal(cli: Cli, q: Bench) -> None:
    one = ulid()
    payload = json.dumps({"a": "\x1b]0;owned\x07", "b": "\u202eevil\x9b31m", "c": "ä\n"})
    q.add(one, payload=payload.encode(), unique="k\u202e")
    for args in (("jobs", "show", f"default:{one}"), ("jobs", "show", f"default:{one}", "--json")):
        shown = cli(*args).stdout
        assert not any(c in shown for c in "\x1b\x07\x9b\u202e")
        assert "ä" in shown
    assert cli.json("jobs", "show", f"default:{one}")["payload"]["b"] == "\u202eevil\x9b31m"


def test_jobs_are_cancelled_one_by_one(cli: Cli, q: Bench) -> None:
    waiting, running = ulid(), ulid()
    q.add(running)
    q.take()
    q.add(waiting)
    result = cli("jobs", "cancel", f"default:{waiting}", f"default:{running}")
    assert result.stdout.splitlines() == [
        f"default:{waiting}  cancelled",
        f"default:{running}  asked to stop",
    ]
    (over,) = failed(q)
    result = cli("jobs", "cancel", f"default:{ulid()}", over, code=1)
    assert "no job" in result.stderr
    assert "has ended already: failed" in result.stderr


def test_jobs_are_retried_one_by_one(cli: Cli, q: Bench) -> None:
    (job_id,) = failed(q)
    assert cli("jobs", "retry", job_id).stdout == f"{job_id}  queued again\n"
    refused = cli("jobs", "retry", job_id, code=1).stderr
    assert f"only a failed job can be retried; {job_id} is queued" in refused
    assert "never existed" in cli("jobs", "retry", f"default:{ulid()}", code=1).stderr


def test_what_became_of_jobs_comes_as_json_too(cli: Cli, q: Bench) -> None:
    (one,) = failed(q)
    assert cli.json("jobs", "retry", one) == {"jobs": [{"id": one, "outcome": "queued again"}]}
    document = cli.json("jobs", "retry", one, code=1)
    assert document["jobs"][0]["code"] == "wrong_state"
    assert cli.json("jobs", "cancel", one)["jobs"][0]["outcome"] == "cancelled"
    failed(q, 2)
    retried = cli.json("dead", "retry", "--queue", "default")
    assert retried == {"queue": "default", "retried": 2, "found": 2}
    assert cli.json("queues", "pause", "default")["paused"] is True
    assert cli.json("queues", "resume", "default")["paused"] is False
    assert cli.json("queues", "set", "default", "max_depth=5")["settings"] == {"max_depth": 5}


@pytest.mark.parametrize(
    "args", [["jobs", "retry"], ["dead", "retry"], ["dead", "retry", "--queue"]]
)
def test_a_late_retry_leaves_a_job_that_failed_again(
    cli: Cli, q: Bench, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """Between the look and the call somebody else has retried it, and it has failed once more."""
    (job_id,) = failed(q)
    retry = calls.retry

    def late(*given: Any) -> Any:
        q.run(retry(q.keys, [(job_id.split(":")[1], "")]))
        q.fail(*q.take(), max_attempts=1)
        return retry(*given)

    monkeypatch.setattr(calls, "retry", late)
    if args[-1] == "--queue":
        result = cli(*args, "default")
        assert result.stdout == "0 of 1 dead letter is queued again\n"
    else:
        assert "has run again" in cli(*args, job_id, code=1).stderr
    assert cli.json("jobs", "show", job_id)["state"] == "failed"


# --- dead letters -----------------------------------------------------------------------------------


def test_dead_letters_are_listed_with_what_they_died_of(cli: Cli, q: Bench) -> None:
    ids = failed(q, 2)
    shown = cli("dead", "list").stdout
    assert all(job_id in shown for job_id in ids)
    assert shown.splitlines()[1].endswith("  E")
    assert cli.json("dead", "list")["jobs"][0]["error"] == {"type": "E"}


def test_all_dead_letters_of_a_queue_are_retried(cli: Cli, q: Bench) -> None:
    failed(q, 250)
    failed(q, 1, "sms")
    shown = cli("dead", "retry", "--queue", "default", "--type", "mail").stdout
    assert shown == "250 of 250 dead letters are queued again\n"
    assert cli.json("queues", "show", "default")["counts"]["failed"] == 1
    (job,) = cli.json("dead", "list")["jobs"]
    cli("dead", "retry", job["id"])


def test_dead_letters_are_purged_only_when_confirmed(cli: Cli, q: Bench) -> None:
    ids = failed(q, 3)
    assert "not confirmed" in cli("dead", "purge", "--queue", "default", code=1).stderr
    cli("dead", "purge", ids[0])
    assert "2 dead letters deleted" in cli("dead", "purge", "--queue", "default", "--yes").stdout
    assert "no dead letters" in cli("dead", "list").stdout
    one = ulid()
    q.add(one)
    assert "is queued, not a dead letter" in cli("dead", "purge", f"default:{one}", code=1).stderr


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


# --- real processes ---------------------------------------------------------------------------------


def process(url: str, *args: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "TASKQ_REDIS_URL": url, **options}
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_exit_codes_of_a_real_process(redis_url: str) -> None:
    done = process(redis_url, "submit", "mail", '{"a":1}')
    assert (done.returncode, done.stderr) == (0, "")
    assert process(redis_url, "jobs", "show", done.stdout.strip()).returncode == 0
    assert process(redis_url, "jobs", "show", f"default:{ulid()}").returncode == 1
    assert process(redis_url, "jobs", "show").returncode == 2
    away = process(NOWHERE, "queues", "list")
    assert (away.returncode, away.stderr.count("\n"), away.stdout) == (1, 1, "")


def test_a_terminal_that_lacks_letters_gets_escapes(redis_url: str) -> None:
    done = process(redis_url, "submit", "mail", '"漢"')
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    shown = process(redis_url, "jobs", "show", done.stdout.strip(), **latin)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert '"\\u6f22"' in shown.stdout


def test_ctrl_c_ends_a_wait_quietly(redis_url: str) -> None:
    env = {**os.environ, "TASKQ_REDIS_URL": redis_url}
    waiting = subprocess.Popen(
        [*COMMAND, "submit", "mail", "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # Ignored where the tests run in the background, and inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("default:")
        assert "no live worker" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, err) == (130, "", "")


# --- text -------------------------------------------------------------------------------------------


def test_tables_are_aligned() -> None:
    rows = [("a", 1, None), ("漢字", 1000, "x\x1b[1m")]
    assert table(("NAME", "N", "NOTE"), rows).splitlines() == [
        "NAME     N  NOTE",
        "a        1  -",
        "漢字  1000  x\\x1b[1m",
    ]


def test_text_for_terminals() -> None:
    assert plain("ä\n\x1b\u202e") == "ä\\n\\x1b\\u202e"
    assert json.loads(dump({"a": "\x9b\u202e"})) == {"a": "\x9b\u202e"}
    assert (age(0, 90_000), age(90_000, 0), age(None, 0)) == ("2m", "in 2m", "-")


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
