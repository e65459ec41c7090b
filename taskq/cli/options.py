"""Options that every command shares, and how a command gets its connection."""

import asyncio
import contextlib
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import click

from taskq.audit import Audit, Note, command_line_actor
from taskq.calls import TEN_YEARS_MS
from taskq.client import SyncClient
from taskq.errors import InvalidInput, Unavailable
from taskq.keys import Keys
from taskq.settings import Settings, load_settings, mask_url
from taskq.store import AsyncStore

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

RETRY_SECONDS = 1.0
"""A person waits at the other end: say soon that Redis does not answer."""


def connection_options(command: F) -> F:
    """Adds ``--redis-url`` and ``--namespace``; both beat the environment."""
    for option in (
        click.option(
            "--namespace", metavar="NAME", help="First part of every key (TASKQ_NAMESPACE)."
        ),
        click.option("--redis-url", metavar="URL", help="The server (TASKQ_REDIS_URL)."),
    ):
        command = option(command)
    return command


def json_option(command: F) -> F:
    """Adds ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def cursor_options(command: F) -> F:
    """Adds ``--limit`` and ``--cursor``."""
    for option in (
        click.option("--cursor", metavar="TEXT", help="Go on where the last page ended."),
        click.option(
            "--limit",
            type=click.IntRange(1, 1000),
            default=50,
            show_default=True,
            help="Rows at most.",
        ),
    ):
        command = option(command)
    return command


def milliseconds_of(text: str, field: str) -> int:
    """``30d``, ``12h``, ``15m`` or seconds as ms. Raises ``InvalidInput``."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([smhd]?)", text)
    factor = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
    ms = math.ceil(float(found[1]) * factor[found[2]] * 1000) if found else 0
    if not 0 < ms <= TEN_YEARS_MS:
        raise InvalidInput(f"{field} {text[:40]!r} is no time such as 30d, 12h or 90", field=field)
    return ms


def acting(
    store: AsyncStore, what: str, target: str, **parameters: Any
) -> AbstractAsyncContextManager[Note]:
    """Around what a command changes, for the audit trail."""
    return Audit(store).acting(command_line_actor(), what, target, **parameters)


def run(
    redis_url: str | None, namespace: str | None, action: Callable[[AsyncStore], Awaitable[T]]
) -> T:
    """Does ``action`` over a connection of its own. Raises ``Unavailable`` that says what to do."""
    settings = load_settings(redis_url=redis_url, namespace=namespace)
    try:
        return asyncio.run(_with_store(settings, action))
    except Unavailable as error:
        raise unreachable(error, settings) from error


@contextlib.contextmanager
def sync_client(redis_url: str | None, namespace: str | None) -> Iterator[SyncClient]:
    """A client that waits without an event loop, so that Ctrl-C ends the wait at once."""
    settings = load_settings(redis_url=redis_url, namespace=namespace)
    client = SyncClient.from_url(
        settings.redis_url, settings.namespace, retry_seconds=RETRY_SECONDS
    )
    try:
        yield client
    except Unavailable as error:
        raise unreachable(error, settings) from error
    finally:
        client.close()


async def _with_store(settings: Settings, action: Callable[[AsyncStore], Awaitable[T]]) -> T:
    store = AsyncStore.from_url(
        settings.redis_url, Keys(settings.namespace), retry_seconds=RETRY_SECONDS
    )
    try:
        return await action(store)
    finally:
        await store.close()


class Unreachable(Unavailable):
    """``Unavailable`` on the command line, where the hint names a flag."""

    def __str__(self) -> str:
        return self.message


def unreachable(error: Unavailable, settings: Settings) -> Unavailable:
    """The same error with the address and what to do about it."""
    where = mask_url(settings.redis_url)
    if error.reason in ("connection", "timeout"):
        todo = "start it, or name another with --redis-url or TASKQ_REDIS_URL"
        return Unreachable(f"{error.message} (tried {where}): {todo}", reason=error.reason)
    return Unreachable(f"{error.message} (at {where})", reason=error.reason)
