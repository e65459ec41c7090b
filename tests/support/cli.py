"""The command line in the process of a test."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result

from support.queue import Bench
from taskq.cli import main
from taskq.ids import UlidFactory

ulid = UlidFactory()
COMMAND = [sys.executable, "-c", "from taskq.cli import main; main(prog_name='taskq')"]
NOWHERE = "redis://app:s3cret@127.0.0.1:1/0"


def interruptible(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """A process that a Ctrl-C ends; one started in the background inherits that it is ignored."""
    return subprocess.Popen(
        command,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


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


def failed(q: Bench, n: int = 1, job_type: str = "mail") -> list[str]:
    ids = [ulid() for _ in range(n)]
    q.add(*ids, job_type=job_type)
    q.fail(*q.take("w1", n, job_type), max_attempts=1)
    return [f"default:{i}" for i in ids]
