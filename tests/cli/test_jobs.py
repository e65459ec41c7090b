"""Jobs on the command line: submit, look, wait, cancel, retry, dead letters."""

import json
import re
from typing import Any

import pytest

from support.cli import Cli, failed, ulid
from support.queue import Bench
from taskq import calls
from taskq.cli.show import of_handler

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
