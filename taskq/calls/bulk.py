"""Bulk actions: written down in the queue, so that any process can carry them on."""

from collections.abc import Mapping
from typing import Any

from taskq.calls.base import Call, make, text_of
from taskq.keys import QueueKeys


def _fields(pairs: Any) -> dict[str, str]:
    return {text_of(pairs[i]): text_of(pairs[i + 1]) for i in range(0, len(pairs), 2)}


def bulk_start(
    keys: QueueKeys, bulk_id: str, facts: Mapping[str, str | int], *, now: float | None = None
) -> Call[str]:
    """Writes an action down: ``OK``, ``EXISTS``, ``FULL`` or ``BROKEN_KEY``."""
    items = [x for pair in facts.items() for x in pair]
    return make("bulk_start", keys, now, (bulk_id,), items, text_of)


def bulk_take(
    keys: QueueKeys, bulk_id: str, runner: str, *, lease_ms: int, now: float | None = None
) -> Call[dict[str, str] | str]:
    """Gives an action to a runner: its fields, or ``ENDED``, ``HELD``, ``NOT_FOUND``."""

    def parse(reply: Any) -> dict[str, str] | str:
        return _fields(reply) if isinstance(reply, list) else text_of(reply)

    return make("bulk_take", keys, now, (bulk_id, runner, lease_ms), (), parse)


def bulk_step(
    keys: QueueKeys,
    bulk_id: str,
    *,
    fence: int,
    step: int,
    cursor: str,
    looked: int,
    matched: int,
    done: int,
    skipped: int,
    last: bool,
    lease_ms: int,
    now: float | None = None,
) -> Call[str]:
    """Writes down what a page came to: ``OK``, ``STALE``, ``ENDED`` or ``NOT_FOUND``."""
    fixed = (bulk_id, fence, step, cursor, looked, matched, done, skipped, int(last), lease_ms)
    return make("bulk_step", keys, now, fixed, (), text_of)


def bulk_stop(
    keys: QueueKeys, bulk_id: str, *, error: str = "", now: float | None = None
) -> Call[str]:
    """Ends an action where it is, ``failed`` where there is an error: ``OK``, ``ENDED`` or ``NOT_FOUND``."""
    fixed = (bulk_id, "failed" if error else "stopped", error)
    return make("bulk_stop", keys, now, fixed, (), text_of)


def bulk_show(
    keys: QueueKeys, bulk_id: str = "", *, now: float | None = None
) -> Call[list[tuple[str, dict[str, str]]]]:
    """(id, fields) of one action, or of all that are kept."""

    def parse(reply: Any) -> list[tuple[str, dict[str, str]]]:
        return [(text_of(found), _fields(pairs)) for found, pairs in reply]

    return make("bulk_show", keys, now, (bulk_id,), (), parse)
