"""Runs an application's jobs inside a test: the real scripts, a server of its own, a clock the test moves.

::

    async with testing.running(app) as worker:
        job = await send_mail.options(delay=60).enqueue("a@example.com")
        assert await worker.drain() == []
        worker.advance(60)
        await worker.drain()
        assert await job.result() == "sent"

Within ``running`` whatever the application submits, looks up or cancels goes to that server, under that
clock, from any thread or loop. Jobs run one after the other, in the order in which a worker would start
them, and only while ``drain`` or ``run_next`` is awaited.
"""

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from taskq import calls, codec
from taskq.app import CallNext, TaskQ
from taskq.calls import Call, Failure, Success
from taskq.client import AsyncClient, SyncClient
from taskq.connection import connect, connect_async
from taskq.context import Context
from taskq.embedded import EmbeddedServer
from taskq.errors import ConfigError, LeaseLost, TaskqError
from taskq.ids import UlidFactory, join_id
from taskq.keys import Keys, QueueKeys
from taskq.model import Claimed
from taskq.states import State
from taskq.store import AsyncStore, Store
from taskq.tasks import Task
from taskq.verdict import Verdict, error_json, judge, policy

__all__ = ["InlineWorker", "Ran", "running"]

T = TypeVar("T")

LEASE_MS = 15_000
LOOK_SECONDS = 0.05
"""How often a run that goes on is looked after: is it cancelled, out of time, has it said something."""

_AFTER = {
    "OK": State.SUCCEEDED,
    "SCHEDULED": State.SCHEDULED,
    "RETRYING": State.RETRYING,
    "FAILED": State.FAILED,
    "CANCELLED": State.CANCELLED,
}
"""State of a job by what its report was answered."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a job. ``state`` is the job's after it; ``error`` is what the run raised."""

    job_id: str
    job_type: str
    attempt: int
    state: State
    error: BaseException | None = None


@asynccontextmanager
async def running(
    app: TaskQ,
    *,
    server: Literal["embedded", "fake"] = "embedded",
    start: datetime | None = None,
) -> "AsyncIterator[InlineWorker]":
    """Gives ``app`` an empty server and a worker in this process, for the length of an ``async with``.

    ``embedded`` starts a Valkey (a fraction of a second, needs ``taskq[embedded]`` or one in ``PATH``);
    ``fake`` is fakeredis inside this process (needs ``fakeredis[lua]``). The clock starts at ``start``, by
    default now. The application's lifespans are open meanwhile. Raises ``EmbeddedServerError``,
    ``ConfigError``.
    """
    clock = _Clock(start)
    async with AsyncExitStack() as stack:
        make, make_sync = stack.enter_context(_server(server, clock))
        stack.enter_context(app.connecting_by(make, make_sync))
        stack.push_async_callback(app.close)
        state = None
        for lifespan in app.lifespans:
            yielded = await stack.enter_async_context(lifespan())
            state = state if yielded is None else yielded
        yield InlineWorker(app, clock, state)


class InlineWorker:
    """Runs jobs where it is awaited; made by ``running``."""

    def __init__(self, app: TaskQ, clock: "_Clock", state: Any) -> None:
        self._app = app
        self._clock = clock
        self._state = state
        self._id = f"testing-{UlidFactory()()}"
        self._claims: dict[str, int] = {}

    @property
    def now(self) -> datetime:
        """What the queue takes for the time, in UTC. It stands still but for a millisecond per submission."""
        return datetime.fromtimestamp(self._clock.ms / 1000, UTC)

    def advance(self, seconds: float) -> None:
        """Moves the clock on; runs nothing by itself. Raises ``ValueError``."""
        self._clock.advance(seconds)

    async def drain(self, *, most: int = 10_000) -> list[Ran]:
        """Runs jobs of every queue until none is due, those that these jobs submit among them.

        What waits for a later time stays; ``advance`` makes it due. What is past its ``expires`` or
        ``result_ttl`` ends. Raises ``TaskqError`` after ``most`` runs.
        """
        ran: list[Ran] = []
        while (one := await self.run_next()) is not None:
            ran.append(one)
            if len(ran) >= most:
                raise TaskqError(f"drain ran {most} jobs and did not come to an end")
        return ran

    async def run_next(self) -> Ran | None:
        """Runs the one job that is first in line; None when none is due."""
        queues = await self._queues()
        for keys in queues:
            while (await self._run(calls.expire(keys)))[2]:
                continue
        # Usually once: an expired job at the head of a line ends when it is claimed, and is not answered.
        for _ in range(1000):
            heads = [(await self._head(keys), keys.queue) for keys in queues]
            known = [(score, queue) for score, queue in heads if score is not None]
            if not known:
                return None
            keys = self._keys.queue(min(known)[1])
            call = self._claims[keys.queue] = self._claims.get(keys.queue, 0) + 1
            reply = await self._run(
                calls.claim(keys, self._id, call, 1, list(self._app.tasks), lease_ms=LEASE_MS)
            )
            if reply.jobs:
                return await _Run(self, keys, reply.jobs[0]).go()
        raise TaskqError("the first job in line cannot be claimed")

    # --- for _Run -------------------------------------------------------------------------------

    @property
    def _keys(self) -> Keys:
        return self._app.client().store.keys

    async def _run(self, call: Call[T]) -> T:
        return await self._app.client().store.run(call)

    async def _queues(self) -> list[QueueKeys]:
        (names,) = await self._app.client().store.pipeline([("SMEMBERS", self._keys.queues)])
        return [self._keys.queue(name.decode()) for name in sorted(names)]

    async def _head(self, keys: QueueKeys) -> float | None:
        look = calls.claim(keys, self._id, 0, 0, list(self._app.tasks), lease_ms=LEASE_MS)
        return (await self._run(look)).next_score


