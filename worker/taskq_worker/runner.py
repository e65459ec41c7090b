"""One run, from claimed bytes to an outcome: a straight pipeline.

decode -> find the task -> check the arguments -> call it through the middleware -> encode the result.
Whatever is raised on the way, by user code or by us, ends this job and nothing else.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from taskq import codec
from taskq.app import CallNext, Middleware
from taskq.context import Context
from taskq.tasks import Task
from taskq_worker.executors import Executor
from taskq_worker.outcome import failed, of_exception
from taskq_worker.runs import Dropped, Outcome, Run, Succeeded


class Runner:
    def __init__(
        self,
        tasks: dict[str, Task[Any, Any]],
        middlewares: Sequence[Middleware],
        executors: dict[str, Executor],
    ) -> None:
        self._tasks = tasks
        self._middlewares = middlewares
        self._executors = executors

    async def outcome(self, run: Run) -> Outcome:
        """Runs the job; answers how it ended and never raises."""
        task: Task[Any, Any] | None = None
        try:
            # Asked to stop before its first step.
            run.context.raise_if_cancelled()
            task = self._tasks[run.claimed.job_type]
            payload = codec.loads(run.claimed.payload, max_bytes=1 << 30)
            kwargs = task.parameters.load(payload)
            if task.parameters.context_name is not None:
                kwargs[task.parameters.context_name] = run.context
            executor = self._executors[task.defaults.executor or "async"]
            if self._middlewares:
                value = await self._through_middleware(run.context, executor, task.func, kwargs)
            else:
                value = await executor.run(task.func, kwargs)
            if run.context.stop_reason is not None:
                return self._late(run, task, value)
            return self._success(run, task, value)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: raised by a job they end the job, not the worker.
            return of_exception(run, task, error)

    def _success(self, run: Run, task: Task[Any, Any], value: Any) -> Outcome:
        ttl_ms = run.claimed.result_ttl_ms
        if ttl_ms is None and task.defaults.result_ttl is not None:
            ttl_ms = round(task.defaults.result_ttl * 1000)
        data = b"null" if value is None else codec.dumps(value, what="result", default=codec.plain)
        return Succeeded(data, ttl_ms, task.defaults.keep_payload)

    def _late(self, run: Run, task: Task[Any, Any], value: Any) -> Outcome:
        """The function returned although it was asked to stop."""
        match run.context.stop_reason:
            case "lease_lost":
                return Dropped()
            case "timeout":
                return failed(run, task, "Timeout", "ran longer than its timeout allows", None)
            case _:
                return self._success(run, task, value)

    async def _through_middleware(
        self, context: Context, executor: Executor, func: Callable[..., Any], kwargs: dict[str, Any]
    ) -> Any:
        call: CallNext = partial(executor.run, func, kwargs)
        for middleware in reversed(self._middlewares):
            call = partial(_around, middleware, context, call)
        return await call()


def _around(middleware: Middleware, context: Context, call_next: CallNext) -> Awaitable[Any]:
    return middleware(context, call_next)
