"""The whole stack as people run it: up, two curls, more workers and fewer, down and up again."""

import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from support.stack import GRACE, LEASE, ROOT, SLACK, TICK, Stack, docker, quietly, seconds
from support.workers import until
from taskq.keys import Keys

Q = Keys("taskq").queue("default")


def shell(stack: Stack, command: str) -> Any:
    command = command.replace("localhost:8000", f"localhost:{stack.port}")
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True
    )
    return json.loads(done.stdout)


def test_the_two_curls_of_the_readme(stack: Stack) -> None:
    readme = (ROOT / "README.md").read_text()
    first, second = (line for line in readme.splitlines() if line.startswith("curl -X POST"))
    job = shell(stack, first)
    until(lambda: stack.state(job["id"]) == "succeeded", 20, "the first job succeeds")
    assert "\nHello from scheduler\n" in "\n" + docker("logs", stack.one("worker")) + "\n"
    job = shell(stack, second)
    until(lambda: stack.get(f"/jobs/{job['id']}")["attempts"] > 0, 20, "the second is tried")
    stack.request(f"/jobs/{job['id']}/cancel", {})


def test_the_api_is_open_on_loopback_alone_and_says_so(stack: Stack) -> None:
    ports = json.loads(docker("inspect", "-f", "{{json .NetworkSettings.Ports}}", stack.one("api")))
    assert [place["HostIp"] for place in ports["8000/tcp"]] == ["127.0.0.1"]
    assert "TASKQ_ALLOW_OPEN" in docker("logs", stack.one("api"))
    for service in ("redis", "worker", "janitor"):
        shown = docker("inspect", "-f", "{{json .NetworkSettings.Ports}}", stack.one(service))
        assert "HostIp" not in shown


def test_what_is_told_of_containers_holds_what_was_passed_and_no_secret(stack: Stack) -> None:
    for service in ("api", "worker", "janitor"):
        shown = docker("inspect", "-f", "{{json .Config.Env}}", stack.one(service))
        ours = [line for line in json.loads(shown) if line.startswith("TASKQ_")]
        assert all(re.fullmatch(r"TASKQ_[A-Z_]+=[\w.:/-]*", line) for line in ours), ours
        assert "TASKQ_API_KEYS=" in ours if service == "api" else "TASKQ_API_KEYS=" not in ours


def test_all_become_healthy(stack: Stack) -> None:
    def ills() -> list[str]:
        shown = docker("ps", "--filter", f"label=com.docker.compose.project={stack.name}")
        return [line for line in shown.splitlines()[1:] if "(healthy)" not in line]

    until(lambda: not ills(), 40, "all are healthy")


def holding(stack: Stack, container: str) -> list[str]:
    """Jobs in the lists of a container's workers."""
    client = stack.redis()
    found: list[str] = []
    for name in client.hkeys(Q.holders):
        if str(name).startswith(container[:12]):
            found += client.lrange(Q.processing(str(name)), 0, -1)
    client.close()
    return found


def test_a_killed_container_costs_a_lease_and_a_tick(stack: Stack) -> None:
    """Its jobs run elsewhere within lease + tick + 2 s, counted as lost once and as no failure."""
    stack.make("scale-worker", "N=2")
    stack.wait_workers(2)
    jobs = [stack.submit("nap", {"number": n, "seconds": 3600}) for n in range(20)]
    victim = stack.containers("worker")[0]
    until(quietly(lambda: len(holding(stack, victim)) >= 3), 20, "it has jobs")
    held = [f"default:{ulid}" for ulid in holding(stack, victim)]
    killed_at = time.time()
    docker("kill", victim)
    until(
        lambda: all(stack.get(f"/jobs/{j}")["attempts"] == 2 for j in held),
        LEASE + TICK + SLACK + 10,
        "all are claimed again",
    )
    late = max(seconds(stack.get(f"/jobs/{j}")["started_at"]) for j in held) - killed_at
    print(f"{len(held)} jobs of a killed container ran again within {late:.2f} s")
    assert late < LEASE + TICK + SLACK
    for job in held:
        shown = stack.get(f"/jobs/{job}")
        assert (shown["lost"], shown["failures"], shown["crashes"]) == (1, 0, 0)
    for job in jobs:
        stack.request(f"/jobs/{job}/cancel", {})
    docker("start", victim)
    stack.wait_workers(2)
    until(lambda: not stack.redis().zcard(Q.leases) or not stack.count("running"), 20, "none runs")


