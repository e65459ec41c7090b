"""How much of the scripts' rate a worker keeps.

Jobs per second of one worker process with no-op async jobs and 100 slots, as a share of a bare
claim(100) and finish(100) loop (``bench.bare``). Both drain the same backlog on the same server, by
turns, and both are watched from outside in the same way: the rate between the first and the last
tenth of the jobs, by the number of succeeded ones, so that the start of a process does not count.
"""

from contextlib import AbstractContextManager

from bench import process
from bench.report import Figure, Plan, Section
from bench.rig import Rig, fill, keys, median, rig
from taskq.states import State

BUDGET = 75.0


def measure(plan: Plan) -> Section:
    """The worker's rate in percent of the bare loop's; the bare rate alone without a worker."""
    jobs = plan.pick(30_000, 20_000)
    missing = process.worker_missing()
    bare: list[float] = []
    worker: list[float] = []
    with rig() as server:
        for _ in range(plan.pick(9, 2)):
            bare.append(_rate(server, process.module("bare", server.url), jobs))
            if not missing:
                worker.append(_rate(server, process.worker(server.url), jobs))
    figures = [Figure("bare loop", median(bare), "jobs per s", note=_spread(bare))]
    if worker:
        share = [100 * w / b for w, b in zip(worker, bare, strict=True)]
        figures += [
            Figure("one worker process", median(worker), "jobs per s", note=_spread(worker)),
            Figure("worker / bare loop", median(share), "%", BUDGET, True, _spread(share)),
        ]
    notes = [f"The worker was not measured: {missing}."] if missing else []
    return Section(
        "drain", f"one worker process against a bare loop, {jobs:,} jobs", figures, notes
    )


def _rate(server: Rig, running: AbstractContextManager[object], jobs: int) -> float:
    server.empty()
    fill(server, jobs, payload=b"{}")  # no arguments
    done = keys().state(State.SUCCEEDED)

    def ended() -> int:
        return int(server.wire.command("ZCARD", done))

    with running:
        first = process.wait_for(lambda: ended() >= jobs // 10, "the first tenth")
        n = ended()
        last = process.wait_for(lambda: ended() >= jobs * 9 // 10, "the drain", 300)
        return (ended() - n) / (last - first)


def _spread(values: list[float]) -> str:
    return f"rounds {min(values):,.0f} to {max(values):,.0f}"
