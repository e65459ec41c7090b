"""The units for hosts without containers: understood by systemd, without rights, stopped with the grace."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.stack import ROOT
from taskq.settings import Settings

UNITS = ROOT / "deploy" / "systemd"
NAMES = ("taskq-api.service", "taskq-janitor.service", "taskq-worker@.service")
SYSTEMD = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")


def options(name: str) -> dict[str, list[str]]:
    """Every option of a unit with its values, in order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        if line and line[0] not in "#[":
            option, _, value = line.partition("=")
            found.setdefault(option, []).append(value)
    return found


def installed(folder: Path, name: str) -> Path:
    """A unit as on a host where the program is there."""
    instance = name.replace("@.", "@mail.")
    unit = folder / instance
    unit.write_text((UNITS / name).read_text().replace("/opt/taskq/bin/taskq", "/bin/true"))
    return unit


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_has_nothing_to_say_about_it(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(SYSTEMD), "verify", str(installed(tmp_path, name))],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_little_is_exposed(name: str, tmp_path: Path) -> None:
    """systemd's own measure, from 0 to 10 (in tenths here); a service without any of it has 9.6."""
    done = subprocess.run(
        [str(SYSTEMD), "security", "--offline=true", "--threshold=25",
         str(installed(tmp_path, name))],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_back_says_when_it_is_up_and_is_watched(name: str) -> None:
    unit = options(name)
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert unit["Type"] == ["notify"]
    assert int(unit["WatchdogSec"][0]) >= 30
    assert unit["KillMode"] == ["mixed"]


def test_the_worker_gets_its_grace_and_five_seconds() -> None:
    unit = options("taskq-worker@.service")
    grace = Settings.model_construct().grace_seconds
    assert float(unit["TimeoutStopSec"][0]) == grace + 5
    assert unit["OOMPolicy"] == ["continue"]
    assert unit["EnvironmentFile"][-1] == "/etc/taskq/worker-%i.env"


def test_newer_systemd_may_grow_the_pause() -> None:
    """In a file apart: older ones warn about what they do not know."""
    assert all("RestartSteps" not in options(name) for name in NAMES)
    assert "RestartSteps=" in (UNITS / "backoff.conf").read_text()
