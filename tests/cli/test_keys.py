"""``taskq keys`` and ``taskq audit``."""

import json
import re
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from support.queue import Bench
from taskq.cli import main
from taskq.ids import UlidFactory

ulid = UlidFactory()


class Cli:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(args), env={"TASKQ_REDIS_URL": self.url})
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json").stdout)


@pytest.fixture
def cli(redis_url: str) -> Cli:
    return Cli(redis_url)


def test_create_prints_the_key_alone(cli: Cli) -> None:
    made = cli("keys", "create", "--name", "ci", "--scope", "submit,read", "--expires", "30d")
    assert re.fullmatch(r"tq_[0-9a-f]{12}_[0-9a-f]{48}\n", made.stdout)
    assert "not shown again" in made.stderr
    (key,) = cli.json("keys", "list")["keys"]
    assert key["name"] == "ci"
    assert key["scopes"] == ["read", "submit"]
    assert key["expires_at"] > key["created_at"]
    shown = cli("keys", "list").stdout
    assert made.stdout.split("_")[2].strip() not in shown
    assert "in 30d" in shown


def test_all_that_a_key_is_bound_to(cli: Cli) -> None:
    made = cli.json(
        "keys", "create", "--name", "a", "--scope", "submit", "--queue", "mail", "--queue", "b",
        "--job-type", "send", "--rate", "100/s",
    )  # fmt: skip
    assert made["token"].startswith(f"tq_{made['id']}_")
    (key,) = cli.json("keys", "list")["keys"]
    assert (key["queues"], key["job_types"], key["rate"]) == (["b", "mail"], ["send"], "100/s")
    assert "b,mail" in cli("keys", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "a", "--scope", "all"), "there are submit, read"),
        (("--name", "a", "--scope", ","), "at least one scope"),
        (("--name", "", "--scope", "read"), "name"),
        (("--name", "a\nb", "--scope", "read"), "name"),
        (("--name", "a", "--scope", "read", "--queue", "a:b"), "queue"),
        (("--name", "a", "--scope", "read", "--job-type", "a b"), "job_type"),
        (("--name", "a", "--scope", "admin", "--queue", "q"), "admin"),
        (("--name", "a", "--scope", "read", "--rate", "100"), "100/s"),
        (("--name", "a", "--scope", "read", "--rate", "0/s"), "100/s"),
        (("--name", "a", "--scope", "read", "--expires", "soon"), "30d"),
        (("--name", "a", "--scope", "read", "--expires", "0"), "30d"),
        (("--name", "a", "--scope", "read", "--expires", "9999d"), "30d"),
    ],
)
def test_wrong_wishes_make_nothing(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    assert words in cli("keys", "create", *arguments, code=2).stderr
    with redis.Redis.from_url(cli.url) as client:
        assert not client.exists("taskq:keys", "taskq:audit")


def test_revoke(cli: Cli) -> None:
    made = cli.json("keys", "create", "--name", "ci", "--scope", "read")
    assert "revoked" in cli("keys", "revoke", made["id"]).stdout
    assert cli.json("keys", "list") == {"keys": []}
    assert "no API key" in cli("keys", "revoke", made["id"], code=1).stderr
    assert "no API key" in cli("keys", "revoke", "../x", code=1).stderr


def test_lists_say_what_to_do_when_there_is_nothing(cli: Cli) -> None:
    assert "taskq keys create" in cli("keys", "list").stdout
    assert cli("audit").stdout == "nothing was done yet\n"


def test_a_thousand_keys_are_enough(cli: Cli) -> None:
    with redis.Redis.from_url(cli.url) as client:
        client.hset("taskq:keys", mapping={str(i): "{}" for i in range(1000)})
    assert "revoke" in cli("keys", "create", "--name", "a", "--scope", "read", code=2).stderr


def test_the_trail_of_the_command_line(cli: Cli) -> None:
    q = Bench.at(cli.url, "default")
    q.now = None  # type: ignore[assignment]
    q.store.know_queue("default")
    one, two = ulid(), ulid()
    q.add(one)
    q.fail(*q.take(), max_attempts=1)
    cli("jobs", "retry", f"default:{one}")
    cli("jobs", "cancel", f"default:{one}")
    cli("jobs", "cancel", f"default:{two}", code=1)
    cli("queues", "pause", "default")
    cli("queues", "set", "default", "aging_ms=5")
    cli("queues", "purge", "default", "--yes")
    cli("dead", "retry", "--queue", "default")
    cli("dead", "purge", "--queue", "default", "--yes")
    cli("doctor", "--fix", "--drop-quarantine", "--rebuild-registry")
    key = cli.json("keys", "create", "--name", "ci", "--scope", "read")
    cli("keys", "revoke", key["id"])
    for reading in (("jobs", "list"), ("queues", "list"), ("workers",), ("doctor",), ("stats",)):
        cli(*reading)
    entries = cli.json("audit")["entries"][::-1]
    assert [(e["what"], e["target"], e["outcome"]) for e in entries] == [
        ("job.retry", f"default:{one}", "ok"),
        ("job.cancel", f"default:{one}", "ok"),
        ("job.cancel", f"default:{two}", "job_not_found"),
        ("queue.change", "default", "ok"),
        ("queue.change", "default", "ok"),
        ("queue.purge", "default", "ok"),
        ("queue.retry-failed", "default", "ok"),
        ("queue.purge-failed", "default", "ok"),
        ("doctor.rebuild-registry", "*", "ok"),
        ("quarantine.drop", "*", "ok"),
        ("doctor.fix", "*", "ok"),
        ("key.create", key["id"], "ok"),
        ("key.revoke", key["id"], "ok"),
    ]
    assert entries[3]["parameters"] == {"paused": True}
    assert all(re.fullmatch(r"cli:\S+@\S+", e["who"]) for e in entries)
    page = cli.json("audit", "--limit", "2")
    assert [e["what"] for e in page["entries"]] == ["key.revoke", "key.create"]
    more = cli("audit", "--limit", "2", "--cursor", page["next_cursor"]).stdout
    assert "doctor.fix" in more
    assert "key.create" not in more
