"""A running job can say how far it is, and leave lines in its log."""

from taskq import Context, TaskQ
from taskq.testing import InlineWorker


async def test_progress(app: TaskQ, worker: InlineWorker) -> None:
    """A fraction and a short text; the last one counts."""

    @app.task
    async def convert(ctx: Context) -> None:
        ctx.progress(0.5, "half way")
        ctx.progress(0.9, "nearly there")

    job = await convert.enqueue()
    await worker.drain()
    progress = (await job.info()).progress
    assert progress is not None
    assert (progress["fraction"], progress["message"]) == (0.9, "nearly there")


async def test_log_lines(app: TaskQ, worker: InlineWorker) -> None:
    """The last 200 are kept with the job, from threads too."""

    @app.task
    def convert(ctx: Context) -> None:
        ctx.log("reading")
        ctx.log("writing")

    job = await convert.enqueue()
    await worker.drain()
    assert [line["line"] for line in (await job.info()).log] == ["reading", "writing"]
