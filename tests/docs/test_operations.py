"""The commands of docs/operations.md work as typed, one after the other, on an empty server."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.queue import Bench
from taskq.cli import main
from taskq.ids import UlidFactory

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def commands(of: str) -> list[list[str]]:
    (block,) = (block for block in BLOCKS if of in block)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def run(redis_url: str, command: list[str]) -> str:
    assert command[0] == "taskq"
    done = CliRunner().invoke(main, command[1:], env={"TASKQ_REDIS_URL": redis_url})
    assert done.exit_code == 0, (command, done.output)
    return done.output


def test_settings(redis_url: str) -> None:
    for command in commands("queues set mail"):
        assert run(redis_url, command)


def test_what_to_do_at_3_am(redis_url: str) -> None:
    q = Bench.at(redis_url, "default")
    q.now = None  # type: ignore[assignment]
    q.store.know_queue("default")
    one = UlidFactory()()
    q.add(one)
    q.fail(*q.take(), max_attempts=1)
    q.redis.hset("taskq:worker:w1", mapping={"host": "h", "pid": "7", "queues": "default"})
    q.redis.zadd("taskq:workers", {"w1": 1})
    replaced = {"<id>": f"default:{one}", "<queue>": "default", "<host:pid>": "h:7"}
    shown = commands("taskq dead list")
    for command in shown:
        assert run(redis_url, [replaced.get(word, word) for word in command])
    assert ["taskq", "dead", "list"] in shown


@pytest.mark.parametrize("word", ["SINCE", "WORKERS", "BUSY", "SEEN", "host:pid"])
def test_what_lists_show_is_explained(word: str) -> None:
    assert f"`{word}`" in PAGE
