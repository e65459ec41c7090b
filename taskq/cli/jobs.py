"""``taskq jobs``: looks at jobs, cancels them, retries dead letters."""

from collections.abc import Sequence
from typing import Any

import click

from taskq.cli.options import acting, connection_options, cursor_options, json_option, run
from taskq.cli.show import echo_job
from taskq.cli.tables import age, echo_json, note, place, table
from taskq.client import AsyncClient
from taskq.errors import TaskqError
from taskq.ids import split_id
from taskq.inspector import STATE_ORDER, Inspector, JobPage
from taskq.model import Job
from taskq.position import IN_TURN, Position, position
from taskq.present import job_to_dict
from taskq.registry import now_ms
from taskq.states import State
from taskq.store import AsyncStore

FIRST_JOB = 'submit the first job with: taskq submit print \'{"message":"hi"}\''
PAGES = 20
"""Pages that a list with a filter looks through before it asks to go on."""


@click.group()
def jobs() -> None:
    """List, show, cancel and retry jobs."""


@jobs.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice([s.value for s in STATE_ORDER]))
@click.option("--queue", metavar="NAME")
@click.option("--type", "job_type", metavar="TYPE", default="")
@cursor_options
@json_option
@connection_options
def list_jobs(
    states: Sequence[str],
    queue: str | None,
    job_type: str,
    limit: int,
    cursor: str | None,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """List jobs: waiting ones next to run first, ended ones newest first."""
    wanted = [State(state) for state in states] or list(STATE_ORDER)

    async def action(store: AsyncStore) -> JobPage:
        look = Inspector(store)
        if queue is not None:
            await look.queue(queue)
        return await pages(look, queue, wanted, job_type, limit, cursor)

    page = run(redis_url, namespace, action)
    if as_json:
        echo_json(page_to_dict(page))
        return
    if not page.jobs and page.cursor is None:
        narrowed = queue is not None or bool(states) or job_type != "" or cursor is not None
        click.echo("no such jobs" if narrowed else f"no jobs yet; {FIRST_JOB}")
        return
    if page.jobs:
        click.echo(jobs_table(page.jobs))
    more(page)


async def pages(
    look: Inspector,
    queue: str | None,
    states: Sequence[State],
    job_type: str,
    limit: int,
    cursor: str | None,
) -> JobPage:
    """Up to ``limit`` jobs out of as many pages as it takes, within bounds."""
    found: list[Job] = []
    looked = 0
    for _ in range(PAGES):
        page = await look.jobs(
            queue=queue, states=states, job_type=job_type, limit=limit - len(found), cursor=cursor
        )
        found += page.jobs
        looked += page.looked
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return JobPage(tuple(found), looked, cursor)


def page_to_dict(page: JobPage) -> dict[str, Any]:
    return {
        "jobs": [job_to_dict(job, full=False) for job in page.jobs],
        "looked_at": page.looked,
        "next_cursor": page.cursor,
    }


def jobs_table(found: Sequence[Job]) -> str:
    now = now_ms()
    headers = ("ID", "TYPE", "STATE", "PRIORITY", "ATTEMPTS", "CREATED", "DUE", "ENDED", "WORKER")
    rows = [
        (
            job.id,
            job.job_type,
            f"{job.state} (stopping)" if job.cancel_requested else job.state,
            job.priority,
            job.attempts,
            age(job.created_at, now),
            age(job.eligible_at, now) if (job.eligible_at or 0) > now else "-",
            age(job.finished_at, now),
            place(job.worker),
        )
        for job in found
    ]
    return table(headers, rows)


def more(page: JobPage) -> None:
    if page.cursor is not None:
        note(f"looked at {page.looked}; there may be more: the same with --cursor {page.cursor}")


@jobs.command("show")
@click.argument("job_id", metavar="ID")
@json_option
@connection_options
def show(job_id: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Show all that is kept of a job, with its timeline."""

    async def action(store: AsyncStore) -> tuple[Job, Position | None]:
        job = await Inspector(store).job(job_id)
        if as_json or job.state is not State.QUEUED:
            return job, None
        return job, await position(Inspector(store), job_id)

    job, where = run(redis_url, namespace, action)
    if as_json:
        echo_json(job_to_dict(job))
    elif where is None:
        echo_job(job)
    else:
        echo_job(job, what_keeps(where), _priority_now(where))


def _priority_now(where: Position) -> str:
    """With the points that waiting has earned it."""
    earned = where.effective_priority or where.priority
    return f"{where.priority} (by waiting {earned:.1f} now)"


def what_keeps(where: Position) -> str | None:
    """What keeps a queued job from its worker, and what to do; None where it only has to wait its turn."""
    return where.reason.message if where.reason.code not in IN_TURN else None


@jobs.command("cancel")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@connection_options
def cancel(
    job_ids: Sequence[str], as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Cancel jobs; running ones are asked to stop."""

    async def one(store: AsyncStore, job_id: str) -> str:
        running = await AsyncClient(store).cancel(job_id) is State.RUNNING
        return "asked to stop" if running else "cancelled"

    each(redis_url, namespace, job_ids, "job.cancel", one, as_json)


@jobs.command("retry")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@connection_options
def retry(
    job_ids: Sequence[str], as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Put failed jobs back in line, with a clean count of failures."""
    each(redis_url, namespace, job_ids, "job.retry", retry_one, as_json)


async def retry_one(store: AsyncStore, job_id: str) -> str:
    await AsyncClient(store).retry(job_id)
    return "queued again"


def each(
    redis_url: str | None,
    namespace: str | None,
    job_ids: Sequence[str],
    what: str,
    one: Any,
    as_json: bool = False,
) -> None:
    """Does ``one`` (in the audit trail: ``what``) to every id, says what became of each, and exits 1 when
    some were refused."""
    for job_id in job_ids:
        split_id(job_id)
    rows: list[dict[str, str]] = []

    async def action(store: AsyncStore) -> None:
        for job_id in job_ids:
            try:
                async with acting(store, what, job_id):
                    outcome = await one(store, job_id)
                rows.append({"id": job_id, "outcome": outcome})
            except TaskqError as error:
                if error.code.startswith("redis_"):
                    raise
                rows.append({"id": job_id, "error": str(error), "code": error.code})
            if not as_json:
                _tell(rows[-1])

    run(redis_url, namespace, action)
    if as_json:
        echo_json({"jobs": rows})
    if any("error" in row for row in rows):
        raise click.exceptions.Exit(1)


def _tell(row: dict[str, str]) -> None:
    if "error" in row:
        note(f"error: {row['error']}")
    else:
        click.echo(f"{row['id']}  {row['outcome']}")
