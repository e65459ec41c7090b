"""The workers of ``examples/`` against a real server and API: stopped, killed, cut off, nothing is lost."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from support.workers import until

EXAMPLES = Path(__file__).parents[2] / "examples"
LEASE_SECONDS = 3

HANDLERS = """
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const handlers = {
  nap: async ({ mark, gate }, { signal, progress, log }) => {
    log("begun");
    progress(0.5, "napping");
    appendFileSync(mark, "START\\n");
    while (!existsSync(gate)) await sleep(50, undefined, { signal });
    return { napped: true };
  },
  boom: async () => { throw new RangeError("no such thing"); },
};
"""
NAP = """
payload=$(cat); mark=$(jq -r .mark <<<"$payload"); gate=$(jq -r .gate <<<"$payload")
echo START >>"$mark"
while [ ! -e "$gate" ]; do sleep 0.05; done
echo '{"napped": true}'
"""


def _missing(*tools: str) -> str:
    """Why a worker cannot run here; '' where it can."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"{' and '.join(absent)} not installed"
    if "node" in tools:
        version = subprocess.check_output(["node", "--version"], text=True)
        if int(re.findall(r"\d+", version)[0]) < 18:
            return f"node is {version.strip()}, 18 is needed"
    return ""


@dataclass
class Place:
    """An API process and the workers that are started against it."""

    language: str
    folder: Path
    start: Callable[..., Any]
    url: str
    api: Any = None
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start_api(self, port: int = 0) -> None:
        self.api = self.start("--redis-url", self.url, "--port", str(port))

    def worker(self, job_type: str = "nap") -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "TASKQ_URL": self.api.url,
            "TASKQ_WORKER": f"{self.language}-{len(self.workers)}",
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "WAIT_SECONDS": "5",
        }
        if self.language == "bash":
            program = {"nap": NAP, "boom": "echo 'no such thing' >&2; exit 3"}[job_type]
            command = [str(EXAMPLES / "bash" / "worker.sh"), job_type, "bash", "-c", program]
        else:
            handlers = self.folder / "handlers.mjs"
            handlers.write_text(HANDLERS)
            command = ["node", str(EXAMPLES / "node" / "worker.mjs"), str(handlers)]
        with (self.folder / "worker.log").open("ab") as log:
            self.workers.append(
                subprocess.Popen(command, env=environment, stderr=log, start_new_session=True)
            )
        return self.workers[-1]

    def log(self) -> str:
        log = self.folder / "worker.log"
        return log.read_text() if log.exists() else "no log"

    def submit(self, job_type: str = "nap", **more: Any) -> str:
        payload = {"mark": str(self.folder / "mark"), "gate": str(self.folder / "gate")}
        body = {"job_type": job_type, "payload": payload, **more}
        return str(httpx.post(f"{self.api.url}/jobs", json=body).raise_for_status().json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.api.url}/jobs/{job_id}").json()
        return found

    def starts(self) -> int:
        mark = self.folder / "mark"
        return mark.read_text().count("START") if mark.exists() else 0

    def started(self, n: int = 1) -> None:
        until(lambda: self.starts() >= n, 20, f"{n} runs have begun; {self.log()}")

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def ends(self, job_id: str, state: str, seconds: float = 20) -> dict[str, Any]:
        until(lambda: self.job(job_id)["state"] == state, seconds, f"{state}; {self.log()}")
        return self.job(job_id)

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                _kill(worker)


