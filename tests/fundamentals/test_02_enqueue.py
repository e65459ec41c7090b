"""``enqueue`` stores a job; a worker runs it; ``result`` waits for the end."""

from dataclasses import dataclass
from datetime import date

from taskq import State, TaskQ
from taskq.testing import InlineWorker


async def test_a_job_is_stored_with_the_arguments_of_the_function(
    app: TaskQ, worker: InlineWorker
) -> None:
    """``enqueue`` takes what the function takes, and answers once the job is safe."""

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    job = await greet.enqueue("Ada")
    assert job.state is State.QUEUED


async def test_a_worker_runs_it(app: TaskQ, worker: InlineWorker) -> None:
    """``result`` answers what the function answered."""

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    job = await greet.enqueue(name="Ada")
    await worker.drain()
    assert await job.result(timeout=5) == "Hello Ada"


async def test_plain_functions_run_too(app: TaskQ, worker: InlineWorker) -> None:
    """In a thread, so that they may block."""

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = await add.enqueue(1, b=2)
    await worker.drain()
    assert await job.result(timeout=5) == 3


async def test_type_hints_say_what_arguments_become(app: TaskQ, worker: InlineWorker) -> None:
    """They travel as JSON, and arrive as what the function's hints say."""

    @dataclass
    class Guest:
        name: str
        born: date

    @app.task
    async def year_of_birth(guest: Guest) -> int:
        return guest.born.year

    job = await year_of_birth.enqueue(Guest("Ada", date(1815, 12, 10)))
    await worker.drain()
    assert await job.result(timeout=5) == 1815


async def test_sync_code_has_the_same(app: TaskQ, worker: InlineWorker) -> None:
    """Every call that waits has a twin that ends in ``_sync``."""

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    job = greet.enqueue_sync("Ada")
    await worker.drain()
    assert job.result_sync(timeout=5) == "Hello Ada"


async def test_many_jobs_are_stored_in_one_go(app: TaskQ, worker: InlineWorker) -> None:
    """``spec`` makes a submission without sending it; ``enqueue_many`` sends a thousand at once."""

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    jobs = await app.enqueue_many([double.spec(n) for n in range(1000)])
    await worker.run_next()
    assert len(jobs) == 1000
    assert await jobs[0].result(timeout=5) == 0
