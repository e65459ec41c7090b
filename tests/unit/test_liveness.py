"""What watches from outside sees that the loop turns: by a file's age, and by systemd's protocol."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskq import liveness
from taskq.aio import end_tasks


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that systemd would listen on."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def heard(listener: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(listener.recv(100).decode())
        except BlockingIOError:
            return messages


async def test_file_grows_young_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "BEAT_SECONDS", 0.01)
    file = tmp_path / "alive"
    task = asyncio.create_task(liveness.show_life(file))
    async with asyncio.timeout(5):
        while not file.exists():
            await asyncio.sleep(0.01)
        os.utime(file, (0, 0))
        while file.stat().st_mtime < 1:
            await asyncio.sleep(0.01)
    await end_tasks(task)


async def test_a_file_that_cannot_be_written_is_told_once_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(liveness, "BEAT_SECONDS", 0.001)
    folder = tmp_path / "later"
    task = asyncio.create_task(liveness.show_life(folder / "alive"))
    async with asyncio.timeout(5):
        while not caplog.records:
            await asyncio.sleep(0.01)
    folder.mkdir()
    async with asyncio.timeout(5):
        while not (folder / "alive").exists():
            await asyncio.sleep(0.01)
    assert not task.done()
    assert len(caplog.records) == 1
    await end_tasks(task)


async def test_systemd_hears_start_life_and_stop(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")  # 30 ms: a sign of life each 10
    task = asyncio.create_task(liveness.show_life(None))
    messages: list[str] = []
    async with asyncio.timeout(5):
        while messages.count("WATCHDOG=1") < 3:
            await asyncio.sleep(0.01)
            messages += heard(systemd)
    await end_tasks(task)
    messages += heard(systemd)
    assert (messages[0], messages[-1]) == ("READY=1", "STOPPING=1")


async def test_without_anybody_to_tell_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    async with asyncio.timeout(5):
        await liveness.show_life(None)


def test_a_watchdog_that_is_another_process_s_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    assert liveness._watchdog_seconds() == 2
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    assert liveness._watchdog_seconds() > 1e6


def test_a_name_without_a_file_is_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"taskq-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert liveness._notify("READY=1")
        assert listener.recv(100) == b"READY=1"
