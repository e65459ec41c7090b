"""A worker that is up, without an error, and takes no jobs any more: outages by length, kind and load."""

import time
from collections.abc import Sequence

import pytest

from support.faults import Place, Process, half_open, kill_connections, last, server_killed, until
from support.relay import Relay

pytestmark = pytest.mark.beside

BLOCK = 1.0
"""The longest blocking wait of the fetcher."""
LIMIT = BLOCK + 5

CELLS = {
    "connections killed": [(0.0, "idle"), (0.0, "busy"), (0.0, "five times")],
    "server restarted": [(0.2, "busy"), (BLOCK + 0.1, "idle"), (0.2, "five times")],
    "half-open": [(BLOCK - 0.1, "idle"), (BLOCK + 2, "busy"), (0.2, "five times")],
    "cut by RST, refused": [(BLOCK, "busy"), (BLOCK + 2, "idle"), (0.2, "five times")],
    "cut by FIN, then hangs": [(0.2, "idle"), (BLOCK + 0.1, "busy"), (0.2, "five times")],
}
"""Each pair of kind, length and load once or more, instead of all triples."""
LENGTHS = (0.2, BLOCK - 0.1, BLOCK, BLOCK + 0.1, BLOCK + 2)
WHOLE = [(seconds, load) for seconds in LENGTHS for load in ("idle", "busy", "five times")]
DURABLE = {"persistent": True, "appendfsync": "always"}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.beside(seconds=25, server=DURABLE)
def test_f49_consumes_after_every_outage(place: Place, kind: str) -> None:
    """F49: after each outage one new job starts within B + 5 s, and what ran before runs once."""
    _cells(place, kind, CELLS[kind])


@pytest.mark.slow_fault
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.beside(seconds=150, server=DURABLE)
def test_f49_consumes_after_every_outage_of_the_whole_matrix(place: Place, kind: str) -> None:
    """F49 in full: every kind, length and load."""
    _cells(place, kind, WHOLE)


def _cells(place: Place, kind: str, cells: Sequence[tuple[float, str]]) -> None:
    relay = place.relay()
    worker = place.worker("-c", "10", TASKQ_REDIS_URL=relay.url)
    for seconds, load in cells:
        if load == "busy":
            before = len(place.ledger.starts())
            place.submit("work", [{"seconds": seconds + 0.5}] * 10)
            place.wait_started(before + 10)
        for _ in range(5 if load == "five times" else 1):
            _outage(place, relay, worker, kind, seconds)
            if load == "five times":
                last(0.3)
        began = time.time()
        (job,) = place.submit("work", 1, tries=20)
        until(lambda job=job: place.ledger.starts(job), LIMIT, f"{kind}, {seconds} s, {load}")
        took = place.ledger.starts(job)[0].at - began
        place.note(f"{kind}, {seconds:.1f} s, {load}: next job after {took:.2f} s")
    assert worker.alive
    v = place.verdict(30)
    place.note(f"{kind}: {v.figures()}")


def _outage(place: Place, relay: Relay, worker: Process, kind: str, seconds: float) -> None:
    match kind:
        case "connections killed":
            with place.outage():
                kill_connections(place)
        case "server restarted":
            with server_killed(place):
                last(seconds)
        case "half-open":
            with half_open(place, relay):
                last(seconds)
        case "cut by RST, refused":
            with place.outage():
                relay.refuse()
                assert relay.cut("rst") > 0
                last(seconds)
                relay.accept()
        case "cut by FIN, then hangs":
            with place.outage():
                relay.freeze()
                assert relay.cut("fin") > 0
                accepted = relay.accepted
                last(seconds)
                until(lambda: relay.accepted > accepted, 5, "somebody hangs")
                relay.thaw()


@pytest.mark.beside(seconds=25)
def test_f49_connections_that_never_answer_again(place: Place) -> None:
    """F49: all present connections fall silent for good, new ones work (a firewall forgot them)."""
    relay = place.relay()
    place.worker("-c", "10", TASKQ_REDIS_URL=relay.url)
    with place.outage():
        relay.forget()
        began = time.time()
        (job,) = place.submit("work", 1)
        until(lambda: place.ledger.starts(job), 30, "it starts at last")
    took = place.ledger.starts(job)[0].at - began
    place.note(f"connections that vanished: next job after {took:.2f} s")
    assert took < LIMIT, f"{took:.1f} s"
    place.verdict(30)
