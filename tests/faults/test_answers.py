"""What the API answered is what is stored, whatever Redis and the client do in the moment of the call."""

import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from support.faults import Api, Place, fill, last, loading, memory_full, readonly, until

pytestmark = pytest.mark.beside


def _refused(api: Api, kind: str) -> None:
    """503 with a time to come back, for one job and for many."""
    job = {"job_type": "work", "payload": {}}
    for path, body in (("/jobs", job), ("/jobs/batch", {"jobs": [job, job]})):
        status, answer, headers = api.send("POST", path, body)
        assert status == 503, (kind, path, status, answer)
        assert int({k.title(): v for k, v in headers.items()}["Retry-After"]) > 0


@pytest.mark.beside(seconds=20)
def test_f08_no_answer_without_a_job(place: Place) -> None:
    """F08: memory full, read-only, loading, under a stream of submissions: each 2xx can be read, no other is
    stored twice or half."""
    fill(place)
    api = place.api()
    stop = threading.Event()
    answered: list[tuple[int, str]] = []

    def feed(n: int) -> None:
        k = 0
        while not stop.is_set():
            k += 1
            key = f"feeder-{n}-{k}"
            status, body, _ = api.send(
                "POST", "/jobs", {"job_type": "work", "payload": {"n": k}}, Idempotency_Key=key
            )
            answered.append((status, body["id"] if status in (200, 201) else ""))

    feeders = [threading.Thread(target=feed, args=(n,)) for n in range(3)]
    for feeder in feeders:
        feeder.start()
    try:
        for kind, fault in (("oom", memory_full), ("readonly", readonly), ("loading", loading)):
            last(0.4)
            with fault(place):
                _refused(api, kind)
                last(0.5)
        last(0.4)
    finally:
        stop.set()
        for feeder in feeders:
            feeder.join()
    ids = [job_id for status, job_id in answered if status in (200, 201)]
    refused = [status for status, _ in answered if status not in (200, 201)]
    assert ids
    assert refused
    assert set(refused) == {503}
    assert len(set(ids)) == len(ids)
    missing = [i for i, job in place.jobs(ids).items() if job is None]
    assert not missing, f"{len(missing)} of {len(ids)} were answered and are not there"
    assert not place.findings()
    place.note(f"acknowledged={len(ids)} refused={len(refused)} missing={len(missing)}")


@pytest.mark.beside(seconds=10)
def test_f08_clients_that_hang_up(place: Place) -> None:
    """F08: a client that closes its socket with the last byte: its job is there once or not at all, and its
    repeat says which."""
    api = place.api()
    where = urlsplit(api.url)
    body = json.dumps({"job_type": "work", "payload": {}}).encode()
    for n in range(50):
        head = (
            f"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nIdempotency-Key: gone-{n}\r\n\r\n"
        )
        with socket.create_connection((where.hostname, where.port), timeout=10) as client:
            client.sendall(head.encode() + body)
    stored = set()
    for n in range(50):
        status, answer, _ = api.send("POST", "/jobs", json.loads(body), Idempotency_Key=f"gone-{n}")
        assert status in (200, 201), answer
        stored.add(answer["id"])
    assert len(stored) == place.counts()["queued"] == 50
    assert "Traceback" not in api.process.text()


@pytest.mark.beside(seconds=30)
def test_f91_the_time_that_is_printed(place: Place) -> None:
    """F91: nothing tuned, a host dies: its job runs again within a lease of 15 s, a janitor's round of 2 s
    and the start of a process, as the README says."""
    plain = {"TASKQ_LEASE_SECONDS": "", "TASKQ_JANITOR_SECONDS": "", "TASKQ_GRACE_SECONDS": ""}
    first = place.worker("-c", "5", **plain)
    (job,) = place.submit("work", [{"gate": str(place.folder / "gate")}])
    place.wait_started(1)
    second = place.worker("-c", "5", **plain)
    place.kill(first)
    died = place.disturbed[first.pid]
    until(lambda: len(place.ledger.starts(job)) == 2, 40, "it runs again")
    took = place.ledger.starts(job)[1].at - died
    (place.folder / "gate").touch()
    v = place.verdict(20)
    assert second.alive
    assert took < 15 + 2 + 4, f"after {took:.1f} s"
    place.note(f"{v.figures()} default settings: runs again after {took:.1f} s")