def _kill(worker: "subprocess.Popen[bytes]") -> None:
    """kill -9 of it and all below. It is stopped first: what it started meanwhile would outlive it."""
    worker.send_signal(signal.SIGSTOP)
    for child in psutil.Process(worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    worker.kill()
    worker.wait(10)


@pytest.fixture(params=["bash", "node"])
def place(
    request: pytest.FixtureRequest,
    redis_url: str,
    start_api: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    missing = _missing(*{"bash": ("bash", "curl", "jq"), "node": ("node",)}[request.param])
    if missing:
        pytest.skip(missing)
    monkeypatch.setenv("TASKQ_LEASE_SECONDS", str(LEASE_SECONDS))
    monkeypatch.setenv("TASKQ_JANITOR_SECONDS", "0.2")
    place = Place(request.param, tmp_path, start_api, redis_url)
    place.start_api()
    try:
        yield place
    finally:
        place.open_gate()
        place.close()


def test_runs_a_job_for_longer_than_its_lease(place: Place) -> None:
    place.worker()
    job_id = place.submit()
    place.started()
    first = place.job(job_id)
    seen = httpx.get(f"{place.api.url}/workers").json()["workers"]
    assert {worker["label"] for worker in seen} == {f"{place.language}-0"}
    # Two leases later it is still the first run, and still held.
    with pytest.raises(AssertionError, match="another state"):
        until(
            lambda: place.job(job_id)["state"] != "running",
            2 * LEASE_SECONDS + 0.5,
            "another state",
        )
    place.open_gate()
    job = place.ends(job_id, "succeeded")
    assert job["result"] == {"napped": True}
    assert (job["attempts"], job["lost"], job["fence"]) == (1, 0, first["fence"])
    assert place.starts() == 1
    if place.language == "node":
        assert [line["line"] for line in job["log"]] == ["begun"]
        assert job["progress"]["message"] == "napping"


def test_a_failure_is_told_with_its_reason(place: Place) -> None:
    place.worker("boom")
    job = place.ends(place.submit("boom", max_attempts=1), "failed")
    assert job["error"]["type"] == {"bash": "ExitStatus3", "node": "RangeError"}[place.language]
    assert job["error"]["message"].strip() == "no such thing"


def test_a_cancelled_job_is_stopped(place: Place) -> None:
    worker = place.worker()
    job_id = place.submit()
    place.started()
    httpx.post(f"{place.api.url}/jobs/{job_id}/cancel").raise_for_status()
    place.ends(job_id, "cancelled", seconds=2 * LEASE_SECONDS)
    # And it goes on with the next.
    place.open_gate()
    place.ends(place.submit(), "succeeded")
    assert worker.poll() is None
    assert place.starts() == 2


def test_a_stopped_worker_hands_its_job_back(place: Place) -> None:
    worker = place.worker()
    job_id = place.submit()
    place.started()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0
    job = place.job(job_id)
    assert (job["state"], job["failures"], job["crashes"], job["lost"]) == ("queued", 0, 0, 0)
    place.open_gate()
    place.worker()
    assert place.ends(job_id, "succeeded")["attempts"] == 2


def test_an_idle_worker_stops_at_once_and_takes_nothing_with_it(place: Place) -> None:
    worker = place.worker()
    workers = f"{place.api.url}/workers"
    until(lambda: httpx.get(workers).json()["workers"], 10, "it polls")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0
    until(lambda: not httpx.get(workers).json()["workers"], 5, "its poll is given up")
    assert place.job(place.submit())["attempts"] == 0


def test_a_killed_worker_loses_nothing(place: Place) -> None:
    """Killed with -9 in the middle: the lease runs out, and a second worker does the job."""
    worker = place.worker()
    jobs = [place.submit() for _ in range(3)]
    place.started()
    _kill(worker)
    place.open_gate()
    place.worker()
    ended = [place.ends(job_id, "succeeded", seconds=30) for job_id in jobs]
    assert all(job["result"] == {"napped": True} for job in ended)
    assert {job["crashes"] + job["failures"] for job in ended} == {0}
    assert sum(job["lost"] for job in ended) >= 1


def test_the_api_may_be_restarted_under_a_run(place: Place) -> None:
    """Killed with -9 too: a lease outlives the process that gave it."""
    place.worker()
    job_id = place.submit()
    place.started()
    port = place.api.port
    place.api.popen.kill()
    place.api.popen.wait(10)
    place.open_gate()  # the run ends while nobody listens
    until(lambda: re.search("no answer|no heartbeat|started", place.log()), 10, "it notices")
    place.start_api(port)
    job = place.ends(job_id, "succeeded")
    assert job["result"] == {"napped": True}
    assert place.starts() == job["attempts"]
    # And it claims again.
    place.ends(place.submit(), "succeeded")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_the_api_may_be_restarted_under_a_poll(place: Place, signal_number: int) -> None:
    place.open_gate()
    worker = place.worker()
    until(lambda: httpx.get(f"{place.api.url}/workers").json()["workers"], 10, "it polls")
    port = place.api.port
    place.api.popen.send_signal(signal_number)
    place.api.popen.wait(10)
    place.start_api(port)
    assert place.ends(place.submit(), "succeeded")["attempts"] == 1
    assert worker.poll() is None


def test_what_the_header_says_to_try(place: Place) -> None:
    """The commands of the first comment, as they are typed."""
    if place.language == "bash":
        text = (EXAMPLES / "bash" / "worker.sh").read_text()
        typed = re.findall(r"^#   (\./worker\.sh count.*)$", text, re.MULTILINE)[0]
        command = ["bash", "-c", f"cd {EXAMPLES / 'bash'} && exec {typed}"]
    else:
        text = (EXAMPLES / "node" / "worker.mjs").read_text()
        assert "node examples/node/worker.mjs" in text
        command = ["node", str(EXAMPLES / "node" / "worker.mjs")]
    body = re.findall(r"-d '(\{.*\})'", text)[0]
    environment = {**os.environ, "TASKQ_URL": place.api.url}
    place.workers.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    answer = httpx.post(f"{place.api.url}/jobs", json=json.loads(body)).raise_for_status().json()
    assert place.ends(answer["id"], "succeeded")["result"] == 6
