"""Options say when and how a job runs. They stand apart from the arguments of the function."""

from datetime import timedelta

import pytest

from taskq import JobFailed, ResultExpired, State, TaskQ, UniqueHeld
from taskq.testing import InlineWorker


async def test_a_delay(app: TaskQ, worker: InlineWorker) -> None:
    """Not before so many seconds are over."""
    ran: list[str] = []

    @app.task
    async def remind(what: str) -> None:
        ran.append(what)

    job = await remind.options(delay=60).enqueue("tea")
    assert job.state is State.SCHEDULED
    await worker.drain()
    assert ran == []
    worker.advance(60)
    await worker.drain()
    assert ran == ["tea"]


async def test_a_point_in_time(app: TaskQ, worker: InlineWorker) -> None:
    """``run_at`` needs a time zone, so that it means the same everywhere."""
    ran: list[str] = []

    @app.task
    async def remind(what: str) -> None:
        ran.append(what)

    await remind.options(run_at=worker.now + timedelta(days=1)).enqueue("tea")
    worker.advance(24 * 3600)
    await worker.drain()
    assert ran == ["tea"]


async def test_a_priority(app: TaskQ, worker: InlineWorker) -> None:
    """Higher is sooner."""
    order: list[str] = []

    @app.task
    async def note(what: str) -> None:
        order.append(what)

    await note.enqueue("usual")
    await note.options(priority=10).enqueue("urgent")
    await worker.drain()
    assert order == ["urgent", "usual"]


async def test_waiting_earns_priority(app: TaskQ, worker: InlineWorker) -> None:
    """One point is worth ten seconds: nothing that is urgent can hold up the rest for ever."""
    order: list[str] = []

    @app.task
    async def note(what: str) -> None:
        order.append(what)

    await note.enqueue("usual, but early")
    worker.advance(101)
    await note.options(priority=10).enqueue("urgent, but late")
    await worker.drain()
    assert order == ["usual, but early", "urgent, but late"]


async def test_defaults_of_a_task(app: TaskQ, worker: InlineWorker) -> None:
    """What holds for all jobs of a task is said where it is declared; a submission may differ."""

    @app.task(queue="mail", priority=5)
    async def send(to: str) -> None:
        pass

    usual = await (await send.enqueue("a@example.com")).info()
    special = await (await send.options(queue="bulk", priority=0).enqueue("b@example.com")).info()
    assert (usual.queue, usual.priority) == ("mail", 5)
    assert (special.queue, special.priority) == ("bulk", 0)


async def test_a_unique_key(app: TaskQ, worker: InlineWorker) -> None:
    """While a job with it lives, a second one is refused, and the error names the first."""

    @app.task
    async def report(month: str) -> None:
        pass

    first = await report.options(unique_key="report-may").enqueue("may")
    with pytest.raises(UniqueHeld) as refused:
        await report.options(unique_key="report-may").enqueue("may")
    assert refused.value.job_id == first.id
    await worker.drain()
    assert (await report.options(unique_key="report-may").enqueue("may")).created


async def test_an_idempotency_key(app: TaskQ, worker: InlineWorker) -> None:
    """The same submission twice is one job: for callers that try again and may have been heard before."""

    @app.task
    async def charge(order: int, cents: int) -> None:
        pass

    first = await charge.options(idempotency_key="order-7").enqueue(7, 1999)
    again = await charge.options(idempotency_key="order-7").enqueue(7, 1999)
    assert again.id == first.id
    assert (first.created, again.created) == (True, False)
    assert len(await worker.drain()) == 1


async def test_an_expiry(app: TaskQ, worker: InlineWorker) -> None:
    """A job that nobody took in time ends failed instead of running late."""

    @app.task
    async def traffic_news() -> None:
        raise AssertionError("never runs")

    job = await traffic_news.options(expires=300).enqueue()
    worker.advance(301)
    await worker.drain()
    with pytest.raises(JobFailed, match="Expired"):
        await job.result(timeout=5)


async def test_how_long_a_result_is_kept(app: TaskQ, worker: InlineWorker) -> None:
    """Afterwards it is still known that the job succeeded, but not with what."""

    @app.task(result_ttl=60)
    async def token() -> str:
        return "secret"

    job = await token.enqueue()
    await worker.drain()
    assert await job.result(timeout=5) == "secret"
    worker.advance(61)
    await worker.drain()
    with pytest.raises(ResultExpired):
        await job.result(timeout=5)
