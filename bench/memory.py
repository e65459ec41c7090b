"""What jobs cost in memory: the growth of the server's ``used_memory`` over many, per job.

Waiting jobs of one type in one queue, as ``taskq dev`` stores them (listpack limit 1024). The
growth holds the hashes, the line, and the server's own tables. For information also what is left of a job
that succeeded with the result ``null``, and of its stub once retention has dropped it.
"""

from bench.report import Figure, Plan, Section
from bench.rig import Rig, Worker, fill, keys, rig
from taskq import calls

BUDGETS: dict[int, float | None] = {10: 400.0, 200: None, 2000: None}


def measure(plan: Plan) -> Section:
    """Bytes per waiting job by payload size, and per ended one."""
    jobs = plan.pick(100_000, 20_000)
    figures = []
    for size, budget in BUDGETS.items():
        with rig() as server:
            fill(server, 1)
            before = server.memory()
            fill(server, jobs, payload=b'"' + b"x" * (size - 2) + b'"')
            per_job = (server.memory() - before) / jobs
        figures.append(
            Figure(f"waiting, payload of {size:,} bytes", per_job, "bytes per job", budget)
        )
    with rig() as server:
        figures += _ended(server, plan.pick(50_000, 10_000))
    return Section("memory", f"growth of used_memory, over {jobs:,} jobs", figures)


def _ended(server: Rig, jobs: int) -> list[Figure]:
    server.wire.run(calls.configure(keys(), {"succeeded_max": jobs}))
    before = server.memory()
    _succeed(server, jobs)
    ended = server.memory() - before
    # As many again push the first ones out, each into a stub.
    _succeed(server, jobs)
    stubs = server.memory() - before - ended
    return [
        Figure("succeeded, kept", ended / jobs, "bytes per job"),
        Figure("succeeded, stub", stubs / jobs, "bytes per job", note="for dedup_seconds"),
    ]


def _succeed(server: Rig, jobs: int) -> None:
    for _ in range(jobs // 100):
        fill(server, 100)
        worker = Worker(server)
        worker.finish(worker.claim(100))
