"""The image alone: small, without secrets, run as anybody over a read-only file system, ended by SIGTERM."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.stack import APP, IMAGE, REDIS_IMAGE, ROOT, base_image, docker, quietly
from support.workers import until

MIB = 1_048_576
ANYBODY = ("--read-only", "--user", "34567:45678", "--cap-drop", "ALL")


@dataclass
class Net:
    """Containers of a network, removed together."""

    name: str
    made: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        """The id of a container that goes on in the background."""
        self.made.append(docker("run", "-d", "--network", self.name, *arguments).splitlines()[-1])
        return self.made[-1]

    def remove(self) -> None:
        if self.made:
            docker("rm", "-f", "-v", *self.made, check=False)

    def taskq(self, *arguments: str, options: tuple[str, ...] = ANYBODY) -> str:
        """A component of the image, in a container of its own."""
        environment = ("-e", "TASKQ_REDIS_URL=redis://server:6379/0")
        return self.run(*options, *environment, IMAGE, *arguments)


@pytest.fixture(scope="module")
def network(image: str) -> Iterator[str]:
    """The name of a network with a server in it."""
    name = f"taskq-image-{os.getpid()}"
    docker("network", "create", name)
    server = Net(name)
    words = ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no"]
    try:
        server.run("--network-alias", "server", REDIS_IMAGE, *words)
        yield name
    finally:
        server.remove()
        docker("network", "rm", name, check=False)


@pytest.fixture
def net(network: str) -> Iterator[Net]:
    net = Net(network)
    yield net
    net.remove()


def cli(container: str, *arguments: str) -> str:
    return docker("exec", container, "taskq", *arguments)


def exit_code(container: str) -> int:
    return int(docker("inspect", "-f", "{{.State.ExitCode}}", container))


def test_layers_of_ours_are_small(image: str) -> None:
    whole, below = (
        int(docker("image", "inspect", "-f", "{{.Size}}", name)) for name in (image, base_image())
    )
    print(f"added to the base image: {(whole - below) / MIB:.1f} MiB")
    assert whole - below < 120 * MIB


def test_nobody_in_particular_runs_it_and_an_init_starts_it(image: str) -> None:
    (facts,) = json.loads(docker("image", "inspect", image))
    config = facts["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tini", "--", "taskq"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]
    assert "Commands:" in docker("run", "--rm", image)


def test_no_secret_and_nothing_but_the_program_is_in_it(image: str) -> None:
    """Neither in what is told of the image and its layers, nor in its files."""
    told = docker("image", "inspect", image) + docker("history", "--no-trunc", image)
    for word in ("password", "secret", "token", "api_keys", "index-url", "://"):
        assert word not in told.lower(), word
    names = [".git", ".taskq", ".venv", ".env", "pip.conf", ".netrc", "deploy", "bench"]
    find = " -o ".join(f"-name {name}" for name in names)
    look = f"find /opt /app /src /root -xdev {find} 2>/dev/null; ls -A /app"
    listed = docker("run", "--rm", "--entrypoint", "sh", image, "-c", look)
    assert listed == ""


def test_worker_runs_as_anybody_over_a_read_only_file_system(net: Net) -> None:
    """Without a /tmp, too: coroutines, threads and processes of jobs."""
    worker = net.taskq(
        "worker", "-A", "stackapp:app", "--builtins", options=(*ANYBODY, "-v", f"{APP}:/app:ro")
    )
    for job, shown in (
        ("nap", '{"number": 1, "seconds": 0.01}'),
        ("apart", '{"number": 2}'),
        ("print", '{"message": "as anybody"}'),
    ):
        out = cli(worker, "submit", job, shown, "--wait", "--timeout", "30")
        if job == "apart":
            assert "34567" in out
    assert "as anybody" in docker("logs", worker)
    began = time.monotonic()
    docker("stop", "-t", "30", worker)
    assert exit_code(worker) == 0
    assert time.monotonic() - began < 5


def test_api_and_janitor_run_so_and_stop_by_a_signal(net: Net) -> None:
    environment = ("-e", "TASKQ_API_KEYS=k")
    for command, options in (("api", (*ANYBODY, *environment)), ("janitor", ANYBODY)):
        made = net.taskq(command, options=options)
        alive = ("exec", made, "find", "/dev/shm/taskq.alive")
        until(quietly(lambda alive=alive: docker(*alive)), 20, f"{command} lives")
        began = time.monotonic()
        docker("stop", "-t", "30", made)
        assert exit_code(made) == 0, docker("logs", made)
        assert time.monotonic() - began < 5


def test_a_stop_under_load_hands_back_within_the_grace(net: Net) -> None:
    options = (*ANYBODY, "-v", f"{APP}:/app:ro", "-e", "TASKQ_GRACE_SECONDS=2")
    worker = net.taskq("worker", "-A", "stackapp:app", options=options)
    job = json.loads(
        cli(worker, "submit", "nap", '{"number": 1, "seconds": 120}', "--json")
    )["id"]  # fmt: skip
    shown = lambda: json.loads(cli(worker, "jobs", "show", job, "--json"))  # noqa: E731
    until(lambda: shown()["state"] == "running", 20, "it runs")
    began = time.monotonic()
    docker("stop", "-t", "7", worker)
    assert time.monotonic() - began < 5
    assert exit_code(worker) == 0
    other = net.taskq("janitor")
    after = json.loads(cli(other, "jobs", "show", job, "--json"))
    assert (after["state"], after["crashes"], after["lost"]) == ("queued", 0, 0)
    cli(other, "jobs", "cancel", job)


def test_health_is_of_the_loop_and_not_of_redis(net: Net) -> None:
    """A component whose loop stands still is told to be ill; one that waits for Redis is well."""
    check = ("--health-interval", "1s", "--health-retries", "1", "--health-start-period", "0s")
    lonely = net.run(
        *ANYBODY, *check, "-e", "TASKQ_REDIS_URL=redis://127.0.0.1:1/0", "-e", "TASKQ_ALLOW_OPEN=1",
        IMAGE, "api",
    )  # fmt: skip
    until(lambda: health(lonely) == "healthy", 20, "it is well without a server")
    stop = f"kill -{int(signal.SIGSTOP)} $(cat /proc/1/task/1/children)"
    docker("exec", lonely, "sh", "-c", stop)
    until(lambda: health(lonely) == "unhealthy", 40, "it is seen to stand still")


def health(container: str) -> str:
    return docker("inspect", "-f", "{{.State.Health.Status}}", container)


def test_open_to_others_only_with_keys_or_when_told(net: Net) -> None:
    refused = net.run(*ANYBODY, IMAGE, "api")
    until(lambda: docker("inspect", "-f", "{{.State.Status}}", refused) == "exited", 20, "it ends")
    assert exit_code(refused) == 2
    assert "TASKQ_API_KEYS" in docker("logs", refused)


def test_pages_of_files_do_not_end_jobs(net: Net) -> None:
    """The page cache of a container fills it: the supervisor must not take that for a leak."""
    options = ("--memory", "300m", "--user", "0:0", "-v", f"{APP}:/app:ro", "-v", "/scratch")
    worker = net.taskq("worker", "-A", "stackapp:app", options=options)
    cli(worker, "submit", "write_file", '{"mib": 600}', "--wait", "--timeout", "60")
    assert "container memory" not in docker("logs", worker)


def test_an_application_is_built_upon_it_as_the_page_says(net: Net, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    (file,) = re.findall(r"```Dockerfile\n(.*?)```", page, re.DOTALL)
    (tmp_path / "Dockerfile").write_text(file.replace("FROM taskq", f"FROM {IMAGE}"))
    (tmp_path / "requirements.txt").write_text("click\n")
    package = tmp_path / "myapp"
    package.mkdir()
    (package / "jobs.py").write_text((APP / "stackapp.py").read_text())
    name = f"{net.name}-app"
    docker("build", "-q", "-t", name, str(tmp_path))
    try:
        environment = ("-e", "TASKQ_REDIS_URL=redis://server:6379/0")
        worker = net.run(*ANYBODY, *environment, name)
        assert "34567" in cli(worker, "submit", "apart", '{"number": 2}', "--wait")
    finally:
        net.remove()
        docker("rmi", "-f", name, check=False)
