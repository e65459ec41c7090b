"""How a worker and a janitor begin: in any order with the server, and where little can be written."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.workers import COMMAND, until
from taskq.embedded import EmbeddedServer
from taskq_worker import process


@pytest.mark.parametrize("command", ["worker", "janitor"])
def test_waits_for_a_server_that_comes_later(command: str, tmp_path: Path) -> None:
    folder, log = tmp_path / "server", tmp_path / "log"
    alive = tmp_path / "alive"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = EmbeddedServer(folder, persistent=True, port=port)
    with log.open("wb") as stderr:
        started = subprocess.Popen(
            [sys.executable, "-c", COMMAND, command],
            env={
                **os.environ,
                "TASKQ_REDIS_URL": f"redis://127.0.0.1:{port}/0",
                "TASKQ_START_SECONDS": "60",
                "TASKQ_HEALTH_FILE": str(alive),
            },
            stderr=stderr,
        )
    try:
        until(lambda: "waiting for it" in log.read_text(), 20, "it says that it waits")
        assert not alive.exists()
        with server:
            until(alive.exists, 20, "it lives")
            started.send_signal(signal.SIGTERM)
            assert started.wait(20) == 0, log.read_text()
    finally:
        started.kill()
        started.wait()


def test_without_patience_it_says_so_and_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "worker"],
        env={
            **os.environ,
            "TASKQ_REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "TASKQ_START_SECONDS": "0",
        },
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert "not reachable" in done.stderr


def test_where_there_is_no_tmp_its_sockets_go_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(**where: str) -> str:
        if "dir" not in where:
            raise FileNotFoundError("No usable temporary directory found")
        return real(**where)

    real = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", nowhere)
    made = process._private_folder(str(tmp_path))
    assert Path(made).parent == tmp_path
    with pytest.raises(FileNotFoundError):
        process._private_folder(str(tmp_path / "missing"))
