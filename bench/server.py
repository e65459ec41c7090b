"""What one job costs the server over its whole life, in SETs of the same server.

A life is submit, claim and finish of a job with a 10-byte payload and the result ``null``, under
the default settings. The CPU is the server process's own (user and system, all threads), so it
holds the sockets and the parsing of commands too. The unit is one SET of 10 bytes to a new key out
of pipelines of 100, measured on the same server just before and just after each round, since the
speed of a shared machine changes within seconds; every figure is the median over the rounds.

A batch of 100 is one call for 100 jobs, a batch of 1 one call a job; calls are round trips, never
pipelined. Jobs are worked on by workers of 100 slots and end in the order in which they started,
except for ``shuffled``, where they end in a random order. ``young`` is a queue that keeps all it
has finished. In the others retention has work to do: every finish strips as many old jobs as it
ends (``trimming``), and drops as many stubs as well (``steady``, which is where a busy queue spends
its life).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.report import Figure, Plan, Section
from bench.rig import (
    CommandCounter,
    Meter,
    Rig,
    Worker,
    Yardstick,
    fill,
    keys,
    median,
    middle_half,
    rig,
    spec,
)
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
    yardstick = Yardstick(server)
    if mode.settings:
        server.wire.run(calls.configure(keys(), dict(mode.settings)))
    fill(server, 1000)
    for _ in range(mode.warm_up // SLOTS):
        life(server, SLOTS, SLOTS)
    units = [yardstick.us()]
    costs: dict[int, list[dict[str, float]]] = {batch: [] for batch in BUDGETS}
    for _ in range(plan.pick(20, 5)):
        for batch in BUDGETS:
            jobs = 500 if batch == 1 else 1000
            meter = Meter(server)
            life(server, jobs, batch, meter, shuffled=mode.shuffled)
            units.append(yardstick.us())
            unit = (units[-2] + units[-1]) / 2
            costs[batch].append({phase: us / jobs / unit for phase, us in meter.us.items()})
    yardstick.close()
    figures = [
        _figure(mode, batch, rounds, BUDGETS[batch] if mode.budgeted else None)
        for batch, rounds in costs.items()
    ]
    figures.append(Figure(f"{mode.name}, one SET", median(units), "us of CPU"))
    if mode.name in ("young", "steady"):
        figures += [_commands(server, mode.name, batch) for batch in BUDGETS]
    return figures


def _figure(
    mode: Mode, batch: int, rounds: Sequence[dict[str, float]], budget: float | None
) -> Figure:
    totals = [sum(costs.values()) for costs in rounds]
    split = ", ".join(f"{phase} {median(c[phase] for c in rounds):.1f}" for phase in PHASES)
    low, high = middle_half(totals)
    note = f"{split}; half of the rounds {low:.1f} to {high:.1f}"
    return Figure(f"{mode.name}, batch {batch}", median(totals), "SETs per job", budget, note=note)


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
