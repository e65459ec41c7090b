"""``taskq submit``: stores a job, and waits for its end if asked."""

import sys
from datetime import datetime
from typing import Any

import click

from taskq import codec
from taskq.cli.jobs import what_keeps
from taskq.cli.options import connection_options, json_option, run, sync_client
from taskq.cli.tables import dump, echo_json, note
from taskq.client import SyncClient
from taskq.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    ResultExpired,
    ResultTimeout,
    TaskqError,
)
from taskq.ids import UlidFactory, join_id
from taskq.inspector import Inspector, how_to_serve
from taskq.model import Enqueued, JobSpec
from taskq.position import position
from taskq.present import job_to_dict
from taskq.states import State
from taskq.store import AsyncStore
from taskq.submission import SubmitOptions, make_spec


@click.command(short_help="Submit a job, and wait for its result if asked.")
@click.argument("job_type", metavar="TYPE")
@click.argument("payload", metavar="[JSON]", default="{}")
@click.option("--queue", metavar="NAME", default="default", show_default=True)
@click.option("--priority", type=int, metavar="N", help="From -100 to 100; higher is sooner.")
@click.option("--delay", type=float, metavar="SECONDS", help="Not before so many seconds from now.")
@click.option(
    "--run-at", metavar="TIME", help="Not before this time, such as 2030-01-31T08:00:00Z."
)
@click.option("--unique-key", metavar="KEY", help="Refuse it while another job with the key lives.")
@click.option(
    "--idempotency-key", metavar="KEY", help="The same key and job again is the same job."
)
@click.option("--max-attempts", type=int, metavar="N", help="Failures until it is a dead letter.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Longest run; 0 for none.")
@click.option("--expires", type=float, metavar="SECONDS", help="Longest wait for a worker.")
@click.option("--durable", is_flag=True, help="Answer only when the job is on disk.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--wait-timeout", type=float, metavar="SECONDS", help="Wait no longer than this.")
@json_option
@connection_options
def submit(
    job_type: str,
    payload: str,
    run_at: str | None,
    wait: bool,
    wait_timeout: float | None,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
    **options: Any,
) -> None:
    """Submit a job of TYPE with the payload JSON ('-' reads it from standard input).

    Prints the job's id; with --wait its result, and then a job that did not succeed exits 1.
    """
    wanted = SubmitOptions(run_at=_time(run_at), **options)
    queue, spec = make_spec(UlidFactory(), job_type, _payload(payload), wanted)
    with sync_client(redis_url, namespace) as client:
        outcome = client.submit(queue, spec)
        job_id = join_id(queue, spec.id)
        if wait or wait_timeout is not None:
            note(job_id)
            if run(redis_url, namespace, lambda store: _unserved(store, queue, job_type)):
                ends = (
                    "" if wait_timeout is not None else "; Ctrl-C or --wait-timeout ends the wait"
                )
                note(
                    f"no live worker runs {job_type} of queue {queue}: {how_to_serve(queue)}{ends}"
                )
            try:
                _wait(client, job_id, wait_timeout, as_json)
            except ResultTimeout as error:
                why = run(redis_url, namespace, lambda store: _why_waiting(store, job_id))
                raise ResultTimeout(f"{error}; {why}") if why else error from None
        elif as_json:
            echo_json(_submitted(queue, spec, outcome))
        else:
            click.echo(job_id)


def _submitted(queue: str, spec: JobSpec, outcome: Enqueued) -> dict[str, Any]:
    return {
        "id": join_id(queue, spec.id),
        "queue": queue,
        "job_type": spec.job_type,
        "state": outcome.state.value if outcome.state else None,
        "created": outcome.created,
    }


async def _unserved(store: AsyncStore, queue: str, job_type: str) -> bool:
    workers = await Inspector(store).workers()
    return not any(queue in worker.queues and job_type in worker.types for worker in workers)


async def _why_waiting(store: AsyncStore, job_id: str) -> str | None:
    """Why the job has not even started; None when it has, or nobody knows."""
    try:
        where = await position(Inspector(store), job_id)
    except TaskqError:
        return None
    return what_keeps(where) if where.state is State.QUEUED else None


def _wait(client: SyncClient, job_id: str, timeout: float | None, as_json: bool) -> None:
    try:
        result = client.result(job_id, timeout)
    except (JobFailed, JobCancelled, ResultExpired):
        if as_json:
            echo_json(job_to_dict(client.job(job_id)))
        raise
    if as_json:
        echo_json(job_to_dict(client.job(job_id)))
    else:
        click.echo(dump(result))


def _payload(text: str) -> bytes:
    if text == "-":
        data = sys.stdin.buffer.read(codec.MAX_BYTES + 1)
    else:
        data = text.encode(errors="surrogateescape")
    return codec.dumps(codec.loads(data))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"run_at {text!r} is no time such as 2030-01-31T08:00:00Z", field="run_at"
        ) from None
