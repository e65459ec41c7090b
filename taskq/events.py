"""Reads the event streams of queues: how far somebody has read, what came since, and whether it is all there.

Each queue has a stream of its own, written only while somebody listens (``listen.lua``). A ``Position`` says
how far a reader of any number of them has come, as text that any process understands.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from taskq import calls
from taskq.errors import BrokenKey, InvalidInput
from taskq.ids import check_queue
from taskq.keys import QueueKeys
from taskq.store import AsyncStore, time_ms, translate

logger = logging.getLogger("taskq.events")

StreamId: TypeAlias = tuple[int, int]
"""(ms, number) of an entry, as Redis gives them."""

LISTENING = "listening"
"""The entry that says: until here nobody listened."""

PAGE = 200
"""Entries of a stream that one look reads."""
MAX_SEQ = (1 << 64) - 1
MAX_POSITION = 65_536
"""Characters of a position at most."""
_ID = re.compile(r"(\d{1,15})-(\d{1,20})\Z")


class Gap(Exception):
    """What came after a position is not all there; ``reason`` is a word for clients."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a queue's stream: ``event`` is a state, or ``progress``, ``log``, ``cancelling`` or
    ``listening``; ``jobs`` are (ulid, job type). ``hidden`` more jobs were not named."""

    queue: str
    id: StreamId
    event: str
    jobs: tuple[tuple[str, str], ...] = ()
    hidden: int = 0

    @property
    def at(self) -> int:
        """When it was written, ms."""
        return self.id[0]


@dataclass(frozen=True, slots=True)
class Position:
    """All before ``base`` (ms) is read in every queue, and in those of ``further`` all up to an entry."""

    base: int
    further: Mapping[str, StreamId] = field(default_factory=dict)

    def after(self, queue: str) -> StreamId:
        """The entry after which reading goes on."""
        return self.further.get(queue, (self.base - 1, MAX_SEQ))

    def moved(self, queue: str, to: StreamId) -> "Position":
        return Position(self.base, {**self.further, queue: to})

    def __str__(self) -> str:
        further = ",".join(f"{queue}={id_text(at)}" for queue, at in sorted(self.further.items()))
        return f"{self.base};{further}" if further else str(self.base)

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Raises ``InvalidInput`` for what is none of ours."""
        try:
            base, _, rest = text[: MAX_POSITION + 1].partition(";")
            pairs = [part.partition("=") for part in rest.split(",")] if rest else []
            if len(text) > MAX_POSITION or not re.fullmatch(r"\d{1,15}", base, re.ASCII):
                raise ValueError(text)
            return cls(int(base), {check_queue(queue): parse_id(at) for queue, _, at in pairs})
        except (ValueError, InvalidInput):
            raise InvalidInput(
                "Last-Event-ID is not one of ours; leave it out to begin with what happens now",
                field="Last-Event-ID",
            ) from None


def parse_id(text: str) -> StreamId:
    """Raises ``ValueError``."""
    found = _ID.match(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2])


def id_text(at: StreamId) -> str:
    return f"{at[0]}-{at[1]}"


def parse_entry(queue: str, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """An entry as it was written by any version, or by a foreign hand."""
    text = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in fields.items()}
    ulids = text.get("jobs", "").split()
    types = ["" if name == "-" else name for name in text.get("types", "").split()]
    if len(types) == 1:
        types *= len(ulids)
    if len(types) != len(ulids):
        types = [""] * len(ulids)
    count = text.get("count", "")
    return Event(
        queue,
        parse_id(entry_id.decode()),
        text.get("event", ""),
        tuple(zip(ulids, types, strict=True)),
        max(0, int(count) - len(ulids)) if count.isdecimal() else 0,
    )


@dataclass(frozen=True, slots=True)
class Look:
    """The server's clock (ms), the life of the server process, and the queues that there are."""

    now: int
    run_id: str
    queues: frozenset[str]


class EventReader:
    """Reads through one store; keeps nothing. Raises ``Unavailable`` like every call."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.errors = store.errors

    async def look(self) -> Look:
        clock, info, names = await self._store.pipeline(
            [("TIME",), ("INFO", "server"), ("SMEMBERS", self._store.keys.queues)]
        )
        for reply in (clock, names):
            if isinstance(reply, Exception):
                raise translate(reply)
        run_id = info.get("run_id", "") if isinstance(info, dict) else ""
        return Look(time_ms(clock), str(run_id), frozenset(_queue_names(names)))

    async def listen(self, queues: Iterable[str]) -> dict[str, StreamId]:
        """Asks for the events of queues; answers the last entry of each. A broken queue is left out."""

        names = list(queues)
        found: dict[str, StreamId] = {}
        for start in range(0, len(names), 50):
            part = names[start : start + 50]
            answers = await asyncio.gather(*(self._listen(queue) for queue in part))
            found |= {queue: at for queue, at in zip(part, answers, strict=True) if at is not None}
        return found

    async def _listen(self, queue: str) -> StreamId | None:
        try:
            return parse_id(await self._store.run(calls.listen(self._keys(queue))))
        except BrokenKey as error:
            logger.error("queue %s: no events: %s", queue, error)
            return None

    async def read(self, after: Mapping[str, StreamId], block_ms: int) -> list[Event]:
        """What came after these entries, at most ``PAGE`` of each queue; waits for it up to ``block_ms``."""
        names = {self._keys(queue).events.encode(): queue for queue in after}
        streams = [*names, *(id_text(at) for at in after.values())]
        reply = await self._store.block(
            "XREAD", "COUNT", PAGE, "BLOCK", block_ms, "STREAMS", *streams
        )
        return [
            parse_entry(names[name], entry_id, fields)
            for name, entries in reply or ()
            for entry_id, fields in entries
        ]

    async def replay(
        self, queue: str, after: StreamId, to: StreamId
    ) -> AsyncIterator[Sequence[Event]]:
        """Pages of what came after an entry, up to another. Raises ``Gap`` where some of it is missing."""
        key = self._keys(queue).events
        while after < to:
            entries, info = await self._store.pipeline(
                [
                    ("XRANGE", key, f"({id_text(after)}", id_text(to), "COUNT", PAGE),
                    # After the range: what was cut off before it was read is seen here.
                    ("XINFO", "STREAM", key),
                ]
            )
            if isinstance(entries, Exception) or isinstance(info, Exception):
                raise Gap("trimmed")
            events = [parse_entry(queue, entry_id, fields) for entry_id, fields in entries]
            if _cut_off(info, after):
                raise Gap("trimmed")
            if any(event.event == LISTENING for event in events):
                raise Gap("not_listening")
            yield events
            if len(events) < PAGE:
                return
            after = events[-1].id

    def _keys(self, queue: str) -> QueueKeys:
        return self._store.keys.queue(queue)


def _cut_off(info: Sequence[Any], after: StreamId) -> bool:
    """Whether entries after this one may be gone from the stream: it is older than all that is left, and
    something was cut off."""
    facts = dict(zip(info[::2], info[1::2], strict=True))
    if facts[b"length"] == facts.get(b"entries-added"):
        return False
    first = facts[b"first-entry"]
    return first is None or parse_id(first[0].decode()) > after


def _queue_names(names: Iterable[bytes]) -> Iterable[str]:
    for name in names:
        try:
            yield check_queue(name.decode(errors="replace"))
        except InvalidInput:
            continue
