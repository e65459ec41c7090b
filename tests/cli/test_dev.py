"""The small parts of ``taskq dev``; tests/docs runs the whole."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import interruptible
from taskq.errors import ConfigError, TaskqError
from taskq_worker import dev


def test_a_stop_is_not_swallowed_by_what_catches_errors() -> None:
    """It is raised wherever the signal meets the main thread."""
    handlers = {number: signal.getsignal(number) for number in dev.SIGNALS}
    try:
        with pytest.raises(dev._Stop), contextlib.suppress(Exception):
            dev._raise_stop(signal.SIGTERM, None)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    made = tmp_path / "a b" / "taskq"
    made.parent.mkdir()
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_the_greeting_names_the_command_as_it_was_started(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for started, shown in (
        (str(script), f"'{script}'"),
        ("-c", "taskq"),
        (str(script.parent), "taskq"),
        ("/no/such/taskq", "taskq"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert dev._command() == shown


def test_the_greeting_is_short_where_the_name_alone_will_do(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert dev._command() == "taskq"


def test_the_directory_is_for_its_owner(tmp_path: Path) -> None:
    new = tmp_path / "deep" / "new"
    dev._make_private(new)
    assert new.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_ours_is_closed_and_another_left_alone(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        folder.mkdir()
        folder.chmod(0o755)
    (ours / "server.lock").touch()
    dev._make_private(ours)
    dev._make_private(other)
    assert [f.stat().st_mode & 0o777 for f in (ours, other)] == [0o700, 0o755]


def test_a_port_that_is_taken_is_told_and_a_second_dev_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            TaskqError, match=r"cannot listen on .* choose another with --port"
        ) as caught:
            dev._check_port("127.0.0.1", port, tmp_path)
        assert not isinstance(caught.value, ConfigError)  # exit code 1, as of `taskq api`
        with (tmp_path / "server.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(TaskqError, match=f"taskq dev runs over {tmp_path} already"):
                dev._check_port("127.0.0.1", port, tmp_path)
    dev._check_port("127.0.0.1", port, tmp_path)


def test_it_comes_up_where_the_api_wants_a_key_and_where_its_settings_say(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {"TASKQ_API_PORT": str(port), "TASKQ_API_KEYS": "sesame"}
    process = interruptible(
        [sys.executable, "-c", "from taskq.cli import main; main()", "dev", "--dir", str(tmp_path)],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C stops it" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    text = "".join(lines)
    assert f"taskq is up.  API http://localhost:{port}" in text
    assert "The API wants a key" in text
    assert '-H "Authorization: Bearer <key>"' in text
