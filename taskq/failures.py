"""Failures by kind, over queues; and how the jobs of types have fared of late."""

import asyncio
from collections.abc import Container, Iterable

from taskq import calls
from taskq.errors import InvalidInput
from taskq.ids import check_queue
from taskq.inspector import Inspector
from taskq.model import ErrorGroup
from taskq.stats import TypeStatistics
from taskq.store import AsyncStore

PAGE_QUEUES = 20
"""Queues that a page of failures looks at."""
MAX_QUEUES = 200


async def failures(
    store: AsyncStore,
    queue: str | None = None,
    *,
    among: Container[str] | None = None,
    cursor: str | None = None,
) -> tuple[list[ErrorGroup], str | None]:
    """Failures by kind, of one queue or of all (``among`` these), 20 queues a page; and where to go
    on."""
    names = await _names(store, queue, among)
    if cursor:
        names = [name for name in names if name > cursor]
    page = names[:PAGE_QUEUES]
    groups = await _groups(store, page, "")
    return groups, page[-1] if len(names) > len(page) else None


async def failures_of(
    store: AsyncStore,
    fingerprint: str,
    queue: str | None = None,
    *,
    among: Container[str] | None = None,
) -> list[ErrorGroup]:
    """One kind of failure, in every queue that has it (of the first 200 queues by name)."""
    return await _groups(store, (await _names(store, queue, among))[:MAX_QUEUES], fingerprint)


async def latencies(
    look: Inspector, queues: Iterable[object], minutes: int = 10
) -> dict[tuple[str, str], TypeStatistics]:
    """Statistics of the last minutes by (queue, job type), of the first 20 of ``queues``; what is no name is
    passed over."""
    names = sorted({name for name in queues if isinstance(name, str) and _is_queue(name)})
    past = await asyncio.gather(*(look.statistics(name, minutes) for name in names[:PAGE_QUEUES]))
    return {(p.queue, of_type.job_type): of_type for p in past for of_type in p.types}


async def _names(store: AsyncStore, queue: str | None, among: Container[str] | None) -> list[str]:
    if queue is not None:
        return [check_queue(queue)]
    known = [name for name in await Inspector(store).queue_names() if _is_queue(name)]
    return known if among is None else [name for name in known if name in among]


async def _groups(store: AsyncStore, queues: Iterable[str], fingerprint: str) -> list[ErrorGroup]:
    found = await asyncio.gather(
        *(store.run(calls.errors(store.keys.queue(name), fingerprint)) for name in queues)
    )
    return [group for groups in found for group in groups]


def _is_queue(name: str) -> bool:
    try:
        check_queue(name)
    except InvalidInput:
        return False
    return True
