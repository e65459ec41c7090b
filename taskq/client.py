"""Submits jobs and waits for them: the async and the sync client over the same calls.

Concurrent submissions of one event loop share a round trip: while one call is under way the next ones
gather, so that batching costs no waiting (group commit).
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from taskq import calls, tracing
from taskq.durable import require_durable, require_durable_sync
from taskq.errors import (
    BrokenKey,
    IdempotencyConflict,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueFull,
    ResultExpired,
    ResultTimeout,
    TaskqError,
    Unavailable,
    UniqueHeld,
    WrongState,
)
from taskq.ids import join_id, split_id
from taskq.keys import Keys
from taskq.model import Enqueued, Job, JobSpec
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore, Store
from taskq.waiting import Waiters

MAX_BATCH_ITEMS = 500
MAX_BATCH_BYTES = 1_048_576
RECHECK_SECONDS = 2.0
"""A lost notice of a job's end costs a waiter at most this long."""


def refusal(queue: str, spec: JobSpec, outcome: Enqueued) -> TaskqError | None:
    """The error that a submission's outcome stands for; None when the job is stored."""
    if outcome.known:
        return None
    if outcome.outcome == "CONFLICT":
        return IdempotencyConflict(
            "this idempotency key was used before with another body; use a new key for a new job"
        )
    if outcome.outcome == "UNIQUE":
        return UniqueHeld(spec.unique or "", join_id(queue, outcome.holder or ""))
    if outcome.outcome == "FULL":
        return QueueFull(f"queue {queue!r} holds max_depth waiting jobs; try again later")
    if outcome.outcome == "TOO_MANY_TYPES":
        return QueueFull(f"queue {queue!r} holds waiting jobs of 1,000 types; no new type fits")
    if outcome.outcome == "EXPIRED":
        return InvalidInput("the job would expire before it is stored", field="expires")
    return BrokenKey(f"a key of queue {queue!r} has the wrong type: run `taskq doctor`")


def result_of(job: Job | None, job_id: str) -> Any:
    """The result of an ended job, or the error that says how else it ended."""
    if job is None:
        raise JobNotFound(job_id)
    if job.state is State.SUCCEEDED:
        if job.result is None:
            raise ResultExpired(f"job {job_id} succeeded, but its result is no longer kept")
        return json.loads(job.result)
    if job.state is State.CANCELLED:
        raise JobCancelled(job_id, job.reason)
    raise JobFailed(job_id, job.error)


def cancel_outcome(job_id: str, word: str, state: State | None) -> State:
    """State after a cancel: cancelled, or running while the wish stands. Raises what refused it."""
    if word == "NOT_FOUND":
        raise JobNotFound(job_id)
    if word == "ENDED" and state is not None and state is not State.CANCELLED:
        raise WrongState(f"job {job_id} has ended already: {state}", state=state)
    if word == "BROKEN":
        raise BrokenKey(f"a key of job {job_id} has the wrong type: run `taskq doctor`")
    return State.RUNNING if word == "CANCELLING" else State.CANCELLED


def seen(job: Job) -> tuple[str, str]:
    """(ulid, fence) of the run that a retry is meant for: a later one is left alone."""
    return job.ulid, "" if job.fence is None else str(job.fence)


def retry_outcome(job: Job, word: str, detail: str | None) -> State:
    """State after a retry of a job that was looked at before. Raises what refused it."""
    if word == "QUEUED":
        return State.QUEUED
    if word == "NOT_FOUND":
        raise JobNotFound(job.id)
    if word == "UNIQUE":
        raise UniqueHeld(job.unique_key or "", join_id(job.queue, detail or ""))
    if word == "STALE":
        raise WrongState(f"job {job.id} has run again since it was looked at; look again")
    if word == "WRONG_STATE":
        state = State(detail or job.state)
        # It had failed a moment ago: this very call, whose first answer was lost, or somebody else's
        # has retried it.
        if job.state is State.FAILED and state is State.QUEUED:
            return state
        raise WrongState(f"only a failed job can be retried; {job.id} is {state}", state=state)
    raise BrokenKey(f"a key of job {job.id} has the wrong type: run `taskq doctor`")


