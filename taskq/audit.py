"""The audit trail: what people did to jobs, queues and keys, and what became of it.

``<namespace>:audit`` is a stream of the newest 10,000 entries or a few more: ``who`` (``key:<id>``,
``env:<n>``, ``open`` or ``cli:<user>@<host>``), ``name`` (of the key), ``what`` (a verb such as
``job.cancel``), ``target``, ``parameters`` (JSON; never a payload), ``outcome`` (``ok`` or the code of an
error). An entry's id is its time by Redis's clock.

An action is never refused because it could not be written down: who stops a runaway queue while memory is
full must succeed. What Redis does not take goes to the log of the process instead, whole. An entry is
written after its action, so a process that is killed between the two leaves none; a lost answer may leave
it twice.
"""

import contextlib
import getpass
import json
import logging
import os
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from taskq.errors import InvalidInput, TaskqError, Unavailable
from taskq.store import AsyncStore, translate

logger = logging.getLogger("taskq.audit")

MAX_ENTRIES = 10_000
MAX_PARAMETERS = 2_000
"""Characters of the parameters of one entry."""
_CURSOR = re.compile(r"\d{1,20}-\d{1,20}\Z")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something: a key, or a person on a command line."""

    who: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the trail; ``at`` is ms by Redis's clock."""

    id: str
    at: int
    who: str
    name: str
    what: str
    target: str
    parameters: dict[str, Any]
    outcome: str


@dataclass(slots=True)
class Note:
    """What an action says about itself while it goes on."""

    target: str
    parameters: dict[str, Any] = field(default_factory=dict)


class Audit:
    """Writes and reads the trail."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    @contextlib.asynccontextmanager
    async def acting(
        self, actor: Actor, what: str, target: str, **parameters: Any
    ) -> AsyncIterator[Note]:
        """Around an action: written down when it is over, with what became of it. Errors pass through; what
        was refused because of how it was asked is no action."""
        note = Note(target, parameters)
        outcome = "ok"
        try:
            yield note
        except Unavailable as error:
            if error.reason != "oom":
                # Whether it was done is not known, and there is nobody to write it down.
                outcome = ""
                logger.info("%s %s by %s: %s", what, target, actor.who, error.code)
            else:
                outcome = error.code
            raise
        except InvalidInput:
            outcome = ""
            raise
        except TaskqError as error:
            outcome = error.code
            raise
        except BaseException:
            outcome = "unknown"
            raise
        finally:
            if outcome:
                await self.write(actor, what, note.target, outcome, note.parameters)

    async def write(
        self, actor: Actor, what: str, target: str, outcome: str, parameters: dict[str, Any]
    ) -> None:
        """Adds an entry; logs it instead where Redis does not take it. Raises nothing of the library's."""
        shown = json.dumps(parameters, default=str)[:MAX_PARAMETERS]
        entry = {
            "who": actor.who,
            "name": actor.name,
            "what": what,
            "target": target,
            "parameters": shown,
            "outcome": outcome,
        }
        flat = [part for pair in entry.items() for part in pair]
        command = ("XADD", self._store.keys.audit, "MAXLEN", "~", MAX_ENTRIES, "*", *flat)
        try:
            (added,) = await self._store.pipeline([command])
            if isinstance(added, Exception):
                raise translate(added)
        except TaskqError as error:
            logger.warning("not in the audit trail (%s): %s", error.code, json.dumps(entry))

    async def page(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Entry], str | None]:
        """(entries, cursor of the next page), newest first. Raises ``InvalidInput``, ``Unavailable``."""
        if not 1 <= limit <= 1000:
            raise InvalidInput("limit must be from 1 to 1000", field="limit")
        if cursor is not None and not _CURSOR.match(cursor):
            raise InvalidInput("this cursor is not one of ours", field="cursor")
        newest = "+" if cursor is None else f"({cursor}"
        (rows,) = await self._store.pipeline(
            [("XREVRANGE", self._store.keys.audit, newest, "-", "COUNT", limit)]
        )
        if isinstance(rows, Exception):
            error = translate(rows)
            if isinstance(error, Unavailable):
                raise error
            raise InvalidInput("the audit trail cannot be read from here", field="cursor")
        entries = [_entry(*row) for row in rows]
        return entries, entries[-1].id if len(entries) == limit else None


def _entry(entry_id: bytes, fields: Any) -> Entry:
    items = (
        fields.items() if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True)
    )
    told = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in items}
    shown = entry_id.decode()
    return Entry(
        id=shown,
        at=int(shown.partition("-")[0]),
        who=told.get("who", ""),
        name=told.get("name", ""),
        what=told.get("what", ""),
        target=told.get("target", ""),
        parameters=_parameters(told.get("parameters", "")),
        outcome=told.get("outcome", ""),
    )


def _parameters(text: str) -> dict[str, Any]:
    """Those that were cut short are shown as text."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"text": text}
    return value if isinstance(value, dict) else {"text": text}


def command_line_actor() -> Actor:
    """Who uses the command line: ``cli:<user>@<host>``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        user = str(os.getuid())
    return Actor(f"cli:{user}@{socket.gethostname()}")
