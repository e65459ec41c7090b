"""``taskq queues``: looks at queues, pauses, purges and sets them."""

from collections.abc import Sequence
from typing import Any

import click

from taskq import calls
from taskq.cli.jobs import FIRST_JOB
from taskq.cli.options import acting, connection_options, json_option, run
from taskq.cli.tables import age, counted, echo_json, plain, table
from taskq.errors import InvalidInput, QueueNotFound, TaskqError
from taskq.ids import check_job_type, check_queue
from taskq.inspector import Inspector, oldest_head, serving, unserved
from taskq.model import QueueInfo
from taskq.present import queue_to_dict
from taskq.registry import WorkerInfo
from taskq.states import WAITING, State
from taskq.store import AsyncStore

COLUMNS = ("queued", "running", "scheduled", "retrying", "failed", "succeeded", "cancelled")
PURGEABLE = sorted(state.value for state in WAITING)


@click.group()
def queues() -> None:
    """List, show, pause, purge and set queues."""


@queues.command("list")
@json_option
@connection_options
def list_queues(as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """List all queues with the number of their jobs by state.

    SINCE is how long the longest-waiting head of a line has been waiting, WORKERS how many live workers serve
    the queue.
    """

    async def action(store: AsyncStore) -> tuple[list[QueueInfo], list[WorkerInfo]]:
        look = Inspector(store)
        return await look.queues(), await look.workers()

    infos, workers = run(redis_url, namespace, action)
    if as_json:
        echo_json({"queues": [queue_to_dict(info, workers) for info in infos]})
    elif not infos:
        click.echo(f"no queues yet; {FIRST_JOB}")
    else:
        rows = [
            (
                i.name,
                *(i.counts[c] for c in COLUMNS),
                age(oldest_head(i), i.now),
                len(serving(i.name, workers)),
                _paused(i),
            )
            for i in infos
        ]
        headers = ("QUEUE", *(c.upper() for c in COLUMNS), "SINCE", "WORKERS", "PAUSED")
        click.echo(table(headers, rows))


def _paused(info: QueueInfo) -> str:
    if info.settings.get("paused") == "1":
        return "yes"
    return info.settings.get("paused_types", "").replace(" ", ",")


@queues.command("show")
@click.argument("queue")
@json_option
@connection_options
def show(queue: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Show a queue: its jobs by state, its waiting lines and its settings."""

    info, workers = run(redis_url, namespace, lambda store: _look(store, queue))
    document = queue_to_dict(info, workers)
    if as_json:
        echo_json(document)
        return
    paused = ", paused" if document["paused"] else ""
    click.echo(f"queue {plain(info.name)}{paused}")
    click.echo(table(("STATE", "JOBS"), document["counts"].items()))
    _show_lines(info, unserved(info, workers))
    if info.counts["quarantined"]:
        broken = counted(info.counts["quarantined"], "broken item")
        click.echo(f"\nset aside: {broken}; run taskq doctor")
    if info.settings:
        click.echo()
        click.echo(table(("SETTING", "VALUE"), sorted(info.settings.items())))


async def _look(store: AsyncStore, queue: str) -> tuple[QueueInfo, list[WorkerInfo]]:
    look = Inspector(store)
    return await look.queue(queue), await look.workers()


def _echo_document(redis_url: str | None, namespace: str | None, queue: str) -> None:
    """The queue as it is now: what a command that changes it answers with --json."""
    echo_json(queue_to_dict(*run(redis_url, namespace, lambda store: _look(store, queue))))


def _show_lines(info: QueueInfo, alone: Sequence[str]) -> None:
    if not info.types:
        return
    paused = info.settings.get("paused_types", "").split()
    rows = [
        (
            line.job_type,
            line.waiting,
            age(line.head_since, info.now),
            "paused"
            if line.job_type in paused
            else "no live worker runs it"
            if line.job_type in alone
            else "",
        )
        for line in info.types
    ]
    click.echo()
    click.echo(table(("TYPE", "WAITING", "SINCE", "NOTE"), rows))


@queues.command("pause")
@click.argument("queue")
@click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type.")
@json_option
@connection_options
def pause(
    queue: str, job_type: str | None, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Stop handing out jobs of a queue; running ones go on and submissions are taken."""
    try:
        run(redis_url, namespace, lambda store: _set_paused(store, queue, job_type, True))
    except QueueNotFound:
        hint = f"taskq queues set {queue} paused=true --create makes it"
        raise QueueNotFound(queue, hint) from None
    if as_json:
        _echo_document(redis_url, namespace, queue)
        return
    click.echo(f"paused: {queue if job_type is None else f'{job_type} of {queue}'}")


@queues.command("resume")
@click.argument("queue")
@click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type.")
@json_option
@connection_options
def resume(
    queue: str, job_type: str | None, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Hand out jobs of a paused queue again."""
    still = run(redis_url, namespace, lambda store: _set_paused(store, queue, job_type, False))
    if as_json:
        _echo_document(redis_url, namespace, queue)
        return
    click.echo(f"resumed: {queue if job_type is None else f'{job_type} of {queue}'}")
    if still:
        click.echo(f"still paused: {', '.join(still)}")


async def _set_paused(
    store: AsyncStore, queue: str, job_type: str | None, paused: bool
) -> list[str]:
    """Answers what is paused besides."""
    info = await Inspector(store).queue(queue)
    types = set(info.settings.get("paused_types", "").split())
    changes: dict[str, Any]
    if job_type is None:
        changes = {"paused": paused}
    else:
        check_job_type(job_type)
        types = types | {job_type} if paused else types - {job_type}
        changes = {"paused_types": sorted(types)}
    async with acting(store, "queue.change", queue, **changes):
        await store.run(calls.configure(store.keys.queue(queue), changes))
    whole = info.settings.get("paused") == "1" and job_type is not None
    return sorted(types) + ([f"the whole queue {queue}"] if whole else [])


@queues.command("purge")
@click.argument("queue")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(PURGEABLE),
    help="Only jobs of this state; may be given several times.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def purge(
    queue: str, states: Sequence[str], yes: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Cancel the waiting jobs of a queue (queued, scheduled and retrying ones)."""
    wanted = [State(state) for state in states or PURGEABLE]
    info = run(redis_url, namespace, lambda store: Inspector(store).queue(queue))
    waiting = sum(info.counts[state] for state in wanted)
    confirm(queue, f"cancel {counted(waiting, 'waiting job')} of queue {queue}", yes)

    async def action(store: AsyncStore) -> int:
        purged = 0
        async with acting(store, "queue.purge", queue, states=[*wanted]) as note:
            more = 1
            while more:
                done, more = await store.run(calls.purge(store.keys.queue(queue), wanted))
                purged += done
                note.parameters["purged"] = purged
        return purged

    click.echo(f"{counted(run(redis_url, namespace, action), 'job')} cancelled")


def confirm(name: str, what: str, yes: bool) -> None:
    """Asks to type the name before something that cannot be undone. Raises when it is not typed."""
    if yes:
        return
    click.echo(f"this will {what}; it cannot be undone", err=True)
    try:
        typed = click.prompt(
            "type the queue's name to go on", err=True, default="", show_default=False
        )
    except click.Abort:
        typed = ""
    if typed != name:
        raise TaskqError("not confirmed, nothing was changed (--yes goes without asking)")


@queues.command("set")
@click.argument("queue")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--create", is_flag=True, help="Make the queue if there is none of this name.")
@json_option
@connection_options
def set_queue(
    queue: str,
    pairs: Sequence[str],
    create: bool,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Set a queue's settings; KEY= without a value goes back to the default."""
    check_queue(queue)
    changes = dict(_setting(pair) for pair in pairs)
    calls.check_settings(changes)

    async def action(store: AsyncStore) -> QueueInfo:
        look = Inspector(store)
        if create:
            await store.know_queue(queue)
        try:
            await look.queue(queue)
        except QueueNotFound:
            raise QueueNotFound(queue, "--create makes it") from None
        async with acting(store, "queue.change", queue, **changes):
            await store.run(calls.configure(store.keys.queue(queue), changes))
        return await look.queue(queue)

    info = run(redis_url, namespace, action)
    if as_json:
        _echo_document(redis_url, namespace, queue)
        return
    for name in changes:
        click.echo(f"{name} = {plain(info.settings.get(name, '(default)'))}")


def _setting(pair: str) -> tuple[str, Any]:
    """``max_depth=10`` -> ``("max_depth", 10)``; no value is None, which clears it."""
    name, sign, text = pair.partition("=")
    if not sign:
        raise InvalidInput(f"{pair!r} is not KEY=VALUE", field="settings")
    if text == "":
        return name, None
    if name in calls.FLAGS:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        return name, words.get(text.lower(), text)
    if name == "paused_types":
        return name, [word for word in text.split(",") if word]
    try:
        return name, int(text)
    except ValueError:
        return name, text