class _Item(NamedTuple):
    """A submission that waits for its turn; ``since`` by the loop's clock."""

    spec: JobSpec
    stored: "asyncio.Future[Enqueued]"
    since: float

    def fail(self, error: Exception) -> None:
        if not self.stored.done():
            self.stored.set_exception(error)


class _Batcher:
    """Gathers submissions to one queue while a call is under way."""

    def __init__(self, store: AsyncStore, queue: str) -> None:
        self._store = store
        self._queue = queue
        self._waiting: list[_Item] = []
        self._busy = False
        """A call is under way; what comes meanwhile shares the next one."""
        self._sender: asyncio.Task[None] | None = None

    async def submit(self, spec: JobSpec) -> Enqueued:
        if not self._busy:
            return await self._submit_alone(spec)
        loop = asyncio.get_running_loop()
        item = _Item(spec, loop.create_future(), loop.time())
        self._waiting.append(item)
        return await item.stored

    async def _submit_alone(self, spec: JobSpec) -> Enqueued:
        """Without a task, whose turn costs a lone submission more than its call."""
        self._busy = True
        try:
            (outcome,) = await submit_specs(self._store, self._queue, [spec])
        except Unavailable as error:
            self._refuse(error)
            raise
        finally:
            # Where a loop ends, all have given up, and a new task would be left behind.
            self._waiting = [item for item in self._waiting if not item.stored.done()]
            self._busy = bool(self._waiting)
            if self._busy:
                self._sender = asyncio.create_task(self._send())
        return outcome

    async def _send(self) -> None:
        batch: list[_Item] = []
        try:
            while self._waiting:
                batch = self._take()
                try:
                    specs = [item.spec for item in batch]
                    outcomes = await submit_specs(self._store, self._queue, specs)
                except Exception as error:
                    for item in batch:
                        item.fail(error)
                    if isinstance(error, Unavailable):
                        self._refuse(error)
                else:
                    for item, outcome in zip(batch, outcomes, strict=True):
                        if not item.stored.done():
                            item.stored.set_result(outcome)
        finally:
            # Only where it was cancelled is anybody left.
            for item in batch + self._waiting:
                item.stored.cancel()
            self._waiting = []
            self._busy = False

    def _refuse(self, error: Unavailable) -> None:
        """Tells those who have waited behind a failed call for as long as calls are tried: the next one may
        take as long again. The others have a call more."""
        latest = asyncio.get_running_loop().time() - self._store.retry_seconds
        for item in self._waiting:
            if item.since <= latest:
                item.fail(error)
        self._waiting = [item for item in self._waiting if not item.stored.done()]

    def _take(self) -> "list[_Item]":
        size = taken = 0
        for item in self._waiting:
            size += len(item.spec.payload)
            if taken and (taken == MAX_BATCH_ITEMS or size > MAX_BATCH_BYTES):
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch


async def submit_specs(store: AsyncStore, queue: str, specs: Sequence[JobSpec]) -> list[Enqueued]:
    """Stores jobs of one queue in one call, the queue's entry in the registry first."""
    await store.know_queue(queue)
    return await store.run(calls.enqueue(store.keys.queue(queue), specs))


def chunks(specs: Sequence[JobSpec]) -> list[Sequence[JobSpec]]:
    """Splits submissions into calls bounded in items and bytes."""
    out: list[Sequence[JobSpec]] = []
    start = size = 0
    for i, spec in enumerate(specs):
        size += len(spec.payload)
        if i > start and (i - start == calls.MAX_ITEMS or size > MAX_BATCH_BYTES):
            out.append(specs[start:i])
            start, size = i, len(spec.payload)
    if len(specs) > start:
        out.append(specs[start:])
    return out


