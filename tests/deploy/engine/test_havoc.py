"""5,000 jobs while containers of every kind are killed at random."""

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPException

import pytest

from support.stack import LEASE, SLACK, TICK, Stack, docker, quietly, seconds
from support.workers import until
from taskq.keys import Keys

JOBS = 5000
SUBMITTERS = 8
Q = Keys("taskq").queue("default")


@dataclass(frozen=True)
class Kill:
    """A container that was killed, and when it was there again, by the time of day."""

    service: str
    container: str
    at: float
    back: float


class Havoc:
    """Kills containers at random while jobs run, and knows which it killed when."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self.stack = stack
        self.dice = random.Random(seed)
        self.over = threading.Event()
        self.kills: list[Kill] = []

    def run(self) -> None:
        # Each service once, whatever the dice say.
        services = ["redis", "api", "janitor", "worker"]
        pause = 0.0
        while not self.over.wait(self.dice.uniform(0.3, 1.5) + pause):
            weighted = ["worker", "worker", "api", "janitor", "redis"]
            began = time.monotonic()
            self.strike(services.pop() if services else self.dice.choice(weighted))
            # The longer it was down, the longer it is left alone: a slow machine must get to work, too.
            pause = (time.monotonic() - began) / 3

    def strike(self, service: str) -> None:
        victim = self.dice.choice(self.stack.containers(service))
        at = time.time()
        if service != "redis" and self.dice.random() < 0.4:
            # All but process 1, which then ends too: the engine starts the container again.
            docker("exec", victim, "sh", "-c", "kill -9 -1", check=False)
        else:
            docker("kill", victim)
            time.sleep(self.dice.uniform(0, 2))
            docker("start", victim)
        until(lambda: victim in self.stack.containers(service), 60, f"{service} runs again")
        until(quietly(lambda: self.stack.request("/ready")[0] == 200), 180, "jobs are taken again")
        self.kills.append(Kill(service, victim, at, time.time()))

    def last_outage(self, worker: str, before: float) -> float:
        """When the container of ``worker`` was killed, or when Redis came back after that.

        Of a worker that was not killed: when Redis came back, without which no lease could be renewed. Raises
        ``AssertionError`` where it was neither.
        """
        bound = LEASE + TICK + SLACK
        killed = [k.at for k in self.kills if worker.startswith(k.container[:12]) and k.at < before]
        since = max(killed, default=before - bound)
        away = [k for k in self.kills if k.service == "redis" and since - LEASE < k.at < before]
        told = [(k.service, round(before - k.at, 1), round(before - k.back, 1)) for k in self.kills]
        assert killed or away, f"{worker} lost its lease for nothing; before that: {told}"
        if not killed:
            print(
                f"not killed, but without Redis: {worker}, {[k for k in told if k[0] == 'redis']}"
            )
        return max([*killed, *(min(k.back, before) for k in away)])


def submit_all(stack: Stack, ids: dict[int, str]) -> list[threading.Thread]:
    def some(first: int) -> None:
        for number in range(first, JOBS, SUBMITTERS):
            ids[number] = stack.submit("nap", {"number": number, "seconds": 0.4}, key=f"n{number}")

    threads = [threading.Thread(target=some, args=(n,)) for n in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    return threads


def wait_ended(stack: Stack, count: int) -> None:
    """For as long as jobs go on ending: how quickly depends on the machine."""
    most, since = 0, time.monotonic()
    while most < count:
        with contextlib.suppress(OSError, ValueError, HTTPException, AssertionError):
            ended = stack.count("succeeded", "failed", "cancelled")
            if ended > most:
                most, since = ended, time.monotonic()
        assert time.monotonic() - since < 90, f"nothing ends any more, after {most} jobs"
        time.sleep(0.1)


@pytest.mark.slow
def test_5000_jobs_survive_containers_killed_at_random(stack: Stack) -> None:
    """None is lost, each ends exactly once, and what a killed worker held is back in time."""
    stack.make("scale-worker", "N=3")
    stack.wait_workers(3)
    before = _ended_as_counted(stack)
    seed = int(os.environ.get("TASKQ_TEST_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}")
    havoc = Havoc(stack, seed)
    killer = threading.Thread(target=havoc.run)
    killer.start()
    ids: dict[int, str] = {}
    began = time.monotonic()
    try:
        for thread in submit_all(stack, ids):
            thread.join()
        wait_ended(stack, JOBS // 2)
    finally:
        havoc.over.set()
        killer.join()
    stack.make("scale-worker", "N=1")
    wait_ended(stack, JOBS)
    print(f"{JOBS} jobs in {time.monotonic() - began:.0f} s, kills: {_by_service(havoc)}")
    assert len(set(ids.values())) == JOBS
    shown = _all_jobs(stack, ids)
    assert {job["state"] for job in shown.values()} == {"succeeded"}
    assert all(int(job["result"]) == number for number, job in shown.items())
    assert _ended_as_counted(stack) - before == JOBS, "none ended twice"
    _check_recovery(stack, havoc, ids, shown)


def _by_service(havoc: Havoc) -> dict[str, int]:
    return dict(Counter(kill.service for kill in havoc.kills))


def _all_jobs(stack: Stack, ids: dict[int, str]) -> dict[int, dict[str, str]]:
    client = stack.redis()
    pipe = client.pipeline(transaction=False)
    for job_id in ids.values():
        pipe.hgetall(Q.job(job_id.partition(":")[2]))
    found = dict(zip(ids, pipe.execute(), strict=True))
    missing = [ids[number] for number, job in found.items() if not job]
    assert not missing, missing
    return found


def _ended_as_counted(stack: Stack) -> int:
    """How many ends the scripts have counted: one for each outcome that was written."""
    words = ("taskq", "stats", "--json", "--minutes", "2880")
    document = json.loads(docker("exec", stack.one("janitor"), *words))
    return sum(
        kind["counts"].get(state, 0)
        for queue in document["queues"]
        for kind in queue["types"]
        for state in ("succeeded", "failed", "cancelled")
    )


def _check_recovery(
    stack: Stack, havoc: Havoc, ids: dict[int, str], shown: dict[int, dict[str, str]]
) -> None:
    """What a killed worker held was back in line within lease + tick + 2 s of the last outage."""
    lost = [ids[number] for number, job in shown.items() if int(job.get("lost", 0))]
    times = []
    for job in lost:
        for event in stack.get(f"/jobs/{job}")["history"]:
            if event["event"] == "lost":
                at = seconds(event["at"])
                times.append(at - havoc.last_outage(event["worker"], at))
    worst = max(times, default=0.0)
    print(f"{len(lost)} jobs were lost by killed containers, back in line within {worst:.2f} s")
    assert worst < LEASE + TICK + SLACK
