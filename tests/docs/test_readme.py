"""README and docs/rest.md stay true: commands are run as typed (on a free port), code and links compared."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from support.workers import COMMAND, until
from taskq.settings import load_settings
from taskq_api.app import create_app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REST = (ROOT / "docs" / "rest.md").read_text()
REST_KEYS = "## Keys" + REST.split("## Keys", 1)[1].split("\n## ", 1)[0]
"""Run by itself: a first key closes the door."""


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def curls(page: str = README) -> list[str]:
    lines = [line for block in blocks("sh", page) for line in block.splitlines()]
    return [line for line in lines if line.startswith("curl")]


class Dev:
    """``taskq dev`` over the example application, as the README starts it, on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        starts = self.text().count("taskq is up")
        with (self.folder / "dev.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "dev", "-A", "hello:app", "--port", str(self.port)],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={k: v for k, v in os.environ.items() if not k.startswith("TASKQ_")},
                start_new_session=True,
            )
        until(
            lambda: self.text().count("taskq is up") > starts or process.poll() is not None,
            40,
            "it is up",
        )
        assert process.poll() is None, self.text()
        return process

    def text(self) -> str:
        log = self.folder / "dev.log"
        return log.read_text() if log.exists() else ""

    def shell(self, command: str) -> str:
        command = command.replace("localhost:8000", f"localhost:{self.port}")
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> float:
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(15) == 0, self.text()
        return time.monotonic() - began


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("dev")
    shutil.copy(ROOT / "examples" / "hello.py", folder)
    dev = Dev(folder)
    yield dev
    if dev.process.poll() is None:
        dev.stop()


def test_first_curl_prints_its_message(dev: Dev) -> None:
    job = json.loads(dev.shell(curls()[0]))
    until(lambda: dev.get(f"/jobs/{job['id']}")["state"] == "succeeded", 15, "the job succeeds")
    assert "\nHello from scheduler\n" in dev.text()


def test_nobody_else_reads_what_is_kept(dev: Dev) -> None:
    folder = dev.folder / ".taskq"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*"))


def test_reading_curls_answer(dev: Dev) -> None:
    job = json.loads(dev.shell(curls()[0]))
    shown = [command for command in curls() if " -X POST " not in command]
    assert len(shown) == 3
    for command in shown:
        assert json.loads(dev.shell(command.replace("<id>", job["id"])))


def test_http_call_fails_with_a_reason_and_retries(dev: Dev) -> None:
    """Without a way out, it retries with growing delays and says why."""
    job = json.loads(dev.shell(next(c for c in curls() if "http_call" in c)))

    def settled() -> Any:
        shown = dev.get(f"/jobs/{job['id']}")
        done = shown["state"] == "succeeded" or shown["failures"] >= 2
        return shown if done else None

    shown = until(settled, 40, "it succeeds, or has failed twice")
    if shown["state"] != "succeeded":
        assert "example.com" in shown["error"]["message"]
        assert shown["state"] in ("retrying", "queued", "running")


