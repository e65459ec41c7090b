"""A service that does not hold the code of a task submits by its name."""

import pytest

from taskq import JobFailed, State, TaskQ, TaskqError
from taskq.testing import InlineWorker


async def test_submit_by_name(app: TaskQ, worker: InlineWorker) -> None:
    """The payload is a JSON object of the function's named arguments; it is what the REST API uses."""

    @app.task
    async def greet(name: str, greeting: str = "Hello") -> str:
        return f"{greeting} {name}"

    job = await app.submit("greet", {"name": "Ada"}, priority=3)
    await worker.drain()
    assert await job.result(timeout=5) == "Hello Ada"


async def test_a_name_that_no_worker_knows_waits(app: TaskQ, worker: InlineWorker) -> None:
    """Until a worker comes that does."""
    job = await app.submit("new_in_the_next_release", {})
    assert await worker.drain() == []
    assert (await job.info()).state is State.QUEUED


async def test_arguments_are_checked_where_they_are_used(app: TaskQ, worker: InlineWorker) -> None:
    """A payload that does not fit the function fails at once: trying again would not help."""

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job = await app.submit("double", {"n": "many"})
    await worker.drain()
    with pytest.raises(JobFailed, match="n: Input should be a valid integer"):
        await job.result(timeout=5)


async def test_what_is_not_json_is_refused(app: TaskQ, worker: InlineWorker) -> None:
    """Before anything is stored."""
    with pytest.raises(TaskqError, match="payload"):
        await app.submit("anything", {"n": float("nan")})


async def test_a_job_is_found_by_its_id(app: TaskQ, worker: InlineWorker) -> None:
    """The id is all that another service needs to ask for the result."""

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job_id = (await double.enqueue(21)).id
    await worker.drain()
    assert await app.job(job_id).result(timeout=5) == 42
