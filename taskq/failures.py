"""Failures by kind, over queues; and how the jobs of types have fared of late."""

import asyncio
from collections.abc import Container, Iterable, Mapping

from taskq import calls
from taskq.errors import InvalidInput
from taskq.ids import check_queue
from taskq.inspector import Inspector
from taskq.keys import QueueKeys
from taskq.model import ErrorGroup
from taskq.stats import TypeStatistics

PAGE_QUEUES = 20
"""Queues that a page of failures looks at."""
MAX_QUEUES = 200


async def failures(
    look: Inspector,
    queue: str | None = None,
    *,
    among: Container[str] | None = None,
    cursor: str | None = None,
) -> tuple[list[ErrorGroup], str | None]:
    """Failures by kind, of one queue or of all (``among`` these), 20 queues a page; and where to go
    on."""
    found, left_out = await _groups(look, queue, among, most=PAGE_QUEUES, behind=cursor or "")
    return _flat(found), list(found)[-1] if left_out else None


async def failures_of(
    look: Inspector,
    fingerprint: str,
    queue: str | None = None,
    *,
    among: Container[str] | None = None,
) -> list[ErrorGroup]:
    """One kind of failure, in every queue that has it (of the first 200 queues by name)."""
    found, _ = await _groups(look, queue, among, fingerprint, most=MAX_QUEUES)
    return _flat(found)


async def latencies(
    look: Inspector, queues: Iterable[object], minutes: int = 10
) -> dict[tuple[str, str], TypeStatistics]:
    """Statistics of the last minutes by (queue, job type), of the first 20 of ``queues``; what is no name is
    passed over."""
    names = sorted({name for name in queues if isinstance(name, str) and _is_queue(name)})
    past = await asyncio.gather(*(look.statistics(name, minutes) for name in names[:PAGE_QUEUES]))
    return {(p.queue, of_type.job_type): of_type for p in past for of_type in p.types}


async def _groups(
    look: Inspector,
    queue: str | None,
    among: Container[str] | None,
    fingerprint: str = "",
    *,
    most: int,
    behind: str = "",
) -> tuple[dict[str, list[ErrorGroup]], int]:
    """By queue; and how many queues are left out."""

    def errors(keys: QueueKeys) -> calls.Call[list[ErrorGroup]]:
        return calls.errors(keys, fingerprint)

    def wanted(name: str) -> bool:
        return _is_queue(name) and (among is None or name in among) and name > behind

    names = None if queue is None else [check_queue(queue)]
    return await look.over_queues(errors, names, wanted=wanted, most=most)


def _flat(found: Mapping[str, Iterable[ErrorGroup]]) -> list[ErrorGroup]:
    return [group for groups in found.values() for group in groups]


def _is_queue(name: str) -> bool:
    try:
        check_queue(name)
    except InvalidInput:
        return False
    return True