@contextlib.contextmanager
def traced(queue: str, specs: Sequence[JobSpec]) -> Iterator[Sequence[JobSpec]]:
    """The specs with the trace context that they carry, within a span where somebody collects spans."""
    if not specs or not tracing.active(specs[0].traceparent):
        yield specs
        return
    ids = [join_id(queue, spec.id) for spec in specs]
    with tracing.submitting(queue, ids, specs[0].job_type, specs[0].traceparent) as traceparent:
        yield [replace(spec, traceparent=traceparent) for spec in specs]


class AsyncClient:
    """Submission and look-ups over one event loop."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self._batchers: dict[str, _Batcher] = {}
        self._waiters = Waiters(store)

    @classmethod
    def from_url(cls, url: str, namespace: str, **options: Any) -> "AsyncClient":
        return cls(AsyncStore.from_url(url, Keys(namespace), **options))

    async def submit(self, queue: str, spec: JobSpec) -> Enqueued:
        """Stores one job; concurrent calls share a round trip. Raises what ``refusal`` says."""
        calls.check_spec(spec)
        if spec.durable:
            await require_durable(self.store)
        if tracing.active(spec.traceparent):
            with traced(queue, [spec]) as (spanned,):
                return await self._submit(queue, spanned)
        return await self._submit(queue, spec)

    async def _submit(self, queue: str, spec: JobSpec) -> Enqueued:
        batcher = self._batchers.get(queue)
        if batcher is None:
            batcher = self._batchers[queue] = _Batcher(self.store, queue)
        outcome = await batcher.submit(spec)
        error = refusal(queue, spec, outcome)
        if error is not None:
            raise error
        return outcome

    async def submit_many(self, queue: str, specs: Sequence[JobSpec]) -> list[Enqueued]:
        """Stores many jobs; answers an outcome each and raises only when a call itself failed."""
        for spec in specs:
            calls.check_spec(spec)
        if any(spec.durable for spec in specs):
            await require_durable(self.store)
        with traced(queue, specs) as spanned:
            out: list[Enqueued] = []
            for chunk in chunks(spanned):
                out += await submit_specs(self.store, queue, chunk)
            return out

    async def job(self, job_id: str) -> Job:
        """All that is kept of a job. Raises ``JobNotFound``."""
        queue, ulid = split_id(job_id)
        (job,) = await self.store.run(calls.show(self.store.keys.queue(queue), [ulid]))
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def cancel(self, job_id: str, reason: str = "cancelled") -> State:
        """Cancels a job; a running one is asked to stop. Raises ``JobNotFound``, ``WrongState``."""
        queue, ulid = split_id(job_id)
        ((word, state),) = await self.store.run(
            calls.cancel(self.store.keys.queue(queue), [ulid], reason)
        )
        return cancel_outcome(job_id, word, state)

    async def retry(self, job_id: str) -> State:
        """Puts a failed job back in line, with its failures, crashes and losses forgotten.

        Raises ``JobNotFound``, ``WrongState``, ``UniqueHeld``.
        """
        job = await self.job(job_id)
        keys = self.store.keys.queue(job.queue)
        ((word, detail),) = await self.store.run(calls.retry(keys, [seen(job)]))
        return retry_outcome(job, word, detail)

    async def result(self, job_id: str, timeout: float | None = None) -> Any:
        """Waits for the job's end, at most ``timeout`` seconds; answers its result or raises how it ended."""
        if not await self.wait(job_id, timeout):
            raise ResultTimeout(f"job {job_id} had not ended after {timeout} s; it goes on")
        queue, ulid = split_id(job_id)
        (job,) = await self.store.run(calls.show(self.store.keys.queue(queue), [ulid]))
        return result_of(job, job_id)

    async def wait(self, job_id: str, timeout: float | None = None) -> bool:
        """Waits for the job's end; False when ``timeout`` seconds ran out. Raises ``JobNotFound``."""
        queue, ulid = split_id(job_id)
        keys = self.store.keys.queue(queue)
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        async with self._waiters.listen(keys.done_channel(ulid)) as ended:
            while True:
                # Before the look: a notice that comes during it must wake the wait that follows.
                ended.clear()
                (state,) = await self.store.run(calls.watch(keys, [ulid]))
                if state is None:
                    raise JobNotFound(job_id)
                if state in TERMINAL:
                    return True
                pause = RECHECK_SECONDS
                if until is not None:
                    pause = min(pause, until - loop.time())
                    if pause <= 0:
                        return False
                try:
                    async with asyncio.timeout(pause):
                        await ended.wait()
                except TimeoutError:
                    continue

    def abandon(self) -> None:
        """For a client whose event loop is closed: closes its sockets, as far as they still are open."""
        self.store.abandon()

    async def close(self) -> None:
        await self._waiters.close()
        await self.store.close()


