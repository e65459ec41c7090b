"""Hosts whose wire is cut: nothing gets through either way, and no end of a connection is seen."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.faults import LEASE, RECOVERY, Place, Process, last, until
from support.network import Host, network, why_not

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]


@contextmanager
def hosts(place: Place, n: int) -> Iterator[tuple[str, list[Host]]]:
    """(URL of the server as the hosts reach it, the hosts)."""
    with network() as net:
        place.admin.config_set("bind", f"127.0.0.1 {net.address}")
        place.admin.config_set("protected-mode", "no")
        try:
            yield f"redis://{net.address}:{place.port}/0", [net.host() for _ in range(n)]
        finally:
            for process in place.processes:
                process.kill()


def worker_on(place: Place, host: Host, url: str) -> Process:
    return place.worker("-c", "10", prefix=host.prefix, TASKQ_REDIS_URL=url)


@contextmanager
def cut(place: Place, host: Host, *cut_off: Process) -> Iterator[None]:
    for process in cut_off:
        place.disturb(*process.tree())
    host.cut()
    try:
        yield
    finally:
        host.mend()


@pytest.mark.beside(seconds=25)
def test_a_host_is_cut_off_for_longer_than_a_lease(place: Place) -> None:
    """F05, F14: its jobs run elsewhere; what it reports late is refused, and then it works on."""
    with hosts(place, 2) as (url, (one, two)):
        first = worker_on(place, one, url)
        gate = place.folder / "gate"
        jobs = place.submit("work", [{"gate": str(gate)}] * 10)
        place.wait_started(10)
        second = worker_on(place, two, url)
        with cut(place, one, first):
            began = time.time()
            until(lambda: len(place.ledger.starts()) >= 20, RECOVERY + 20, "they run elsewhere")
            gate.touch()
            last(0.5)
        mended = time.time()
        recovered = max(run.at for run in place.ledger.starts()[10:]) - began
        place.wait_ended(jobs, 30)
        second.stop()
        (after,) = place.submit("work", 1)
        until(lambda: place.ledger.starts(after), 8, "the host that was cut off works on")
        works = place.ledger.starts(after)[0].at - mended
        v = place.verdict(20)
        assert v.duplicated == 10
        assert all(len(place.ledger.starts(job)) == 2 for job in jobs)
        place.note(f"{v.figures()} all_elsewhere_after={recovered:.1f}s works_again={works:.1f}s")


@pytest.mark.beside(seconds=15)
def test_a_host_is_cut_off_for_less_than_a_lease(place: Place) -> None:
    """Nothing runs twice, and what ended meanwhile is delivered."""
    with hosts(place, 2) as (url, (one, two)):
        first = worker_on(place, one, url)
        place.submit("work", [{"seconds": 0.3}] * 5 + [{"seconds": LEASE}] * 5)
        place.wait_started(10)
        worker_on(place, two, url)
        last(0.1)
        with cut(place, one, first):
            last(0.4 * LEASE)
        v = place.verdict(20)
        assert not v.duplicated
        place.note(v.figures())


@pytest.mark.parametrize("seconds", [0.5, LEASE, 3 * LEASE])
@pytest.mark.beside(seconds=20)
def test_an_idle_host_is_cut_off(place: Place, seconds: float) -> None:
    """F49: a worker that waits for work over a dead connection consumes again within 5 s of the mend."""
    with hosts(place, 1) as (url, (one,)):
        worker = worker_on(place, one, url)
        place.submit("work", 1)
        place.verdict(10)
        with cut(place, one, worker):
            place.submit("work", 3)
            last(seconds)
        mended = time.time()
        until(lambda: len(place.ledger.starts()) >= 4, 5, "it consumes again")
        took = max(run.at for run in place.ledger.starts()) - mended
        v = place.verdict(20)
        assert not v.duplicated
        place.note(f"cut for {seconds} s: {v.figures()} consuming_after={took:.2f}s")


POST = """
import json, sys, urllib.error, urllib.request
url, key = sys.argv[1:]
body = json.dumps({"job_type": "work"}).encode()
headers = {"Content-Type": "application/json", "Idempotency-Key": key}
try:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
        print(answer.status, json.load(answer)["id"])
except urllib.error.HTTPError as error:
    print(error.code, error.headers["Retry-After"])
"""


@pytest.mark.beside(seconds=25)
def test_an_api_is_cut_off(place: Place) -> None:
    """F49: it answers 503 while it is, and a client that repeats under its key has one job."""

    def post(key: str) -> list[str]:
        """From the API's own host."""
        words = [*one.prefix, sys.executable, "-c", POST, f"{api.url}/jobs", key]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    with hosts(place, 1) as (url, (one,)):
        api = place.api(prefix=one.prefix, TASKQ_REDIS_URL=url)
        status, first = post("one")
        assert status == "201"
        one.cut()
        began = time.monotonic()
        status, after = post("two")
        refused_in = time.monotonic() - began
        one.mend()
        assert (status, after) == ("503", "2")
        assert refused_in < 10
        answers = [post("two"), post("two"), post("one")]
        assert len({job for _, job in answers[:2]}) == 1
        assert answers[1:] == [["200", answers[0][1]], ["200", first]]
        assert place.counts()["queued"] == 2
        place.note(f"refused after {refused_in:.1f}s")
