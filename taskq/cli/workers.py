"""``taskq workers``: who is there, and asking one to claim nothing more or to stop."""

from collections.abc import Sequence

import click

from taskq.cli.options import acting, connection_options, json_option, run
from taskq.cli.tables import age, counted, echo_json, place, size, table
from taskq.inspector import Inspector
from taskq.present import worker_to_dict
from taskq.registry import WorkerInfo, now_ms
from taskq.steering import tell_worker
from taskq.store import AsyncStore


@click.group(invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def workers(
    ctx: click.Context, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """List the workers that were seen lately, or tell one to be quiet or to stop.

    WORKER is host:pid, as in `taskq jobs list`, or name:http for a lease over HTTP; BUSY is running jobs /
    slots as the worker last told.
    """
    if ctx.invoked_subcommand is not None:
        return
    found, ends = run(redis_url, namespace, _look)
    if as_json:
        echo_json({"workers": [worker_to_dict(worker, ends.get(worker.id)) for worker in found]})
        return
    if not found:
        click.echo("no live workers; start one with: taskq worker")
        return
    now = now_ms()
    rows = [
        (
            place(w.id) if w.kind == "http" else f"{w.host}:{w.pid}",
            w.state,
            f"{w.busy}/{w.slots}",
            ",".join(w.queues),
            counted(len(w.types), "type"),
            age(w.started_at, now),
            age(w.seen_at, now),
            size(w.memory_bytes),
            w.version,
        )
        for w in found
    ]
    headers = ("WORKER", "STATE", "BUSY", "QUEUES", "RUNS", "UP", "SEEN", "MEMORY", "VERSION")
    click.echo(table(headers, rows))


async def _look(store: AsyncStore) -> tuple[list[WorkerInfo], dict[str, int]]:
    inspector = Inspector(store)
    found = await inspector.workers()
    return found, await inspector.lease_ends(found)


@workers.command()
@click.argument("worker", metavar="ID")
@json_option
@connection_options
def quiet(worker: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Let a worker claim nothing more and finish what it has.

    ID is a worker's id or host:pid; it concerns all processes of the same `taskq worker`, until that ends.
    """
    _ask(worker, "quiet", as_json, redis_url, namespace)


@workers.command()
@click.argument("worker", metavar="ID")
@json_option
@connection_options
def stop(worker: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Let a worker end as SIGTERM does: it finishes what it can within the grace, hands the rest back.

    ID is a worker's id or host:pid; it concerns all processes of the same `taskq worker`.
    """
    _ask(worker, "stop", as_json, redis_url, namespace)


def _ask(
    worker: str, wish: str, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    async def tell(store: AsyncStore) -> tuple[Sequence[WorkerInfo], dict[str, int]]:
        async with acting(store, f"worker.{wish}", worker[:200]):
            told = await tell_worker(store, worker, wish)
        return told, await Inspector(store).lease_ends(told)

    asked, ends = run(redis_url, namespace, tell)
    if as_json:
        echo_json({"workers": [worker_to_dict(found, ends.get(found.id)) for found in asked]})
        return
    for found in asked:
        click.echo(f"{found.host}:{found.pid}  asked to {'be quiet' if wish == 'quiet' else wish}")
