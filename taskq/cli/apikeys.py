"""``taskq keys``: makes, lists and revokes keys of the REST API."""

from collections.abc import Sequence

import click

from taskq.apikeys import ApiKey, KeyRequest, KeyStore, Scope
from taskq.cli.options import acting, connection_options, json_option, milliseconds_of, run
from taskq.cli.tables import age, echo_json, note, table
from taskq.present import key_to_dict
from taskq.registry import now_ms
from taskq.store import AsyncStore


@click.group()
def keys() -> None:
    """Create, list and revoke keys of the REST API."""


@keys.command("create")
@click.option("--name", required=True, metavar="TEXT", help="Who or what will use it.")
@click.option(
    "--scope",
    "scopes",
    required=True,
    metavar="SCOPE,...",
    help=f"What it may do: {', '.join(Scope)}.",
)
@click.option(
    "--expires", metavar="TIME", help="When it ends, such as 30d or 12h.  [default: never]"
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only this queue; may be given several times.",
)
@click.option(
    "--job-type",
    "job_types",
    multiple=True,
    metavar="TYPE",
    help="Only jobs of this type; may be given several times.",
)
@click.option("--rate", metavar="N/UNIT", help="Requests at most, such as 100/s, 600/m or 5000/h.")
@json_option
@connection_options
def create(
    name: str,
    scopes: str,
    expires: str | None,
    queues: Sequence[str],
    job_types: Sequence[str],
    rate: str | None,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Create a key and print it: it is shown this once.

    As soon as there is a key, an API that was open asks for one.
    """
    wanted = KeyRequest(
        name=name,
        scopes=[word.strip() for word in scopes.split(",") if word.strip()],
        queues=queues,
        job_types=job_types,
        rate=rate,
        expires_ms=None if expires is None else milliseconds_of(expires, "expires"),
    )

    async def action(store: AsyncStore) -> tuple[ApiKey, str]:
        async with acting(store, "key.create", "", **wanted.parameters()) as told:
            key, token = await KeyStore(store).create(wanted)
            told.target = key.id
        return key, token

    key, token = run(redis_url, namespace, action)
    if as_json:
        echo_json({**key_to_dict(key), "token": token})
        return
    note(f"key {key.id}; it is not shown again, send it as `Authorization: Bearer <key>`:")
    click.echo(token)


@keys.command("list")
@json_option
@connection_options
def list_keys(as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """List the keys and what each may do. USED is told about once a minute."""
    found = run(redis_url, namespace, lambda store: KeyStore(store).list())
    if as_json:
        echo_json({"keys": [key_to_dict(key) for key in found]})
        return
    if not found:
        click.echo("no keys; make one with: taskq keys create --name NAME --scope submit,read")
        return
    now = now_ms()
    rows = [
        (
            key.id,
            key.name,
            ",".join(sorted(key.scopes)),
            _names(key.queues),
            _names(key.job_types),
            key.rate,
            age(key.created_at, now),
            age(key.used_at, now),
            "expired" if key.expired(now) else age(key.expires_at, now),
        )
        for key in found
    ]
    headers = ("ID", "NAME", "SCOPES", "QUEUES", "TYPES", "RATE", "CREATED", "USED", "EXPIRES")
    click.echo(table(headers, rows))


def _names(names: frozenset[str] | None) -> str:
    return "all" if names is None else ",".join(sorted(names))


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@connection_options
def revoke(key_id: str, as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """Revoke a key: every API process refuses it within five seconds."""

    async def action(store: AsyncStore) -> str:
        async with acting(store, "key.revoke", key_id[:100]) as told:
            told.parameters["name"] = name = await KeyStore(store).revoke(key_id)
        return name

    name = run(redis_url, namespace, action)
    if as_json:
        echo_json({"id": key_id, "name": name, "revoked": True})
    else:
        click.echo(f"revoked: {key_id} ({name})")
