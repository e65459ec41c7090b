"""``TaskQ``: the application object that tasks are registered with and jobs are submitted through."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import fields
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from taskq import codec
from taskq.client import AsyncClient, SyncClient, refusal
from taskq.context import Context
from taskq.errors import ConfigError
from taskq.handles import JobHandle
from taskq.ids import UlidFactory, join_id
from taskq.model import Enqueued, JobSpec
from taskq.retry import Backoff
from taskq.settings import Settings, load_settings
from taskq.states import State
from taskq.submission import SubmitKwargs, SubmitOptions, make_spec, run_at_ms, submit_options
from taskq.tasks import Executor, Task, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
CallNext: TypeAlias = Callable[[], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context, CallNext], Awaitable[Any]]
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class BoundTask(Generic[P, R]):
    """A task together with options for the jobs submitted through it."""

    def __init__(self, app: "TaskQ", task: Task[P, R], options: SubmitOptions) -> None:
        self._app = app
        self._task = task
        self._options = options

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> tuple[str, JobSpec]:
        """The submission itself, for ``TaskQ.enqueue_many``: (queue, job)."""
        payload = self._task.parameters.dump(args, kwargs)
        return self._app.spec(self._task.name, payload, self._options, self._task.defaults)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Stores a job with these arguments and answers once it is stored."""
        return await self._app.store_job(*self.spec(*args, **kwargs))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same from sync code."""
        return self._app.store_job_sync(*self.spec(*args, **kwargs))


class RegisteredTask(Task[P, R]):
    """What ``@app.task`` answers: call it to run it here, ``enqueue`` it to run it on a worker."""

    def __init__(
        self, app: "TaskQ", func: Callable[..., Any], name: str, options: TaskOptions
    ) -> None:
        super().__init__(func, name, options)
        self._app = app
        self._bound: BoundTask[P, R] = BoundTask(app, self, SubmitOptions())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Just calls the function (a coroutine function answers its coroutine)."""
        name = self.parameters.context_name
        if name is None or name in kwargs or any(isinstance(a, Context) for a in args):
            return self.func(*args, **kwargs)
        return self.func(
            **{name: Context.detached(self.name)}, **self.parameters.named(args, kwargs)
        )

    def options(self, **options: Unpack[SubmitKwargs]) -> BoundTask[P, R]:
        """Options apart from arguments; see ``SubmitOptions``. Raises ``InvalidInput``."""
        return BoundTask(self._app, self, submit_options(options))

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> tuple[str, JobSpec]:
        """The submission itself, for ``TaskQ.enqueue_many``: (queue, job)."""
        return self._bound.spec(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Stores a job with these arguments and answers once it is stored."""
        return await self._bound.enqueue(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same from sync code."""
        return self._bound.enqueue_sync(*args, **kwargs)


class TaskQ:
    """Tasks, middleware and resources of an application, and its connection to Redis.

    ``redis_url`` and ``namespace`` default to ``TASKQ_REDIS_URL`` and ``TASKQ_NAMESPACE``, read when first
    needed. Nothing connects before the first call.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._overrides = {"redis_url": redis_url, "namespace": namespace}
        self._settings = settings
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.middlewares: list[Middleware] = []
        self.lifespans: list[Lifespan] = []
        self._ulid = UlidFactory()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._sync: SyncClient | None = None
        self._connect: Callable[[], AsyncClient] = lambda: AsyncClient.from_url(
            self.settings.redis_url, self.settings.namespace
        )
        self._connect_sync: Callable[[], SyncClient] = lambda: SyncClient.from_url(
            self.settings.redis_url, self.settings.namespace
        )

    # --- registration ---------------------------------------------------------------------------

    @overload
    def task(
        self, func: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> RegisteredTask[P, R]: ...
    @overload
    def task(self, func: Callable[P, Awaitable[R]], /) -> RegisteredTask[P, R]: ...
    @overload
    def task(self, func: Callable[Concatenate[Context, P], R], /) -> RegisteredTask[P, R]: ...
    @overload
    def task(self, func: Callable[P, R], /) -> RegisteredTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = ...,
        backoff: Backoff | None = None,
        timeout: float = ...,
        expires: float | None = None,
        result_ttl: float | None = None,
        keep_payload: bool = False,
        executor: Executor | None = None,
        memory_mb: int | None = None,
    ) -> "_Decorator": ...
    def task(self, func: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy and ParamSpec
        """Registers a function as a task, bare or with options (see ``TaskOptions``).

        The task's name is the function's unless ``name`` says otherwise. A parameter hinted ``Context`` gets
        the context; put it first, so that type checkers know that callers do not pass it.
        """
        name = options.pop("name", None)
        if func is None:
            return _Decorator(self, name, _task_options(options))
        return self.register(func, name or func.__name__, _task_options(options))

    def register(
        self, func: Callable[..., Any], name: str, options: TaskOptions
    ) -> "RegisteredTask[Any, Any]":
        """Registers ``func`` under ``name``. Raises ``ConfigError`` for a name that is taken."""
        if name in self.tasks:
            raise ConfigError(
                f"a task named {name!r} is registered already; give one of them name=.."
            )
        task: RegisteredTask[Any, Any] = RegisteredTask(self, func, name, options)
        self.tasks[name] = task
        return task

    def middleware(self, func: Middleware) -> Middleware:
        """Registers ``async def around(ctx, call_next)``: runs around each job, first registered outermost.

        It awaits ``call_next()`` and answers its result, or raises instead.
        """
        self.middlewares.append(func)
        return func

    def lifespan(self, func: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """Registers an async generator: opened when a worker process starts, closed when it ends.

        What it yields is ``ctx.state`` (of several, the last that yields something).
        """
        self.lifespans.append(asynccontextmanager(func))
        return func

    # --- submission -----------------------------------------------------------------------------

    def spec(
        self,
        job_type: str,
        payload: bytes,
        options: SubmitOptions,
        defaults: TaskOptions | None = None,
    ) -> tuple[str, JobSpec]:
        """(queue, job) of one submission by this application."""
        return make_spec(self._ulid, job_type, payload, options, defaults)

    async def submit(
        self, job_type: str, payload: Any = None, **options: Unpack[SubmitKwargs]
    ) -> JobHandle[Any]:
        """Stores a job by the name of its type, known here or not; options as in ``SubmitOptions``."""
        return await self.store_job(*self._named(job_type, payload, options))

    def submit_sync(
        self, job_type: str, payload: Any = None, **options: Unpack[SubmitKwargs]
    ) -> JobHandle[Any]:
        """The same from sync code."""
        return self.store_job_sync(*self._named(job_type, payload, options))

    def _named(self, job_type: str, payload: Any, options: SubmitKwargs) -> tuple[str, JobSpec]:
        task = self.tasks.get(job_type)
        return self.spec(
            job_type,
            codec.dumps({} if payload is None else payload),
            submit_options(options),
            task.defaults if task else None,
        )

    async def enqueue_many(self, jobs: Sequence[tuple[str, JobSpec]]) -> list[JobHandle[Any]]:
        """Stores many jobs, made by ``task.spec(..)``, in few calls; handles in the same order.

        Raises the first refusal; the jobs beside it are stored.
        """
        outcomes: dict[str, list[Enqueued]] = {}
        for queue, specs in _by_queue(jobs).items():
            outcomes[queue] = await self.client().submit_many(queue, specs)
        return self._handles(jobs, outcomes)

    def enqueue_many_sync(self, jobs: Sequence[tuple[str, JobSpec]]) -> list[JobHandle[Any]]:
        """The same from sync code."""
        outcomes: dict[str, list[Enqueued]] = {}
        for queue, specs in _by_queue(jobs).items():
            outcomes[queue] = self.sync_client().submit_many(queue, specs)
        return self._handles(jobs, outcomes)

    def _handles(
        self, jobs: Sequence[tuple[str, JobSpec]], outcomes: dict[str, list[Enqueued]]
    ) -> list[JobHandle[Any]]:
        next_of = {queue: iter(of_queue) for queue, of_queue in outcomes.items()}
        handles = []
        for queue, spec in jobs:
            outcome = next(next_of[queue])
            error = refusal(queue, spec, outcome)
            if error is not None:
                raise error
            handles.append(self._handle(queue, spec, outcome))
        return handles

    async def store_job(self, queue: str, spec: JobSpec) -> JobHandle[Any]:
        """Stores one job; concurrent calls share a round trip."""
        return self._handle(queue, spec, await self.client().submit(queue, spec))

    def store_job_sync(self, queue: str, spec: JobSpec) -> JobHandle[Any]:
        """The same from sync code."""
        return self._handle(queue, spec, self.sync_client().submit(queue, spec))

    def _handle(self, queue: str, spec: JobSpec, outcome: Enqueued) -> JobHandle[Any]:
        task = self.tasks.get(spec.job_type)
        return JobHandle(
            self,
            join_id(queue, spec.id),
            outcome.state or State.QUEUED,
            outcome.created,
            task.parameters.load_result if task is not None else None,
        )

    def job(self, job_id: str) -> JobHandle[Any]:
        """A handle for a job that is known by its id; nothing is asked of Redis. Results are plain JSON."""
        return JobHandle(self, job_id, State.QUEUED, False)

    # --- connections ----------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Settings of this application, read when first asked for. Raises ``ConfigError``."""
        if self._settings is None:
            self._settings = load_settings(**self._overrides)
        return self._settings

    def use_settings(self, settings: Settings) -> None:
        """For commands whose flags beat what the application says."""
        self._settings = settings

    def client(self) -> AsyncClient:
        """The client of the running event loop; made anew in a forked process."""
        self._forget_after_fork()
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._drop_clients_of_closed_loops()
            client = self._clients[loop] = self._connect()
        return client

    def _drop_clients_of_closed_loops(self) -> None:
        """A client keeps its loop alive, so the weak keys alone would let ``asyncio.run`` leak one a call."""
        for loop in list(self._clients):
            if loop.is_closed():
                self._clients.pop(loop).abandon()

    def sync_client(self) -> SyncClient:
        """The client for sync code; made anew in a forked process."""
        self._forget_after_fork()
        with self._lock:
            if self._sync is None:
                self._sync = self._connect_sync()
            return self._sync

    @contextmanager
    def connecting_by(
        self, connect: Callable[[], AsyncClient], connect_sync: Callable[[], SyncClient]
    ) -> Iterator[None]:
        """For ``taskq.testing``: within, clients are made by these, and those made before are left alone."""
        before = self._connect, self._connect_sync, self._clients, self._sync
        self._connect, self._connect_sync = connect, connect_sync
        self._clients, self._sync = weakref.WeakKeyDictionary(), None
        try:
            yield
        finally:
            self._connect, self._connect_sync, self._clients, self._sync = before

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._clients = weakref.WeakKeyDictionary()
            self._sync = None
            # Last, so that no other thread of the child takes what is the parent's for its own.
            self._pid = os.getpid()

    async def close(self) -> None:
        """Closes the connections of the running event loop, and those of sync code."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        self.close_sync()

    def close_sync(self) -> None:
        """Closes the connections of sync code."""
        with self._lock:
            if self._sync is not None:
                self._sync.close()
                self._sync = None


class _Decorator:
    """``@app.task(...)`` with options, typed like the function it meets."""

    def __init__(self, app: TaskQ, name: str | None, options: TaskOptions) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(
        self, func: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> RegisteredTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> RegisteredTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[Concatenate[Context, P], R], /) -> RegisteredTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> RegisteredTask[P, R]: ...
    def __call__(self, func: Any, /) -> Any:
        return self._app.register(func, self._name or func.__name__, self._options)


def _task_options(options: dict[str, Any]) -> TaskOptions:
    known = {f.name for f in fields(TaskOptions)}
    unknown = options.keys() - known
    if unknown:
        raise ConfigError(f"no task option {min(unknown)!r}; there are {', '.join(sorted(known))}")
    return TaskOptions(**{k: v for k, v in options.items() if v is not None})


def _by_queue(jobs: Sequence[tuple[str, JobSpec]]) -> dict[str, list[JobSpec]]:
    out: dict[str, list[JobSpec]] = {}
    for queue, spec in jobs:
        out.setdefault(queue, []).append(spec)
    return out


__all__ = [
    "BoundTask",
    "JobHandle",
    "RegisteredTask",
    "SubmitOptions",
    "TaskQ",
    "make_spec",
    "run_at_ms",
]
