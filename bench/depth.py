"""What a claim costs when many jobs wait: server CPU per claimed job by depth and by types.

Each depth has a server of its own, all running at once, so that the rounds take turns and meet the
same noise; nothing but that depth is in a server's memory. Only the claims are on the clock;
between them the jobs are finished and as many put in line, so that the depth stays. The budget is
on the cost at 1,000,000 waiting jobs as a multiple of that at 100,000: the median of the ratios of
the rounds.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.report import Figure, Plan, Section
from bench.rig import Meter, Rig, Worker, fill, keys, median, rig
from taskq import calls

BATCHES = (100, 1)
BUDGET = 1.15
BASE = 100_000


@dataclass(slots=True)
class Line:
    """One server with ``depth`` waiting jobs over ``types`` types.

    ``costs`` holds microseconds per claimed job by batch, a value a round.
    """

    depth: int
    types: int
    server: Rig
    costs: dict[int, list[float]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [f"type{i:03}" for i in range(self.types)]

    @property
    def title(self) -> str:
        return f"{self.depth:,} waiting" + (f", {self.types} types" if self.types > 1 else "")


def measure(plan: Plan) -> Section:
    """Claim cost by depth, relative to 100,000 waiting jobs of one type."""
    depths = [1_000, BASE, 1_000_000] + ([10_000_000] if plan.full else [])
    if plan.quick:
        depths = [1_000, 10_000, 100_000]
    base_depth = depths[1]
    with ExitStack() as stack:
        lines = [Line(depth, 1, stack.enter_context(rig())) for depth in depths]
        lines += [Line(base_depth, 100, stack.enter_context(rig()))]
        for line in lines:
            line.server.wire.run(
                calls.configure(keys(), {"succeeded_max": 1000, "dedup_max": 1000})
            )
            fill(line.server, line.depth, job_types=line.names)
        for turn in range(plan.pick(24, 4)):
            for batch in BATCHES:
                for line in lines if turn % 2 else reversed(lines):
                    cost = _claims(line, batch, {100: 1_000, 1: 200}[batch])
                    line.costs.setdefault(batch, []).append(cost)
    figures = []
    for batch in BATCHES:
        base = lines[1].costs[batch]
        for line in lines:
            ratio = median(a / b for a, b in zip(line.costs[batch], base, strict=True))
            budget = BUDGET if line.depth == 10 * BASE else None
            name = f"{line.title}, batch {batch}"
            note = f"{median(line.costs[batch]):.1f} us of CPU per claimed job"
            if line is not lines[1]:
                figures.append(Figure(name, ratio, f"x {base_depth:,}", budget, note=note))
            else:
                figures.append(Figure(name, median(base), "us per job", note="the base"))
    return Section("depth", "server CPU of a claim by waiting jobs", figures)


def _claims(line: Line, batch: int, jobs: int) -> float:
    meter = Meter(line.server)
    # The first hundred bring what is always the same back into the caches, off the clock.
    for turn in ["warm up"] + ["claim"] * (jobs // 100):
        worker = Worker(line.server, line.names)
        with meter(turn):
            claimed = [job for _ in range(100 // batch) for job in worker.claim(batch)]
        worker.finish(claimed)
        fill(line.server, 100, job_types=line.names)
    return meter.us["claim"] / jobs
