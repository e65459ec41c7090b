"""``taskq audit``: what people did, newest first."""

import click

from taskq.audit import Audit, Entry
from taskq.cli.options import connection_options, cursor_options, json_option, run
from taskq.cli.tables import age, dump, echo_json, note, shorten, table
from taskq.present import entry_to_dict
from taskq.registry import now_ms
from taskq.store import AsyncStore


@click.command()
@cursor_options
@json_option
@connection_options
def audit(
    limit: int, cursor: str | None, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """List what was done to jobs, queues and keys, and by whom: the newest first."""

    async def action(store: AsyncStore) -> tuple[list[Entry], str | None]:
        return await Audit(store).page(limit=limit, cursor=cursor)

    entries, following = run(redis_url, namespace, action)
    if as_json:
        shown = [entry_to_dict(entry) for entry in entries]
        echo_json({"entries": shown, "next_cursor": following})
        return
    if not entries:
        click.echo("nothing was done yet" if cursor is None else "no more entries")
        return
    now = now_ms()
    rows = [
        (
            age(entry.at, now),
            f"{entry.who} ({entry.name})" if entry.name else entry.who,
            entry.what,
            entry.target,
            entry.outcome,
            shorten(dump(entry.parameters), 60) if entry.parameters else None,
        )
        for entry in entries
    ]
    click.echo(table(("AGO", "WHO", "WHAT", "TARGET", "OUTCOME", "PARAMETERS"), rows))
    if following is not None:
        note(f"there may be more: the same with --cursor {following}")
