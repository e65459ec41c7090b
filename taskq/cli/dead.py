"""``taskq dead``: the dead letters, which are the jobs in state failed."""

from collections.abc import AsyncIterator, Sequence

import click

from taskq import calls
from taskq.cli.jobs import each, more, page_to_dict, pages, retry_one
from taskq.cli.options import acting, connection_options, cursor_options, json_option, run
from taskq.cli.queues import confirm
from taskq.cli.show import error_text
from taskq.cli.tables import age, counted, echo_json, shorten, table
from taskq.errors import TaskqError, WrongState
from taskq.ids import split_id
from taskq.inspector import Inspector, JobPage
from taskq.model import Job
from taskq.registry import now_ms
from taskq.states import State
from taskq.store import AsyncStore

PAGE = 200


@click.group()
def dead() -> None:
    """List, retry and purge dead letters (failed jobs)."""


@dead.command("list")
@click.option("--queue", metavar="NAME")
@click.option("--type", "job_type", metavar="TYPE", default="")
@cursor_options
@json_option
@connection_options
def list_dead(
    queue: str | None,
    job_type: str,
    limit: int,
    cursor: str | None,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """List dead letters, newest first, with what they died of."""

    async def action(store: AsyncStore) -> tuple[JobPage, list[dict[str, object] | None]]:
        look = Inspector(store)
        if queue is not None:
            await look.queue(queue)
        page = await pages(look, queue, [State.FAILED], job_type, limit, cursor)
        return page, await look.errors(page.jobs)

    page, errors = run(redis_url, namespace, action)
    if as_json:
        document = page_to_dict(page)
        for row, error in zip(document["jobs"], errors, strict=True):
            row["error"] = error
        echo_json(document)
    elif not page.jobs and page.cursor is None:
        click.echo("no dead letters: nothing has failed for good")
    else:
        if page.jobs:
            click.echo(_table(page.jobs, errors))
        more(page)


def _table(jobs: Sequence[Job], errors: Sequence[dict[str, object] | None]) -> str:
    now = now_ms()
    rows = [
        (
            job.id,
            job.job_type,
            job.attempts,
            age(job.finished_at, now),
            _died_of(error) if error else job.reason,
        )
        for job, error in zip(jobs, errors, strict=True)
    ]
    return table(("ID", "TYPE", "ATTEMPTS", "FAILED", "ERROR"), rows)


def _died_of(error: dict[str, object]) -> str:
    return shorten(error_text(error), 80)


@dead.command("retry")
@click.argument("job_ids", metavar="[ID...]", nargs=-1)
@click.option("--queue", metavar="NAME", help="Instead of ids: all dead letters of this queue.")
@click.option("--type", "job_type", metavar="TYPE", default="", help="Only this type of the queue.")
@json_option
@connection_options
def retry(
    job_ids: Sequence[str],
    queue: str | None,
    job_type: str,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Put dead letters back in line: those named, or all of a queue."""
    if job_ids and queue is None:
        each(redis_url, namespace, job_ids, "job.retry", retry_one, as_json)
        return
    name = _one_of(job_ids, queue)

    async def action(store: AsyncStore) -> tuple[int, int]:
        retried = total = 0
        async with acting(store, "queue.retry-failed", name, job_type=job_type) as note:
            async for jobs in _failed(store, name, job_type):
                total += len(jobs)
                wanted = await Inspector(store).ends(jobs)
                if wanted:
                    words = await store.run(calls.retry(store.keys.queue(name), wanted))
                    retried += sum(word == "QUEUED" for word, _ in words)
                note.parameters["retried"] = retried
        return retried, total

    retried, total = run(redis_url, namespace, action)
    if as_json:
        echo_json({"queue": name, "retried": retried, "found": total})
        return
    verb = "is" if total == 1 else "are"
    click.echo(f"{retried} of {counted(total, 'dead letter')} {verb} queued again")
    if retried < total:
        click.echo("the others could not be: try one with taskq jobs retry ID", err=True)


@dead.command("purge")
@click.argument("job_ids", metavar="[ID...]", nargs=-1)
@click.option("--queue", metavar="NAME", help="Instead of ids: all dead letters of this queue.")
@click.option("--type", "job_type", metavar="TYPE", default="", help="Only this type of the queue.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def purge(
    job_ids: Sequence[str],
    queue: str | None,
    job_type: str,
    yes: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Delete dead letters: those named, or all of a queue."""
    if job_ids and queue is None:
        each(redis_url, namespace, job_ids, "job.delete", _delete_one)
        return
    name = _one_of(job_ids, queue)
    info = run(redis_url, namespace, lambda store: Inspector(store).queue(name))
    confirm(
        name, f"delete up to {counted(info.counts['failed'], 'dead letter')} of queue {name}", yes
    )

    async def action(store: AsyncStore) -> int:
        deleted = 0
        async with acting(store, "queue.purge-failed", name, job_type=job_type) as note:
            async for jobs in _failed(store, name, job_type):
                ulids = [job.ulid for job in jobs]
                words = await store.run(calls.delete(store.keys.queue(name), ulids))
                deleted += sum(word == "DELETED" for word, _ in words)
                note.parameters["deleted"] = deleted
        return deleted

    click.echo(f"{counted(run(redis_url, namespace, action), 'dead letter')} deleted")


def _one_of(job_ids: Sequence[str], queue: str | None) -> str:
    if job_ids or queue is None:
        raise click.UsageError("give the ids of jobs, or --queue for all of one queue")
    return queue


async def _failed(store: AsyncStore, queue: str, job_type: str) -> AsyncIterator[tuple[Job, ...]]:
    """Pages of what had failed when this began: what fails again meanwhile is not taken twice."""
    look = Inspector(store)
    started = (await look.queue(queue)).now
    cursor = None
    while True:
        page = await look.jobs(
            queue=queue, states=[State.FAILED], job_type=job_type, limit=PAGE, cursor=cursor
        )
        jobs = tuple(job for job in page.jobs if (job.finished_at or 0) <= started)
        if jobs:
            yield jobs
        cursor = page.cursor
        if cursor is None:
            return


async def _delete_one(store: AsyncStore, job_id: str) -> str:
    queue, ulid = split_id(job_id)
    job = await Inspector(store).job(job_id)
    if job.state is not State.FAILED:
        raise WrongState(f"job {job_id} is {job.state}, not a dead letter", state=job.state)
    ((word, _),) = await store.run(calls.delete(store.keys.queue(queue), [ulid]))
    if word != "DELETED":
        raise TaskqError(f"job {job_id} could not be deleted: {word.lower().replace('_', ' ')}")
    return "deleted"
