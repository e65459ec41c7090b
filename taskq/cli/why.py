"""``taskq why``: what keeps a job waiting."""

import click

from taskq.cli.options import connection_options, json_option, run
from taskq.cli.tables import echo_json, plain
from taskq.inspector import Inspector
from taskq.position import Position, position
from taskq.present import rfc3339
from taskq.views import position_to_dict


@click.command()
@click.argument("job_id", metavar="ID")
@json_option
@connection_options
def why(job_id: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Say why a job waits: its place in line, what keeps it there, when it is likely to start."""
    found = run(redis_url, namespace, lambda store: position(Inspector(store), job_id))
    if as_json:
        echo_json(position_to_dict(found))
        return
    click.echo(f"{plain(found.id)} is {found.state}")
    for reason in found.reasons:
        until = f" (until {rfc3339(reason.until)})" if reason.until is not None else ""
        click.echo(f"  {plain(reason.message)}{until}")
    for line in _numbers(found):
        click.echo(f"  {plain(line)}")


def _numbers(found: Position) -> list[str]:
    lines = []
    if found.rank is not None:
        lines.append(
            f"place {found.rank} in line, {found.ahead} of those before it are being served"
        )
        lines.append(
            f"priority {found.priority}, by waiting {found.effective_priority} now; "
            f"{found.free_slots} free slots in {found.workers} worker processes"
        )
    if found.estimated_start is not None:
        lines.append(f"likely to start at {rfc3339(found.estimated_start)}: {found.estimate}")
    elif found.reason.code not in ("ended", "running"):
        lines.append(f"when it starts is {found.estimate}")
    return lines