class SyncClient:
    """The same for code without an event loop; safe over threads."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def from_url(cls, url: str, namespace: str, **options: Any) -> "SyncClient":
        return cls(Store.from_url(url, Keys(namespace), **options))

    def submit(self, queue: str, spec: JobSpec) -> Enqueued:
        """Stores one job. Raises what ``refusal`` says."""
        (outcome,) = self.submit_many(queue, [spec])
        error = refusal(queue, spec, outcome)
        if error is not None:
            raise error
        return outcome

    def submit_many(self, queue: str, specs: Sequence[JobSpec]) -> list[Enqueued]:
        """Stores many jobs; answers an outcome each and raises only when a call itself failed."""
        for spec in specs:
            calls.check_spec(spec)
        if any(spec.durable for spec in specs):
            require_durable_sync(self.store)
        self.store.know_queue(queue)
        with traced(queue, specs) as spanned:
            out: list[Enqueued] = []
            for chunk in chunks(spanned):
                outcomes = self.store.run(calls.enqueue(self.store.keys.queue(queue), chunk))
                out += outcomes
            return out

    def job(self, job_id: str) -> Job:
        """All that is kept of a job. Raises ``JobNotFound``."""
        queue, ulid = split_id(job_id)
        (job,) = self.store.run(calls.show(self.store.keys.queue(queue), [ulid]))
        if job is None:
            raise JobNotFound(job_id)
        return job

    def cancel(self, job_id: str, reason: str = "cancelled") -> State:
        """Cancels a job; a running one is asked to stop. Raises ``JobNotFound``, ``WrongState``."""
        queue, ulid = split_id(job_id)
        ((word, state),) = self.store.run(
            calls.cancel(self.store.keys.queue(queue), [ulid], reason)
        )
        return cancel_outcome(job_id, word, state)

    def retry(self, job_id: str) -> State:
        """Puts a failed job back in line, with its failures, crashes and losses forgotten.

        Raises ``JobNotFound``, ``WrongState``, ``UniqueHeld``.
        """
        job = self.job(job_id)
        keys = self.store.keys.queue(job.queue)
        ((word, detail),) = self.store.run(calls.retry(keys, [seen(job)]))
        return retry_outcome(job, word, detail)

    def result(self, job_id: str, timeout: float | None = None) -> Any:
        """Waits for the job's end, at most ``timeout`` seconds; answers its result or raises how it ended."""
        queue, ulid = split_id(job_id)
        keys = self.store.keys.queue(queue)
        if not self.store.wait_message(
            keys.done_channel(ulid), lambda: self._ended(job_id), timeout, RECHECK_SECONDS
        ):
            raise ResultTimeout(f"job {job_id} had not ended after {timeout} s; it goes on")
        (job,) = self.store.run(calls.show(keys, [ulid]))
        return result_of(job, job_id)

    def _ended(self, job_id: str) -> bool:
        queue, ulid = split_id(job_id)
        (state,) = self.store.run(calls.watch(self.store.keys.queue(queue), [ulid]))
        if state is None:
            raise JobNotFound(job_id)
        return state in TERMINAL

    def close(self) -> None:
        self.store.close()
