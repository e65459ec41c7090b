"""``taskq top``: what its page says, how it ends, and that an outage does not end it."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.cli import interruptible
from support.queue import Bench
from support.workers import until
from taskq.cli import main
from taskq.cli.top import QUEUES_SHOWN
from taskq.embedded import EmbeddedServer
from taskq.ids import UlidFactory

ulid = UlidFactory()
COMMAND = [sys.executable, "-c", "from taskq.cli import main; main(prog_name='taskq')", "top"]


def top(url: str, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["top", *arguments], env={"TASKQ_REDIS_URL": url})
    assert done.exit_code == code, done.output
    return done.output


def queue(url: str, name: str) -> Bench:
    bench = Bench.at(url, name)
    bench.now = None  # type: ignore[assignment]
    bench.store.know_queue(name)
    return bench


def test_the_page_tells_what_is_going_on(redis_url: str) -> None:
    assert "no queues yet" in top(redis_url, "--rounds", "1")
    mail = queue(redis_url, "mail")
    mail.add(*(ulid() for _ in range(5)))
    one, two = mail.take(most=2)
    mail.finish(one)
    mail.fail(two)
    mail.take()
    queue(redis_url, "quiet")
    page = top(redis_url, "--rounds", "1").splitlines()
    assert page[0] == "2 queues, 0 workers, 0/0 slots busy"
    columns, row = page[1].split()[:6], page[2].split()
    assert columns == ["QUEUE", "WAITING", "RUNNING", "RETRYING", "LATER", "FAILED"]
    assert row[:6] == ["mail", "2", "1", "1", "0", "0"]
    assert page[3].split()[0] == "quiet"
    assert "queue mail: no live worker runs mail" in page[-2:]


def test_it_shows_the_busiest_queues_and_how_many_more_there_are(redis_url: str) -> None:
    for i in range(QUEUES_SHOWN + 5):
        queue(redis_url, f"q{i:02d}")
    queue(redis_url, "zz").add(ulid())
    page = top(redis_url, "--rounds", "1").splitlines()
    assert page[2].split()[0] == "zz"
    assert "and 6 more queues" in page
    assert top(redis_url, "--rounds", "1", "--queue", "zz").startswith("1 queue,")
    assert "no queue" in top(redis_url, "--rounds", "1", "--queue", "nowhere", code=1).lower()


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    assert "not reachable" in top("redis://127.0.0.1:1/0", code=1)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_on_a_terminal_it_goes_on_over_an_outage_and_gives_the_screen_back(tmp_path: Path) -> None:
    with EmbeddedServer(data_dir=tmp_path / "data") as server:
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        process = interruptible(
            [*COMMAND, "--interval", "0.5"],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**os.environ, "TASKQ_REDIS_URL": server.url, "COLUMNS": "200", "LINES": "40"},
        )
        os.close(theirs)
        seen = b""

        def says(text: bytes) -> bool:
            nonlocal seen
            try:
                seen += os.read(ours, 65_536)
            except OSError:
                time.sleep(0.01)
            return text in seen

        try:
            until(lambda: says(b"no queues yet"), 15, "a page")
            server.stop()
            until(lambda: says(b"not reachable"), 15, "the outage")
            server.start()
            seen = b""
            until(lambda: says(b"no queues yet"), 15, "a page again")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
            until(lambda: says(b"\x1b[?1049l"), 5, "the screen is given back")
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
            os.close(ours)
