"""What people do to jobs and queues."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from taskq.calls.base import Arg, Call, make, text_of, words
from taskq.calls.janitor import MAX_LOST
from taskq.calls.submission import check_priority
from taskq.errors import InvalidInput
from taskq.ids import check_job_type
from taskq.keys import QueueKeys
from taskq.ordering import AGING_MS_MAX
from taskq.states import State


def cancel(
    keys: QueueKeys,
    ulids: Sequence[str],
    reason: str = "cancelled",
    *,
    waiting_only: bool = False,
    now: float | None = None,
) -> Call[list[tuple[str, State | None]]]:
    """Cancels, or (not so with ``waiting_only``) asks running jobs to stop: (word, state of an ended job)
    each."""
    return make("cancel", keys, now, (reason, int(waiting_only)), ulids, _words_with_state)


def _words_with_state(reply: Any) -> list[tuple[str, State | None]]:
    return [
        (text_of(item[0]), State(text_of(item[1])))
        if isinstance(item, list)
        else (text_of(item), None)
        for item in reply
    ]


def retry(
    keys: QueueKeys, jobs: Sequence[tuple[str, str]], *, now: float | None = None
) -> Call[list[tuple[str, str | None]]]:
    """Queues failed jobs (ulid, fence seen or '') again: (word, state or holder of the unique key)."""

    def parse(reply: Any) -> list[tuple[str, str | None]]:
        return [
            (text_of(i[0]), text_of(i[1])) if isinstance(i, list) else (text_of(i), None)
            for i in reply
        ]

    return make("retry", keys, now, (), [x for job in jobs for x in job], parse)


def edit(
    keys: QueueKeys,
    edits: Sequence[tuple[str, int | None, int | None]],
    *,
    fence: int | None = None,
    now: float | None = None,
) -> Call[list[tuple[str, State | None]]]:
    """Changes waiting jobs (ulid, priority, run_at_ms; None keeps): (word, state) each.

    ``fence`` (0: it never ran) leaves a job alone that has run since.
    """
    items: list[Arg] = []
    for ulid, priority, run_at_ms in edits:
        if priority is not None:
            check_priority(priority)
        items += (
            ulid,
            "" if priority is None else priority,
            "" if run_at_ms is None else run_at_ms,
            "" if fence is None else fence,
        )
    return make("edit", keys, now, (), items, _words_with_state)


def delete(
    keys: QueueKeys,
    ulids: Sequence[str],
    *,
    fences: Sequence[int | None] = (),
    now: float | None = None,
) -> Call[list[tuple[str, State | None]]]:
    """Drops ended jobs: (word, state) each. ``fences``, one per job, leaves those alone that ran since."""
    items: list[Arg] = []
    for ulid, fence in zip(ulids, fences or [None] * len(ulids), strict=True):
        items += (ulid, "" if fence is None else fence)
    return make("delete", keys, now, (), items, _words_with_state)


def purge(
    keys: QueueKeys,
    states: Sequence[State],
    *,
    job_type: str = "",
    limit: int = 500,
    page: int = 1,
    now: float | None = None,
) -> Call[tuple[int, int]]:
    """Cancels a page of waiting jobs: (how many, the next ``page``; 0 at the end)."""
    fixed = (limit, job_type, page)
    return make("purge", keys, now, fixed, states, lambda r: (int(r[0]), int(r[1])))


SETTINGS: dict[str, tuple[int, int]] = {
    "aging_ms": (0, AGING_MS_MAX),
    "max_depth": (0, 1_000_000_000),
    "dedup_seconds": (1, 604_800),
    "dedup_max": (1000, 100_000_000),
    "succeeded_seconds": (0, 31_536_000),
    "succeeded_max": (0, 100_000_000),
    "succeeded_bytes": (0, 1_000_000_000_000),
    "failed_seconds": (0, 315_360_000),
    "failed_max": (0, 100_000_000),
    "failed_bytes": (0, 1_000_000_000_000),
    "cancelled_seconds": (0, 31_536_000),
    "cancelled_max": (0, 100_000_000),
    "cancelled_bytes": (0, 1_000_000_000_000),
}
"""Whole-number settings of a queue and their ranges; ``FLAGS`` and ``paused_types`` come besides."""

FLAGS = ("paused", "strict_types")
"""Settings of a queue that are on or off. ``strict_types``: the REST API refuses jobs of a type that no
worker has published."""


def check_settings(changes: dict[str, Any]) -> dict[str, str]:
    """Settings as they are stored; None clears one. Raises ``InvalidInput`` naming the setting."""
    out: dict[str, str] = {}
    for name, value in changes.items():
        if value is None:
            out[name] = ""
        elif name in FLAGS:
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} must be true or false", field=name)
            out[name] = "1" if value else ""
        elif name == "paused_types":
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise InvalidInput("paused_types must be a list of job types", field=name)
            out[name] = " ".join(sorted({check_job_type(job_type) for job_type in value}))
        elif name in SETTINGS:
            low, high = SETTINGS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput(
                    f"{name} must be a whole number from {low} to {high}, not {value!r}", field=name
                )
            out[name] = str(value)
        else:
            known = ", ".join([*FLAGS, "paused_types", *SETTINGS])
            raise InvalidInput(f"no setting {name!r}; there are {known}", field=name)
    return out


def configure(keys: QueueKeys, changes: dict[str, Any], *, now: float | None = None) -> Call[None]:
    """Sets (or with None clears) settings of a queue, pause and resume among them."""
    stored = check_settings(changes)
    return make(
        "configure", keys, now, (), [x for pair in stored.items() for x in pair], lambda _: None
    )


LISTEN_MS = 120_000
"""For how long events are written after somebody asked for them. A reader asks again every quarter of it."""


def listen(keys: QueueKeys, for_ms: int = LISTEN_MS, *, now: float | None = None) -> Call[str]:
    """Asks that events be written for a while; answers the id of the stream's last entry: what happens from
    then on comes after it."""
    return make("listen", keys, now, (for_ms,), (), text_of)


def watch(
    keys: QueueKeys, ulids: Sequence[str], *, now: float | None = None
) -> Call[list[State | None]]:
    """Asks that the end of jobs be published; answers their states now."""

    def parse(reply: Any) -> list[State | None]:
        return [State(text_of(s)) if s else None for s in reply]

    return make("watch", keys, now, (), ulids, parse)


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that doctor found wrong, for ``repair.lua`` to look at again and to put right.

    ``kind`` is the name of its function there, and says what the other three mean.
    """

    kind: Literal[
        "key",
        "lasting",
        "passing",
        "member",
        "line",
        "worker",
        "misplaced",
        "entry",
        "lock",
        "attached",
        "setting",
    ]
    name: str | bytes
    where: str = ""
    seen: str | bytes = ""


def repair(
    keys: QueueKeys,
    repairs: Sequence[Repair],
    *,
    lease_ms: int,
    max_lost: int = MAX_LOST,
    now: float | None = None,
) -> Call[list[str]]:
    """Puts right what is still wrong; what was done in words for each, '' for nothing."""
    items = [x for r in repairs for x in (r.kind, r.name, r.where, r.seen)]
    return make("repair", keys, now, (lease_ms, max_lost), items, words)