def test_own_task_from_the_command_line(dev: Dev) -> None:
    environment = {**os.environ, "TASKQ_REDIS_URL": f"unix://{dev.folder}/.taskq/valkey.sock"}
    if not (dev.folder / ".taskq" / "valkey.sock").exists():
        pytest.fail("the socket that the README names is not there")
    out = subprocess.run(
        [sys.executable, "-c", COMMAND, "submit", "greet", '{"name": "Ada"}', "--wait"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Hello Ada" in out.stdout, out.stderr


@pytest.mark.parametrize("command", curls(REST.replace(REST_KEYS, "")))
def test_rest_curls_answer(dev: Dev, command: str) -> None:
    """Each of a job, a kind of failure, a bulk action or a worker for which it means something."""
    about: dict[str, Any] = {"job_type": "print", "payload": {"message": "hi"}}
    ends = ""
    if command.endswith("/cancel") or "-X PATCH" in command:
        about["delay"] = 60
    elif command.endswith(("/retry", "/errors/<fingerprint>")):
        payload = {"method": "GET", "url": "http://127.0.0.1:1/"}  # refused: an inner target
        about = {"job_type": "http_call", "payload": payload, "max_attempts": 1}
        ends = "failed"
    elif "-X DELETE" in command and "/jobs/" in command:
        ends = "succeeded"
    elif "/leases" in command:
        about["job_type"] = "thumbnail"  # nobody else serves it
    post = "curl -X POST http://localhost:8000/{} -H 'Content-Type: application/json' -d '{}'"
    job_id = json.loads(dev.shell(post.format("jobs", json.dumps(about))))["id"]
    if ends:
        until(lambda: dev.get(f"/jobs/{job_id}")["state"] == ends, 15, f"the job has {ends}")
    if "<lease>" in command:
        claim = next(c for c in curls(REST) if "/leases -H" in c)
        lease = json.loads(dev.shell(claim.replace("claim-1", job_id)))
        fences = {job["id"]: str(job["fence"]) for job in lease["jobs"]}
        command = command.replace("<lease>", lease["id"]).replace("<fence>", fences[job_id])
    command = command.replace("<id>", job_id)
    if "<bulk>" in command:
        wanted = {"action": "retry", "filter": {"queue": "default", "job_type": "nothing"}}
        bulk = json.loads(dev.shell(post.format("bulk", json.dumps(wanted))))
        command = command.replace("<bulk>", bulk["id"])
    if "<fingerprint>" in command:
        command = command.replace("<fingerprint>", dev.get(f"/jobs/{job_id}")["fingerprint"])
    if "<worker>" in command:
        with redis.Redis(unix_socket_path=str(dev.folder / ".taskq" / "valkey.sock")) as server:
            server.hset("taskq:worker:nobody", mapping={"host": "h", "queues": "elsewhere"})
            server.expire("taskq:worker:nobody", 60)
            server.zadd("taskq:workers", {"nobody": 1})
        command = command.replace("<worker>", "nobody")
    assert "<" not in command
    if " -N " in command:
        # A stream that does not end by itself is cut off by curl, with an exit code of its own.
        assert "\nid: " in dev.shell(f"{command} || test $? = 28")
        return
    answer = dev.shell(command)
    if "-X DELETE" in command and "/jobs/" in command:
        assert (answer, dev.get(f"/jobs/{job_id}")["stub"]) == ("", True)
    elif command.endswith("/metrics"):
        assert "\ntaskq_redis_up 1.0\n" in answer
    else:
        assert "code" not in json.loads(answer), answer
        assert not json.loads(answer).get("refused"), answer


def test_keys_are_made_used_and_revoked_as_the_page_says(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "hello.py", tmp_path)
    dev = Dev(tmp_path)
    # One shell after the other, in which `taskq` is this one.
    typed = f"export TASKQ_REDIS_URL=unix://{tmp_path}/.taskq/valkey.sock\n"
    typed += f"taskq() {{ {sys.executable} -c '{COMMAND}' \"$@\"; }}\n"
    lines = [line for block in blocks("sh", REST_KEYS) for line in block.splitlines()]
    told: list[Any] = []
    try:
        for line in lines:
            keys = json.loads(dev.shell(f"{typed}taskq keys list --json"))["keys"]
            line = line.replace("<id>", keys[-1]["id"] if keys else "")
            if line.startswith("export"):
                typed += f"export TASKQ_API_KEY={dev.shell(f'{typed}{line}; echo $TASKQ_API_KEY')}"
                until(lambda: _status(dev, "/queues") == 401, 20, "the door closes")
            else:
                out = dev.shell(typed + line)
                told.append(json.loads(out) if line.startswith("curl") else out)
    finally:
        dev.stop()
    assert all("code" not in answer for answer in told if isinstance(answer, dict)), told
    made, listed, its, revoked, trail, _, shown, gone, _ = told
    assert [key["name"] for key in listed["keys"]] == ["ops", "ci"]
    assert (its["name"], "admin" in its["scopes"]) == ("ops", True)
    assert (revoked["id"], revoked["revoked"]) == (made["id"], True)
    assert [entry["what"] for entry in trail["entries"]] == ["key.revoke", *["key.create"] * 2]
    assert "mailer" in shown
    assert "revoked" in gone


def _status(dev: Dev, path: str) -> int:
    try:
        dev.get(path)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200


def test_rest_page_has_every_route() -> None:
    routes = {
        (method.upper(), re.sub(r"{\w+}", "*", path))
        for path, methods in create_app(load_settings()).openapi()["paths"].items()
        for method in methods
    }
    shown = set()
    for command in curls(REST):
        method = re.search(r"-X (\w+)", command)
        path = re.search(r"localhost:8000(/[^ ?\"]*)", command)
        assert path
        shown.add(
            (
                method[1] if method else "GET",
                re.sub(r"<\w+>", "*", path[1]).replace("/default", "/*"),
            )
        )
    assert shown == routes


def test_jobs_are_known_after_a_restart(dev: Dev) -> None:
    job = json.loads(dev.shell(curls()[0]))
    until(lambda: dev.get(f"/jobs/{job['id']}")["state"] == "succeeded", 15, "the job succeeds")
    assert dev.stop() < 5
    dev.process = dev.start()
    assert dev.get(f"/jobs/{job['id']}")["state"] == "succeeded"


def test_example_is_the_one_in_the_folder() -> None:
    example = (ROOT / "examples" / "hello.py").read_text()
    assert blocks("python")[0].strip() in example


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} -> {link}"


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    out = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {"help", "venv", "run", "test", "check", "bench"} <= targets
    for target in targets:
        assert re.search(rf"\b{target}\b", out), target
