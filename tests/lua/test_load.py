"""Ageing under overload: a steady stream of high priorities cannot hold up a low one beyond the bound."""

from support.queue import Bench
from taskq import calls
from taskq.model import JobSpec
from taskq.ordering import overtaking_window_ms

AGING_MS = 1_000
HIGH, LOW = 10, 0
SERVICE_MS = 100.0
"""One job in this time: ten a second are served, twelve come."""


def test_low_priority_under_a_steady_load_of_120_percent(redis_url: str) -> None:
    """Whatever started before a low job became eligible before that one's time + difference * aging_ms."""
    bench = Bench.at(redis_url)
    bench.run(calls.configure(bench.keys, {"aging_ms": AGING_MS}, now=bench.now))
    start = bench.now
    eligible: dict[str, float] = {}
    started: list[str] = []
    lows = {"low-at-0": 0.0, "low-at-30": 30_000.0}
    arrivals = [(i * SERVICE_MS / 1.2, f"high-{i}", HIGH) for i in range(960)]
    arrivals += [(at + 0.5, name, LOW) for name, at in lows.items()]
    arrivals.sort()
    window = overtaking_window_ms(LOW, HIGH, AGING_MS)
    served = 0
    while len([name for name in started if name in lows]) < len(lows):
        now = start + (served + 1) * SERVICE_MS
        while arrivals and start + arrivals[0][0] < now:
            at, name, priority = arrivals.pop(0)
            eligible[name] = start + at
            spec = JobSpec(name, "t", b"{}", priority)
            bench.run(calls.enqueue(bench.keys, [spec], now=start + at))
        served += 1
        reply = bench.run(
            calls.claim(bench.keys, "w", served, 1, ["t"], lease_ms=10_000_000, now=now)
        )
        started += [job.ulid for job in reply.jobs]
        assert served < 900, "the low jobs never start"
    for low in lows:
        before = started[: started.index(low)]
        latest = max(eligible[name] for name in before)
        assert latest < eligible[low] + window
        # The bound is tight: the stream does overtake it for as long as it may.
        assert latest > eligible[low] + window - 2 * SERVICE_MS