class _Run:
    """One claimed job, from its payload to the report of how it ended."""

    def __init__(self, worker: InlineWorker, keys: QueueKeys, claimed: Claimed) -> None:
        self._worker = worker
        self._keys = keys
        self._claimed = claimed
        self._task: Task[Any, Any] = worker._app.tasks[claimed.job_type]
        self._told: list[tuple[str, bytes]] = []
        self._lines_sent = 0
        self._context = Context(
            job_id=join_id(keys.queue, claimed.ulid),
            job_type=claimed.job_type,
            queue=keys.queue,
            attempt=claimed.attempts,
            failures=claimed.failures,
            fence=int(claimed.fence),
            created_at=claimed.created_at,
            state=worker._state,
            tell=self._tell,
        )

    async def go(self) -> Ran:
        """Runs the job and reports. Hands it back when the one who waits is cancelled."""
        run = asyncio.create_task(self._outcome())
        try:
            await self._look_after(run)
        except BaseException:
            self._ask_to_stop("stop", run)
            await asyncio.wait({run})
            mine = [(self._claimed.ulid, self._claimed.fence)]
            await self._worker._run(calls.release(self._keys, self._worker._id, mine, "stop"))
            raise
        await self._send_told()
        result, error = run.result()
        (word,) = await self._worker._run(self._report(result, error))
        if word not in _AFTER:
            raise LeaseLost(f"job {self._context.job_id} is no longer this worker's: {word}")
        claimed, state = self._claimed, _AFTER[word]
        return Ran(self._context.job_id, claimed.job_type, claimed.attempts, state, error)

    async def _look_after(self, run: "asyncio.Task[Any]") -> None:
        timeout = self._claimed.timeout_ms
        seconds = self._task.defaults.timeout if timeout is None else timeout / 1000
        deadline = time.monotonic() + seconds if seconds else math.inf
        while not (await asyncio.wait({run}, timeout=LOOK_SECONDS))[0]:
            await self._send_told()
            held = [(self._worker._id, LEASE_MS, 1)]
            (beat,) = await self._worker._run(calls.heartbeat(self._keys, held))
            if self._claimed.ulid in beat.cancel:
                self._ask_to_stop("cancelled", run)
            elif time.monotonic() > deadline:
                self._ask_to_stop("timeout", run)

    def _ask_to_stop(self, reason: str, run: "asyncio.Task[Any]") -> None:
        if not self._context.cancelled:
            self._context._ask_to_stop(reason)
            # A thread cannot be stopped from outside: its function is told, and waited for.
            if self._task.is_async:
                run.cancel()

    async def _outcome(self) -> tuple[bytes, BaseException | None]:
        """(result, None), or what was raised on the way; never raises, for a job ends only itself."""
        try:
            payload = codec.loads(self._claimed.payload, max_bytes=1 << 30)
            kwargs = self._task.parameters.load(payload)
            if self._task.parameters.context_name is not None:
                kwargs[self._task.parameters.context_name] = self._context
            call: CallNext = partial(_execute, self._task, kwargs)
            for middleware in reversed(self._worker._app.middlewares):
                call = partial(middleware, self._context, call)
            return codec.dumps(await call(), what="result", default=codec.plain), None
        except BaseException as error:
            return b"", error

    def _report(self, result: bytes, error: BaseException | None) -> Call[list[str]]:
        """The one call that says how the run ended."""
        keys, worker, job, task = self._keys, self._worker._id, self._claimed, self._task
        reason = self._context.stop_reason
        if reason == "timeout":
            error = TimeoutError("ran longer than its timeout allows")
        if error is None:
            ttl = task.defaults.result_ttl
            ttl_ms = round(ttl * 1000) if ttl is not None else None
            success = Success(
                job.ulid,
                job.fence,
                result,
                ttl_ms if job.result_ttl_ms is None else job.result_ttl_ms,
                task.defaults.keep_payload,
            )
            return calls.finish(keys, worker, [success])
        if reason == "cancelled" and isinstance(error, asyncio.CancelledError):
            return calls.release(keys, worker, [(job.ulid, job.fence)], "cancelled")
        verdict = judge(error)
        if reason == "timeout":
            verdict = Verdict("failed", error_json("Timeout", str(error), None))
        if verdict.kind == "snoozed":
            return calls.snooze(
                keys, worker, [(job.ulid, job.fence, round((verdict.after or 0) * 1000))]
            )
        delay_ms, attempts = policy(job, task, retry=verdict.retry, after=verdict.after)
        failure = Failure(job.ulid, job.fence, verdict.error.encode(), delay_ms, attempts)
        return calls.fail(keys, worker, [failure])

    def _tell(self, kind: str, message: dict[str, Any]) -> None:
        """From any thread."""
        text = json.dumps({**message, "at": int(self._worker._clock.ms)}, ensure_ascii=False)
        self._told.append((kind, text.encode(errors="replace")))

    async def _send_told(self) -> None:
        told, self._told = self._told, []
        ulid, fence, worker = self._claimed.ulid, self._claimed.fence, self._worker._id
        for kind, data in told:
            if kind == "progress":
                await self._worker._run(calls.progress(self._keys, worker, [(ulid, fence, data)]))
            else:
                self._lines_sent += 1
                line = (ulid, fence, self._lines_sent, data)
                await self._worker._run(calls.log(self._keys, worker, [line]))


