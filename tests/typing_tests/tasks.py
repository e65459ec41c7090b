"""Checked by mypy in strict mode, never run: ``enqueue`` is typed like the function it was made of.

Each ``type: ignore`` is a mistake that must be found: an unused one is an error too.
"""

from typing import Any, assert_type

from taskq import BoundTask, Context, JobHandle, RegisteredTask, TaskQ

app = TaskQ()


@app.task
async def bare(a: int, b: str = "") -> float:
    return a + len(b)


@app.task(queue="mail", priority=5)
async def told(a: int) -> list[str]:
    return [str(a)]


@app.task
async def context_first(ctx: Context, a: int) -> str:
    return ctx.job_id * a


@app.task(timeout=5)
async def context_first_told(ctx: Context, a: int) -> str:
    return ctx.job_id * a


@app.task
def plain(a: int) -> bytes:
    return bytes(a)


@app.task(max_attempts=1)
def plain_told(ctx: Context, *, a: int) -> bytes:
    return bytes(a)


async def submissions() -> None:
    assert_type(await bare.enqueue(1), JobHandle[float])
    assert_type(await bare.enqueue(1, b="x"), JobHandle[float])
    assert_type(bare.enqueue_sync(1), JobHandle[float])
    assert_type(await told.enqueue(a=1), JobHandle[list[str]])
    assert_type(await context_first.enqueue(1), JobHandle[str])
    assert_type(await context_first_told.enqueue(a=1), JobHandle[str])
    assert_type(await plain.enqueue(1), JobHandle[bytes])
    assert_type(plain_told.enqueue_sync(a=1), JobHandle[bytes])


async def results() -> None:
    assert_type(await (await bare.enqueue(1)).result(), float)
    assert_type(told.enqueue_sync(1).result_sync(timeout=1), list[str])
    assert_type(await (await context_first.enqueue(1)).result(timeout=1), str)
    assert_type(await (await app.submit("bare", {"a": 1})).result(), Any)


async def options() -> None:
    bound = context_first.options(delay=60, unique_key="k")
    assert_type(await bound.enqueue(1), JobHandle[str])
    task: RegisteredTask[[int], str] = context_first
    kept: BoundTask[[int], str] = bound
    await task.enqueue(1)
    await kept.enqueue(1)


async def mistakes() -> None:
    await bare.enqueue()  # type: ignore[call-arg]
    await bare.enqueue("1")  # type: ignore[arg-type]
    await bare.enqueue(1, c=2)  # type: ignore[call-arg]
    await bare.enqueue(1, "", 3)  # type: ignore[call-arg]
    await told.enqueue(b=1)  # type: ignore[call-arg]
    await context_first.enqueue(Context.detached(), 1)  # type: ignore[call-arg, arg-type]
    await context_first.enqueue(ctx=Context.detached(), a=1)  # type: ignore[call-arg]
    plain_told.enqueue_sync(1)  # type: ignore[call-arg]
    plain_told.options(delay=1).enqueue_sync(b=1)  # type: ignore[call-arg]
    bare.options(dealy=60)  # type: ignore[call-arg]
    bare.options(delay="60")  # type: ignore[arg-type]
    app.task(queue=5)  # type: ignore[call-overload]
    app.task(retries=5)  # type: ignore[call-overload]
