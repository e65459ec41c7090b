"""Things that live as long as a worker process, and things that wrap each job."""

from collections.abc import AsyncIterator
from typing import Any

from taskq import CallNext, Context, TaskQ
from taskq.testing import running


async def test_a_lifespan_opens_what_jobs_share(app: TaskQ) -> None:
    """It is entered when a worker process starts and left when it ends; jobs find it in ``ctx.state``."""
    life: list[str] = []

    @app.lifespan
    async def resources() -> AsyncIterator[dict[str, str]]:
        life.append("opened")
        yield {"database": "connection"}
        life.append("closed")

    @app.task
    async def query(ctx: Context) -> str:
        return str(ctx.state["database"])

    async with running(app) as worker:
        job = await query.enqueue()
        await worker.drain()
        assert await job.result(timeout=5) == "connection"
        assert life == ["opened"]
    assert life == ["opened", "closed"]


async def test_a_middleware_wraps_each_job(app: TaskQ) -> None:
    """It sees the context, may do things before and after, and may change the result."""
    seen: list[str] = []

    @app.middleware
    async def around(ctx: Context, call_next: CallNext) -> Any:
        seen.append(f"before {ctx.job_type}")
        result = await call_next()
        seen.append(f"after {ctx.job_type}")
        return [result]

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async with running(app) as worker:
        job = await greet.enqueue("Ada")
        await worker.drain()
        assert await app.job(job.id).result(timeout=5) == ["Hello Ada"]
    assert seen == ["before greet", "after greet"]


async def test_the_first_middleware_is_the_outermost(app: TaskQ) -> None:
    """Those registered later are nearer to the function."""

    @app.middleware
    async def outer(ctx: Context, call_next: CallNext) -> Any:
        return f"outer({await call_next()})"

    @app.middleware
    async def inner(ctx: Context, call_next: CallNext) -> Any:
        return f"inner({await call_next()})"

    @app.task
    def job() -> str:
        return "job"

    async with running(app) as worker:
        handle = await job.enqueue()
        await worker.drain()
        assert await handle.result(timeout=5) == "outer(inner(job))"
