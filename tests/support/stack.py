"""The containers of deploy/, for tests: an engine, one image, and stacks apart from anybody else's.

The engine comes from the environment, as for any client of Docker (DOCKER_HOST). TASKQ_TEST_ENGINE may name
a script that brings one up, with the images whose names it is given; TASKQ_TEST_PYTHON_IMAGE and
TASKQ_TEST_REDIS_IMAGE the images to build upon and to run.
"""

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import redis

from support.workers import until

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "stackapp"
IMAGE = "taskq-test"
LEASE, TICK, GRACE = 5.0, 1.0, 4.0
"""Seconds, of the stacks of the tests."""
SLACK = 2.0
# Read here: settings from outside are taken away while a test runs.
ENGINE = os.environ.get("TASKQ_TEST_ENGINE")
PYTHON_IMAGE = os.environ.get("TASKQ_TEST_PYTHON_IMAGE")
REDIS_IMAGE = os.environ.get("TASKQ_TEST_REDIS_IMAGE", "redis:7")


def docker(*arguments: str, check: bool = True, timeout: float = 300) -> str:
    """What the command printed, errors too. Raises ``AssertionError`` with it when the command fails."""
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}: {done.stdout}"
    return done.stdout.strip()


def why_no_engine() -> str | None:
    """Brings an engine up where a script for it is named; answers why there is none, in a sentence."""
    if ENGINE:
        done = subprocess.run(
            [ENGINE, REDIS_IMAGE], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode != 0:
            return f"{ENGINE} brought no engine up: {done.stderr[-300:]}"
    if shutil.which("docker") is None:
        return "there is no docker here (TASKQ_TEST_ENGINE may name a script that brings one up)"
    if not _answers("version"):
        return "docker is here, but no engine answers"
    if not _answers("compose", "version") and shutil.which("docker-compose") is None:
        return "there is no compose for docker here"
    for name in (base_image(), REDIS_IMAGE):
        if _answers("image", "inspect", name) or _answers("pull", "-q", name):
            continue
        return f"the image {name} is not here and cannot be pulled"
    return None


def _answers(*arguments: str) -> bool:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0


def base_image() -> str:
    """What the image is built upon: the Dockerfile's own choice, or what the environment names."""
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    own = next(line for line in lines if line.startswith("ARG PYTHON_IMAGE="))
    return PYTHON_IMAGE or own.partition("=")[2]


def build_image() -> str:
    """The image of this tree; answers its name."""
    argument = f"PYTHON_IMAGE={base_image()}"
    file = f"{ROOT}/deploy/Dockerfile"
    docker("build", "-q", "-f", file, "-t", IMAGE, "--build-arg", argument, str(ROOT))
    return IMAGE


class Stack:
    """One project of compose with ports and volumes of its own, steered by make as people do."""

    def __init__(self, name: str, **settings: str) -> None:
        self.name = name
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TASKQ_", "MAKE"))},
            "COMPOSE_PROJECT_NAME": name,
            "TASKQ_API_PORT": str(self.port),
            "TASKQ_IMAGE": IMAGE,
            "TASKQ_REDIS_IMAGE": REDIS_IMAGE,
            "PYTHON_IMAGE": base_image(),
            **settings,
        }

    def make(self, *words: str, answer: str = "", check: bool = True) -> str:
        """``make`` with these words; what it printed."""
        return self._run("make", "--no-print-directory", *words, answer=answer, check=check)

    def compose(self, *words: str, check: bool = True) -> str:
        """``deploy/compose`` with these words; what it printed."""
        return self._run("deploy/compose", *words, check=check)

    def _run(self, *words: str, answer: str = "", check: bool = True) -> str:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=self.environment,
            input=answer,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{' '.join(words)}: {done.stdout}"
        return done.stdout

    def containers(self, service: str, *, running: bool = True) -> list[str]:
        """Ids, oldest first; with ``running`` False also those that have ended."""
        # The last one is of containers alone: images that compose has built carry the others, too.
        labels = (f"project={self.name}", f"service={service}", "container-number")
        filters = [w for label in labels for w in ("--filter", f"label=com.docker.compose.{label}")]
        shown = docker("ps", "-q", "--no-trunc", *([] if running else ["-a"]), *filters)
        return shown.split()[::-1]

    def one(self, service: str) -> str:
        (found,) = self.containers(service)
        return found

    def redis(self) -> "redis.Redis":
        """A client of the stack's server, by the address that it has now."""
        return redis.Redis(host=address(self.one("redis")), decode_responses=True)

    def request(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer, errors too."""
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def get(self, path: str) -> Any:
        status, document = self.request(path)
        assert status == 200, document
        return document

    def submit(self, job_type: str, payload: Any, key: str = "", **fields: Any) -> str:
        """The id of a job, as a careful client gets it: again until it is answered, with one key."""
        body = {"job_type": job_type, "payload": payload, **fields}
        headers = {"Idempotency-Key": key} if key else {}

        def ask() -> str | None:
            try:
                status, answer = self.request("/jobs", body, headers)
            except (OSError, ValueError, HTTPException):  # away, or gone amid its answer
                return None
            assert status in (200, 201, 429, 503), (status, answer)
            return str(answer["id"]) if status < 400 else None

        return str(ask() if not key else until(ask, 240, f"{key} is taken"))

    def state(self, job_id: str) -> str:
        return str(self.get(f"/jobs/{job_id}")["state"])

    def count(self, *states: str) -> int:
        """Jobs in these states, of all queues."""
        queues = self.get("/queues")["queues"]
        return sum(int(queue["counts"][state]) for queue in queues for state in states)

    def wait_workers(self, count: int) -> None:
        """Until so many worker containers have said what they serve."""

        def hosts() -> bool:
            known = {str(worker["id"]).split(":")[0] for worker in self.get("/workers")["workers"]}
            return len({c[:12] for c in self.containers("worker")} & known) == count

        until(quietly(hosts), 40, f"{count} workers are up")

    def remove(self) -> None:
        """All of it, volumes too, whatever state it is in."""
        self.make("clean-data", answer="yes\n", check=False)


def address(container: str) -> str:
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return docker("inspect", "-f", form, container)


def seconds(time_text: str) -> float:
    """A time of the API as seconds of the epoch."""
    return datetime.fromisoformat(time_text).timestamp()


def quietly(condition: Callable[[], Any]) -> Callable[[], Any]:
    """False while what is asked cannot answer."""

    def ask() -> Any:
        try:
            return condition()
        except (OSError, ValueError, HTTPException, AssertionError, redis.RedisError):
            return False

    return ask
