"""Changes and deletions of jobs, purges of queues, and the wishes that workers are told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taskq import calls
from taskq.errors import BrokenKey, InvalidInput, JobNotFound, WorkerNotFound, WrongState
from taskq.ids import check_job_type, split_id
from taskq.inspector import Inspector
from taskq.registry import Registry, WorkerInfo
from taskq.states import TERMINAL, WAITING, State
from taskq.store import AsyncStore

PURGE_PAGE = 100
"""Entries that one call of a purge looks at: the server is busy with it for a few milliseconds."""


async def edit(
    store: AsyncStore,
    job_id: str,
    *,
    priority: int | None = None,
    run_at_ms: int | None = None,
    delay_ms: int | None = None,
    fence: int | None = None,
) -> None:
    """Changes a waiting job's priority, or when it may run (ms since the epoch, or from now on).

    A time that has come makes it eligible now, also one that waits for its back-off to end. With ``fence``
    (0: it has never run) a job that has run since it was looked at is left alone.

    Raises ``JobNotFound``, ``WrongState``, ``InvalidInput``.
    """
    queue, ulid = split_id(job_id)
    if run_at_ms is not None and delay_ms is not None:
        raise InvalidInput("give delay or run_at, not both", field="delay")
    if run_at_ms is not None and not 0 <= run_at_ms <= 4_102_444_800_000 + calls.TEN_YEARS_MS:
        raise InvalidInput("run_at is out of range", field="run_at")
    if delay_ms is not None:
        # By the server's clock, and fixed here: so a repeat of the call moves it no further.
        run_at_ms = await store.clock_ms() + delay_ms
    ((word, state),) = await store.run(
        calls.edit(store.keys.queue(queue), [(ulid, priority, run_at_ms)], fence=fence)
    )
    _raise(job_id, word, state, "only a waiting job can be edited")


async def delete(store: AsyncStore, job_id: str, *, fence: int | None = None) -> None:
    """Drops an ended job with its result and history; a stub is kept for ``dedup_seconds``.

    One that is only a stub already is gone: ``JobNotFound``. ``fence`` as in ``edit``.

    Raises ``JobNotFound``, ``WrongState``.
    """
    queue, ulid = split_id(job_id)
    fences = None if fence is None else [fence]
    ((word, state),) = await store.run(
        calls.delete(store.keys.queue(queue), [ulid], fences=fences or ())
    )
    _raise(job_id, word, state, "only an ended job can be deleted; cancel it first")


def _raise(job_id: str, word: str, state: State | None, rule: str) -> None:
    if word == "NOT_FOUND":
        raise JobNotFound(job_id)
    if word == "STALE":
        raise WrongState(f"job {job_id} has run since it was looked at; look again")
    if word == "WRONG_STATE":
        raise WrongState(f"{rule}; {job_id} is {state}", state=state)
    if word == "BROKEN":
        raise BrokenKey(f"a key of job {job_id} has the wrong type: run `taskq doctor`")


async def find_workers(store: AsyncStore, name: str) -> list[WorkerInfo]:
    """The processes of the supervisor that runs the worker ``name``: its id, or ``host:pid`` of one of
    them. Raises ``WorkerNotFound``."""
    workers = await Inspector(store).workers()
    mine = next((w for w in workers if name in (w.id, f"{w.host}:{w.pid}")), None)
    if mine is None:
        raise WorkerNotFound(name[:200])
    return [w for w in workers if (w.host, w.supervisor_pid) == (mine.host, mine.supervisor_pid)]


async def tell_worker(store: AsyncStore, name: str, wish: str) -> Sequence[WorkerInfo]:
    """Asks a worker to be ``quiet`` (claim nothing more, finish what it has) or to ``stop`` as SIGTERM does.

    It concerns all processes of its supervisor, which are answered. The wish stands in their records, so
    that it is heard at the next beat also where the nudge is lost. Raises ``WorkerNotFound``.
    """
    if wish not in ("quiet", "stop"):
        raise InvalidInput("a worker can be asked to be quiet or to stop", field="wish")
    found = await find_workers(store, name)
    registry = Registry(store, ttl_seconds=60)
    for worker in found:
        await registry.wish(worker, wish)
    return found


@dataclass(frozen=True, slots=True)
class Purge:
    """How many jobs were taken out, and where to go on; None at the end."""

    removed: int
    cursor: str | None


async def purge(
    store: AsyncStore,
    queue: str,
    what: str,
    *,
    job_type: str = "",
    limit: int = 10_000,
    cursor: str | None = None,
) -> Purge:
    """Cancels waiting jobs (``what``: ``waiting``, or one of their states), or deletes ended ones (their
    state), looking at ``limit`` entries at most. Raises ``InvalidInput``."""
    if job_type:
        check_job_type(job_type)
    if what != "waiting" and State(what) in TERMINAL:
        return await _delete_ended(store, queue, State(what), job_type, limit, cursor)
    states = sorted(WAITING) if what == "waiting" else [State(what)]
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 12):
        raise InvalidInput("this cursor is not one of ours", field="cursor")
    page, removed, keys = int(cursor or 1) or 1, 0, store.keys.queue(queue)
    for size in _sizes(limit):
        call = calls.purge(keys, states, job_type=job_type, limit=size, page=page)
        done, page = await store.run(call)
        removed += done
        if page == 0:
            return Purge(removed, None)
    return Purge(removed, str(page))


async def _delete_ended(
    store: AsyncStore, queue: str, state: State, job_type: str, limit: int, cursor: str | None
) -> Purge:
    look, removed = Inspector(store), 0
    looked = 0
    while True:
        page = await look.jobs(
            queue=queue, states=(state,), job_type=job_type, limit=PURGE_PAGE, cursor=cursor
        )
        cursor = page.cursor
        if page.jobs:
            call = calls.delete(
                store.keys.queue(queue),
                [job.ulid for job in page.jobs],
                fences=[job.fence or 0 for job in page.jobs],
            )
            removed += sum(word == "DELETED" for word, _ in await store.run(call))
        looked += page.looked
        if cursor is None or looked >= limit:
            return Purge(removed, cursor)


def _sizes(limit: int) -> Iterator[int]:
    while limit > 0:
        yield min(limit, PURGE_PAGE)
        limit -= PURGE_PAGE
