"""The files of deploy/ for containers, without an engine: what they promise, and what is said without one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.stack import ROOT
from support.workers import COMMAND, until
from taskq.embedded import find_server
from taskq.settings import Settings

DEPLOY = ROOT / "deploy"
STACK: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PUBLIC: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.public.yaml").read_text())
OURS = ("api", "worker", "janitor")


def default(text: str) -> str:
    """``${NAME:-value}`` -> ``value``."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


def test_every_component_has_a_container_of_its_own() -> None:
    plain = {name for name, service in STACK["services"].items() if "profiles" not in service}
    assert plain == {"redis", *OURS}


@pytest.mark.parametrize("name", OURS)
def test_components_run_without_rights(name: str) -> None:
    service = STACK["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert "user" not in service or service["user"] not in ("root", "0")


def test_every_port_is_published_on_loopback_alone() -> None:
    for service in STACK["services"].values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), port
    assert "ports" not in STACK["services"]["redis"]


def test_the_public_api_asks_for_keys() -> None:
    environment = PUBLIC["services"]["api"]["environment"]
    assert environment["TASKQ_API_KEYS"].startswith("${TASKQ_API_KEYS:?")
    assert environment["TASKQ_ALLOW_OPEN"] == "0"


def test_the_engine_waits_five_seconds_longer_than_the_grace() -> None:
    worker = STACK["services"]["worker"]
    grace = float(default(worker["environment"]["TASKQ_GRACE_SECONDS"]))
    assert default(worker["stop_grace_period"]) == f"{grace + 5:.0f}s"


def test_defaults_are_those_of_the_settings_and_every_name_is_one() -> None:
    settings = Settings.model_construct()
    for name in OURS:
        for variable, text in STACK["services"][name]["environment"].items():
            field = variable.removeprefix("TASKQ_").lower()
            assert field in Settings.model_fields, variable
            own = getattr(settings, field)
            if isinstance(own, (int, float)) and field != "allow_open":
                assert float(default(text)) == own, variable


def test_every_variable_of_the_stack_is_explained() -> None:
    """In docs/deploy.md, or with the other settings in docs/operations.md."""
    text = "".join((DEPLOY / name).read_text() for name in ("compose.yaml", "compose.public.yaml"))
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("deploy.md", "operations.md"))
    for name in set(re.findall(r"\$\{(\w+)", text)):
        assert f"`{name}`" in pages, name


# --- deploy/compose and make ------------------------------------------------------------------------

STUB = """#!/bin/sh
case "$*" in
  version) exit {engine} ;;
  "compose version") exit {plugin} ;;
esac
echo "docker $* grace=$TASKQ_STOP_GRACE_PERIOD"
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs words with nothing on PATH but the shell's tools and stand-ins for what is named."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make", "awk", "dirname", "head", "sleep", "env"):
        found = next(Path(d, name) for d in ("/usr/bin", "/bin") if Path(d, name).exists())
        (tools / name).symlink_to(found)

    def run(*words: str, stubs: dict[str, str], **environment: str) -> Any:
        for name, text in stubs.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        return subprocess.run(
            words,
            cwd=ROOT,
            env={"PATH": str(tools), **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


def test_without_docker_it_says_what_to_do(run: Callable[..., Any]) -> None:
    for target in ("up", "down", "ps", "logs", "scale-worker"):
        done = run("make", target, "N=2", stubs={})
        assert done.returncode != 0
        assert "there is no docker here" in done.stderr, target
        assert "make run" in done.stderr


def test_without_an_engine_or_compose_it_says_which_is_missing(run: Callable[..., Any]) -> None:
    done = run("deploy/compose", "ps", stubs={"docker": STUB.format(engine=1, plugin=0)})
    assert (done.returncode, "no engine answers" in done.stderr) == (1, True)
    done = run("deploy/compose", "ps", stubs={"docker": STUB.format(engine=0, plugin=1)})
    assert (done.returncode, "not its compose" in done.stderr) == (1, True)


def test_the_plugin_comes_first_and_the_older_tool_will_do(run: Callable[..., Any]) -> None:
    older = '#!/bin/sh\necho "older $*"\n'
    stubs = {"docker": STUB.format(engine=0, plugin=0), "docker-compose": older}
    done = run("deploy/compose", "ps", "-q", stubs=stubs)
    assert done.stdout.startswith("docker compose -p taskq -f "), done.stdout
    assert "compose.yaml ps -q " in done.stdout
    stubs["docker"] = STUB.format(engine=0, plugin=1)
    done = run("deploy/compose", "ps", "-q", stubs=stubs)
    assert done.stdout.startswith("older -p taskq -f ")


def test_scaling_touches_the_workers_alone(run: Callable[..., Any]) -> None:
    stubs = {"docker": STUB.format(engine=0, plugin=0)}
    done = run("make", "scale-worker", "N=3", stubs=stubs)
    assert "up -d --no-build --no-deps --no-recreate --scale worker=3 worker " in done.stdout
    for wrong in ("", "x", "-1", "3 x"):
        refused = run("make", "scale-worker", f"N={wrong}", stubs=stubs)
        assert refused.returncode != 0, wrong
        assert "make scale-worker N=3" in refused.stderr, wrong


def test_a_longer_grace_makes_the_engine_wait_longer(run: Callable[..., Any]) -> None:
    stubs = {"docker": STUB.format(engine=0, plugin=0)}
    for grace, shown in (("60", "65s"), ("2.5", "8s"), ("0", "5s")):
        done = run("deploy/compose", "ps", stubs=stubs, TASKQ_GRACE_SECONDS=grace)
        assert f"grace={shown}" in done.stdout, done.stdout
    done = run("deploy/compose", "ps", stubs=stubs)
    assert done.stdout.endswith("grace=\n")


def test_data_is_deleted_only_after_a_yes(run: Callable[..., Any]) -> None:
    stubs = {"docker": STUB.format(engine=0, plugin=0)}
    done = run("make", "clean-data", stubs=stubs)
    assert done.returncode != 0
    assert "--volumes" not in done.stdout
    down = run("make", "down", stubs=stubs)
    assert " down " in down.stdout
    assert "--volumes" not in down.stdout


# --- what is built and how the server is set up -----------------------------------------------------


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    wanted = {rule[1:] for rule in rules if rule.startswith("!")}
    assert wanted == {"LICENSE", "README.md", "pyproject.toml", "taskq", "api/taskq_api",
                      "worker/taskq_worker"}  # fmt: skip


def test_every_line_of_redis_conf_is_explained() -> None:
    """Comments stand above what they explain; two directives may share one."""
    lines = (DEPLOY / "redis.conf").read_text().splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            above = lines[max(0, number - 2) : number]
            assert any(text.startswith("# ") and "---" not in text for text in above), line


def test_the_server_takes_redis_conf_and_taskq_takes_the_server(tmp_path: Path) -> None:
    conf = tmp_path / "redis.conf"
    text = (DEPLOY / "redis.conf").read_text().replace("dir /data", f"dir {tmp_path}")
    socket = tmp_path / "s.sock"
    conf.write_text(text + f"\nport 0\nunixsocket {socket}\n")
    server = subprocess.Popen([str(find_server()), str(conf)], stdout=subprocess.DEVNULL)
    try:
        until(socket.exists, 20, "the server takes its configuration")
        doctor = subprocess.run(
            [sys.executable, "-c", COMMAND, "doctor", "--json"],
            env={**os.environ, "TASKQ_REDIS_URL": f"unix://{socket}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
        assert json.loads(doctor.stdout)["findings"] == []
    finally:
        server.terminate()
        server.wait(20)
