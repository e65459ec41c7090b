"""The command group: errors as one line, and commands of other packages loaded when asked for."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Set
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from taskq.cli.tables import plain
from taskq.errors import ConfigError, InvalidInput, TaskqError, UnsafeServerError

ENTRY_POINTS = "taskq.commands"
OURS = ("taskq", "taskq_api", "taskq_worker")

_GIVEN = "taskq.cli.given"
"""Names of the flags on the command line, in the meta of the context."""

EXTRAS = {"api": "api", "worker": "worker", "janitor": "worker", "dev": "all"}
"""Which extra a command of ours needs."""

ABOUT = {
    "api": "Serve the REST API.",
    "dev": "Run all of it here, with a server of its own.",
    "janitor": "Return expired leases, promote what is due, trim what is old.",
    "worker": "Run jobs.",
}
"""One line each for ``taskq --help``, which must not import them."""


class TaskqGroup(click.Group):
    """A group that never shows a traceback, unless TASKQ_DEBUG=1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_found()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta[_GIVEN] = {arg.partition("=")[0] for arg in args if arg.startswith("--")}
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but without importing what other packages bring."""
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(len(name) for name in names)
        rows = []
        for name in names:
            own = super().get_command(ctx, name)
            about = own.get_short_help_str(room) if own else ABOUT.get(name, "")
            rows.append((name, about))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        _never_fail_to_print()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:
            if os.environ.get("TASKQ_DEBUG") == "1":
                raise
            _give_up(error, ctx.meta.get(_GIVEN, set()))


def _give_up(error: Exception, flags: Set[str]) -> NoReturn:
    wrong_use = isinstance(error, (InvalidInput, ConfigError))
    if isinstance(error, TaskqError):
        text = str(error) or error.code
    else:
        text = f"{type(error).__name__}: {error} (this is a bug; TASKQ_DEBUG=1 shows where)"
    if isinstance(error, ConfigError):
        text = _blame(text, flags)
    click.echo(f"error: {plain(text)}", err=True)
    sys.exit(2 if wrong_use and not isinstance(error, UnsafeServerError) else 1)


def _blame(text: str, flags: Set[str]) -> str:
    """A wrong setting by the flag that was given for it, instead of by its variable alone."""

    def named(match: re.Match[str]) -> str:
        name = match[1].lower().replace("_", "-")
        for flag in (f"--{name}", f"--{name.removeprefix('api-')}"):
            if flag in flags:
                return f"{flag} (TASKQ_{match[1]}):"
        return match[0]

    return re.sub(r"TASKQ_([A-Z_]+):", named, text)


def _never_fail_to_print() -> None:
    """A terminal that cannot show a letter gets its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")


def _found() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _load(name: str) -> click.Command | None:
    entry = _found().get(name)
    if entry is None:
        return None
    try:
        command = entry.load()
    except ImportError as error:
        if os.environ.get("TASKQ_DEBUG") == "1":
            raise
        raise TaskqError(_why_not(name, error)) from error
    if not isinstance(command, click.Command):
        raise TaskqError(f"taskq {name} cannot be loaded: {entry.value} is no command")
    return command


def _why_not(name: str, error: ImportError) -> str:
    """The missing extra, where what is missing is not a part of taskq itself."""
    missing = (error.name or "").partition(".")[0]
    if missing in OURS or name not in EXTRAS:
        return f"taskq {name} cannot be loaded: {error}"
    return f"taskq {name} needs the extra: pip install 'taskq[{EXTRAS[name]}]' ({error})"