async def _execute(task: Task[Any, Any], kwargs: dict[str, Any]) -> Any:
    if task.is_async:
        return await task.func(**kwargs)
    value, error = await asyncio.to_thread(_in_thread, task.func, kwargs)
    if error is not None:
        raise error
    return value


def _in_thread(
    func: Callable[..., Any], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """SystemExit and StopIteration too: they must not pass through a future."""
    try:
        return func(**kwargs), None
    except BaseException as error:
        return None, error


class _Clock:
    """The time under which every call is sent."""

    def __init__(self, start: datetime | None) -> None:
        if start is not None and start.tzinfo is None:
            raise ValueError("start needs a time zone")
        self.ms = float(int((time.time() if start is None else start.timestamp()) * 1000))
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        if not 0 <= seconds <= timedelta(days=36_500).total_seconds():
            raise ValueError(f"the clock moves on only, and not {seconds!r} seconds")
        with self._lock:
            self.ms += math.ceil(seconds * 1000)

    def stamp(self, call: Call[T]) -> Call[T]:
        with self._lock:
            if call.script.name == "enqueue":
                # So that of two submissions the first is first in line.
                self.ms += 1
            return replace(call, args=[repr(self.ms), *call.args[1:]])


class _ClockedStore(Store):
    def __init__(self, client: Any, clock: _Clock) -> None:
        super().__init__(client, Keys())
        self._clock = clock

    def _once(self, call: Call[T]) -> T:
        return super()._once(self._clock.stamp(call))


class _ClockedAsyncStore(AsyncStore):
    def __init__(self, client: Any, clock: _Clock) -> None:
        super().__init__(client, Keys())
        self._clock = clock

    async def once(self, call: Call[T]) -> T:
        return await super().once(self._clock.stamp(call))


_Connects = tuple[Callable[[], AsyncClient], Callable[[], SyncClient]]


@contextmanager
def _server(kind: str, clock: _Clock) -> Iterator[_Connects]:
    """A server for a while, and how to connect to it."""
    if kind == "embedded":
        with EmbeddedServer() as server:
            yield (
                lambda: AsyncClient(_ClockedAsyncStore(connect_async(server.url), clock)),
                lambda: SyncClient(_ClockedStore(connect(server.url), clock)),
            )
    elif kind == "fake":
        try:
            import fakeredis
        except ImportError:
            raise ConfigError('server="fake" needs: pip install "fakeredis[lua]"') from None
        fake = fakeredis.FakeServer()
        yield (
            lambda: AsyncClient(
                _ClockedAsyncStore(fakeredis.FakeAsyncRedis(server=fake, protocol=2), clock)
            ),
            lambda: SyncClient(_ClockedStore(fakeredis.FakeRedis(server=fake, protocol=2), clock)),
        )
    else:
        raise ConfigError(f'server is "embedded" or "fake", not {kind!r}')
