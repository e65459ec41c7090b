"""Server-Sent Events: what a client is shown of an event, and its form on the wire.

The form is a few lines of text, so it is made here. What libraries for it add (pings, a watch over the end of
the process) our streams need in a way of their own: pings carry a position, and all end with the application.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from taskq.events import LISTENING, Event, Position
from taskq.ids import join_id
from taskq.present import rfc3339
from taskq.states import State
from taskq_api.render import encode

RETRY_MS = 2000
"""When a client is to come back after its connection broke."""
_END = "/end"
_STATES = frozenset(state.value for state in State)


class Message(NamedTuple):
    """One event as it goes out, and its name."""

    event: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Filter:
    """What a stream shows: of which queues and job types (None: all), or of one job (its ulid).

    ``named`` queues are known to be there; others are read from when they are.
    """

    queues: frozenset[str] | None = None
    job_types: frozenset[str] | None = None
    job: str | None = None
    named: bool = True

    def visible(self, queue: str, job_type: str) -> bool:
        """Whether a client with this filter may know of a job: asked for every job that is told."""
        return self.reads(queue) and (self.job_types is None or job_type in self.job_types)

    def reads(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def seen(self, event: Event) -> list[tuple[str, str]]:
        """The jobs of an event that are shown."""
        return [
            (ulid, job_type)
            for ulid, job_type in event.jobs
            if (self.job is None or ulid == self.job) and self.visible(event.queue, job_type)
        ]

    def position(self, at: Position) -> Position:
        """A position without the queues that are not read, which a client need not know of."""
        if self.queues is None:
            return at
        return Position(at.base, {q: i for q, i in at.further.items() if q in self.queues})


def frame(event: str, value: object, position: str | None = None) -> bytes:
    """One event on the wire."""
    head = f"event: {event}\n" if position is None else f"event: {event}\nid: {position}\n"
    return b"%sdata: %s\n\n" % (head.encode(), encode(value))


def mark(position: str, *, end: bool = False) -> bytes:
    """Moves a client's Last-Event-ID on, and shows it nothing. ``end``: nothing more will come."""
    return f": \nid: {position}{_END if end else ''}\n\n".encode()


def split_end(last_event_id: str) -> tuple[str, bool]:
    """A Last-Event-ID without the word that says that all was told, and whether it had it."""
    return last_event_id.removesuffix(_END), last_event_id.endswith(_END)


def reset(queue: str | None, reason: str, position: str | None = None) -> Message:
    """What was missed cannot be told: the client is to read anew what it shows."""
    value = {"queue": queue, "reason": reason}
    return Message("reset", frame("reset", value, position))


def messages(wanted: Filter, event: Event, position: Position) -> Iterable[Message]:
    """What a filter shows of an event; ``position`` is the one after it."""
    at = str(wanted.position(position))
    jobs = wanted.seen(event)
    if jobs:
        name = "state" if event.event in _STATES else event.event
        yield Message(event.event, frame(name, _value(wanted, event, jobs), at))
    if event.event == LISTENING and wanted.reads(event.queue):
        yield reset(event.queue, "not_listening", at)
    elif event.hidden and wanted.reads(event.queue):
        yield reset(event.queue, "too_many", at)


def _value(wanted: Filter, event: Event, jobs: list[tuple[str, str]]) -> dict[str, object]:
    shown = [{"id": join_id(event.queue, ulid), "job_type": job_type} for ulid, job_type in jobs]
    state = {"state": event.event} if event.event in _STATES else {}
    told = {"queue": event.queue, "at": rfc3339(event.at), **state}
    return {**shown[0], **told} if wanted.job is not None else {**told, "jobs": shown}