def test_scaling_down_leaves_no_job_to_a_lease(stack: Stack) -> None:
    """Short jobs end within the grace, long ones are handed back by it; the last worker goes on."""
    stack.make("scale-worker", "N=3")
    stack.wait_workers(3)
    jobs = [stack.submit("nap", {"number": n, "seconds": 0.5 + n % 2 * 8}) for n in range(120)]
    until(lambda: stack.count("running") == 60, 20, "all slots are taken")
    began = time.monotonic()
    stack.make("scale-worker", "N=1")
    took = time.monotonic() - began
    (left,) = stack.containers("worker")
    client = stack.redis()
    holders = [w for w in client.hkeys(Q.holders) if client.llen(Q.processing(str(w)))]
    assert all(str(w).startswith(left[:12]) for w in holders), holders
    assert took < 2 * (GRACE + 5) + 3, "no container was killed at the end of its time"
    until(lambda: all(stack.state(job) == "succeeded" for job in jobs), 90, "all succeed")
    for job in jobs:
        shown = stack.get(f"/jobs/{job}")
        assert (shown["lost"], shown["crashes"], shown["failures"]) == (0, 0, 0), shown
    handed = sum(stack.get(f"/jobs/{job}")["attempts"] > 1 for job in jobs)
    print(f"scaled down under load in {took:.1f} s, {handed} jobs handed back")
    assert handed


def test_down_and_up_keep_jobs_and_settings(stack: Stack) -> None:
    later = stack.submit("nap", {"number": 1, "seconds": 0}, delay=3600, priority=7)
    done = stack.submit("nap", {"number": 2, "seconds": 0})
    until(lambda: stack.state(done) == "succeeded", 20, "it has run")
    settings = ("taskq", "queues", "set", "mail", "aging_ms=5000", "max_depth=7", "--create")
    docker("exec", stack.one("janitor"), *settings)
    docker("exec", stack.one("janitor"), "taskq", "queues", "pause", "mail")
    paused = stack.submit("print", {"message": "held"}, queue="mail")
    kept = ["/queues", f"/jobs/{later}", f"/jobs/{done}", f"/jobs/{paused}", "/jobs?limit=100"]
    before = [_told(stack, path) for path in kept]
    stack.make("down")
    assert not stack.containers("redis", running=False)
    stack.make("up")
    stack.wait_workers(1)
    assert [_told(stack, path) for path in kept] == before


def _told(stack: Stack, path: str) -> str:
    """An answer without what time alone changes."""
    text = json.dumps(stack.get(path), sort_keys=True)
    return re.sub(r'"(head_age|holders|workers)": [^,}]+', "", text)


def test_a_copy_of_the_append_only_file_is_put_back(stack: Stack, tmp_path: Path) -> None:
    """Taken while all goes on; what came after it is gone, and what ran after it runs again."""
    copy = str(tmp_path / "copy.tar")
    kept = stack.submit("nap", {"number": 1, "seconds": 0.1}, delay=3600)
    stack.compose("backup", copy)
    gone = stack.submit("nap", {"number": 2, "seconds": 0.1}, delay=3600)
    stack.request(f"/jobs/{kept}/cancel", {})
    assert "is no copy" in stack.compose("restore", __file__, check=False)
    stack.compose("restore", copy)
    until(quietly(lambda: stack.state(kept) == "scheduled"), 60, "the copy's job is back")
    assert stack.request(f"/jobs/{gone}")[0] == 404
    stack.wait_workers(1)
    again = stack.submit("nap", {"number": 3, "seconds": 0.1})
    until(lambda: stack.state(again) == "succeeded", 30, "jobs run")
    assert server_setting(stack, "auto-aof-rewrite-percentage") == "100"


def server_setting(stack: Stack, name: str) -> str:
    return str(stack.redis().config_get(name)[name])


def test_for_others_it_asks_for_keys(stack: Stack) -> None:
    refused = stack.make("up", "PUBLIC=1", check=False)
    assert "set it to one or more keys" in refused
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    stack.environment |= {"TASKQ_API_KEYS": "one,two", "TASKQ_PUBLIC_PORT": port}
    stack.make("up", "PUBLIC=1")
    ports = json.loads(docker("inspect", "-f", "{{json .NetworkSettings.Ports}}", stack.one("api")))
    assert {place["HostPort"] for place in ports["8000/tcp"]} == {str(stack.port), port}
    assert stack.request("/queues")[0] == 401
    assert stack.request("/queues", headers={"Authorization": "Bearer two"})[0] == 200
    assert "TASKQ_ALLOW_OPEN" not in docker("logs", stack.one("api"))


def test_clean_data_asks_and_then_deletes(stack: Stack) -> None:
    refused = stack.make("clean-data", answer="no\n", check=False)
    assert "nothing was deleted" in refused
    assert stack.one("redis")
    stack.make("clean-data", answer="yes\n")
    volumes = docker("volume", "ls", "-q", "--filter", f"name={stack.name}")
    assert volumes == ""
