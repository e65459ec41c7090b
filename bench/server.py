"""What one job costs the server over its whole life, in SETs of the same server.

A life is submit, claim and finish of a job with a 10-byte payload and the result ``null``, under
the default settings. The CPU is the server process's own (user and system, all threads), so it
holds the sockets and the parsing of commands too. The unit is one SET of 10 bytes to a new key out
of pipelines of 100, measured on the same server just before each round; every figure is the median
over the rounds.

A batch of 100 is one call for 100 jobs, a batch of 1 one call a job; calls are round trips, never
pipelined. Jobs are worked on by workers of 100 slots and end in the order in which they started,
except for ``shuffled``, where they end in a random order. ``young`` is a queue that keeps all it
has finished. In the others retention has work to do: every finish strips as many old jobs as it
ends (``trimming``), and drops as many stubs as well (``steady``, which is where a busy queue spends
its life).
"""

import random
from dataclasses import dataclass

from bench.report import Figure, Plan, Section
from bench.rig import CommandCounter, Meter, Rig, Worker, fill, keys, median, rig, set_us, spec
from taskq import calls

SLOTS = 100
BUDGETS = {100: 36.0, 10: 60.0, 1: 220.0}
PHASES = ("enqueue", "claim", "finish")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run a queue: settings, jobs ended before, and the order of the ends."""

    name: str
    settings: dict[str, int]
    warm_up: int
    shuffled: bool = False
    persistent: bool = False
    budgeted: bool = True


MODES = (
    Mode("young", {}, 0),
    Mode("trimming", {"succeeded_max": 1000}, 2000),
    Mode("steady", {"succeeded_max": 1000, "dedup_max": 1000}, 4000),
    Mode(
        "shuffled", {"succeeded_max": 1000, "dedup_max": 1000}, 4000, shuffled=True, budgeted=False
    ),
    Mode(
        "with AOF",
        {"succeeded_max": 1000, "dedup_max": 1000},
        4000,
        persistent=True,
        budgeted=False,
    ),
)


def measure(plan: Plan) -> Section:
    """Figures per mode and batch: SETs per job, the split over the scripts, commands per job."""
    figures: list[Figure] = []
    for mode in MODES:
        with rig(persistent=mode.persistent) as server:
            figures += _measure_mode(server, mode, plan)
    return Section("server", "server CPU of one job's whole life, in pipelined SETs", figures)


def _measure_mode(server: Rig, mode: Mode, plan: Plan) -> list[Figure]:
    figures: list[Figure] = []
    totals: dict[int, list[float]] = {batch: [] for batch in BUDGETS}
    splits: dict[tuple[int, str], list[float]] = {}
    bases = []
    for _ in range(plan.pick(7, 3)):
        server.empty()
        base = set_us(server, plan.pick(50_000, 20_000))
        bases.append(base)
        server.empty()
        if mode.settings:
            server.wire.run(calls.configure(keys(), dict(mode.settings)))
        fill(server, 1000)
        for _ in range(mode.warm_up // SLOTS):
            life(server, SLOTS, SLOTS)
        for batch in BUDGETS:
            jobs = plan.pick({100: 10_000, 10: 5_000, 1: 2_000}[batch], 1_000)
            meter = Meter(server)
            for _ in range(jobs // 1000):
                life(server, 1000, batch, meter, shuffled=mode.shuffled)
            totals[batch].append(sum(meter.us.values()) / jobs / base)
            for phase, us in meter.us.items():
                splits.setdefault((batch, phase), []).append(us / jobs / base)
    for batch, budget in BUDGETS.items():
        split = ", ".join(f"{phase} {median(splits[batch, phase]):.1f}" for phase in PHASES)
        low, high = min(totals[batch]), max(totals[batch])
        figures.append(
            Figure(
                f"{mode.name}, batch {batch}",
                median(totals[batch]),
                "SETs per job",
                budget if mode.budgeted else None,
                note=f"{split}; rounds {low:.1f} to {high:.1f}",
            )
        )
    figures.append(Figure(f"{mode.name}, one SET", median(bases), "us of CPU"))
    if mode.name in ("young", "steady"):
        figures += [_commands(server, mode.name, batch) for batch in BUDGETS]
    return figures


def life(
    server: Rig,
    jobs: int,
    batch: int,
    meter: Meter | CommandCounter | None = None,
    *,
    shuffled: bool = False,
) -> None:
    """Takes ``jobs`` jobs through submit, claim and finish, phase by phase, in calls of ``batch``.

    As many stand in line before as after: what is submitted is not what is claimed.
    """
    meter = meter or Meter(server)
    specs = [[spec() for _ in range(batch)] for _ in range(jobs // batch)]
    with meter("enqueue"):
        for some in specs:
            server.wire.run(calls.enqueue(keys(), some))
    workers = [Worker(server) for _ in range(jobs // SLOTS)]
    with meter("claim"):
        held = [
            [job for _ in range(SLOTS // batch) for job in worker.claim(batch)]
            for worker in workers
        ]
    if shuffled:
        for mine in held:
            random.shuffle(mine)
    with meter("finish"):
        for worker, mine in zip(workers, held, strict=True):
            for at in range(0, SLOTS, batch):
                worker.finish(mine[at : at + batch])


def _commands(server: Rig, mode: str, batch: int) -> Figure:
    """Commands per job; ``evalsha`` among them are the calls themselves."""
    jobs = 1000
    counter = CommandCounter(server)
    life(server, jobs, batch, counter)
    split = "; ".join(
        f"{phase} {counted.total() / jobs:.2f} ("
        + ", ".join(f"{name} {n / jobs:.2f}" for name, n in counted.most_common())
        + ")"
        for phase, counted in counter.counts.items()
    )
    total = sum(counted.total() for counted in counter.counts.values())
    return Figure(f"{mode}, batch {batch}, commands", total / jobs, "per job", note=split)
