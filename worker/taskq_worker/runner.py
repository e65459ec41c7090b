"""One run, from claimed bytes to an outcome: a straight pipeline.

decode -> find the task -> check the arguments -> call it through the middleware -> encode the result.
Whatever is raised on the way, by user code or by us, ends this job and nothing else.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from taskq import codec, tracing
from taskq.app import CallNext, Middleware
from taskq.context import Context
from taskq.tasks import Task
from taskq_worker.executors import Executor, Order
from taskq_worker.outcome import of_exception, timed_out, told
from taskq_worker.results import encode_result
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
        # Asked once: an SDK is configured when the application is imported, or in its lifespan.
        self._collecting = tracing.collecting()

    async def outcome(self, run: Run) -> Outcome:
        """Runs the job; answers how it ended and never raises."""
        claimed = run.claimed
        if not (self._collecting or (claimed.traceparent and tracing.active(claimed.traceparent))):
            return await self._outcome(run)
        about = (run.seat.queue, run.job_id, claimed.job_type, claimed.attempts)
        with tracing.running(*about, claimed.traceparent) as span:
            outcome = await self._outcome(run)
            span.ended(*told(outcome))
            return outcome

    async def _outcome(self, run: Run) -> Outcome:
        task: Task[Any, Any] | None = None
        try:
            # Asked to stop before its first step.
            run.context.raise_if_cancelled()
            task = self._tasks[run.claimed.job_type]
            payload = codec.loads(run.claimed.payload, max_bytes=1 << 30)
            kwargs = task.parameters.load(payload)
            if task.parameters.context_name is not None:
                kwargs[task.parameters.context_name] = run.context
            order = Order(task, kwargs, run)
            executor = self._executors[self._executor_of(task, run)]
            if self._middlewares:
                value = await self._through_middleware(run.context, executor, order)
            else:
                value = await executor.run(order)
            if run.context.stop_reason is not None:
                return self._late(run, task, value)
            return self._success(run, task, value)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: raised by a job they end the job, not the worker.
            return of_exception(run, task, error)

    def _executor_of(self, task: Task[Any, Any], run: Run) -> str:
        """A suspect (a process died under it before) runs in a process of its own, whatever its task says.

        So blame needs no guessing: an innocent succeeds there, a culprit takes down only its own process.
        """
        return "process" if run.claimed.suspect else task.defaults.executor or "async"

    def _success(self, run: Run, task: Task[Any, Any], value: Any) -> Outcome:
        ttl_ms = run.claimed.result_ttl_ms
        if ttl_ms is None and task.defaults.result_ttl is not None:
            ttl_ms = round(task.defaults.result_ttl * 1000)
        return Succeeded(encode_result(value), ttl_ms, task.defaults.keep_payload)

    def _late(self, run: Run, task: Task[Any, Any], value: Any) -> Outcome:
        """The function returned although it was asked to stop."""
        match run.context.stop_reason:
            case "lease_lost":
                return Dropped()
            case "timeout":
                return timed_out(run, task)
            case _:
                return self._success(run, task, value)

    async def _through_middleware(self, context: Context, executor: Executor, order: Order) -> Any:
        call: CallNext = partial(executor.run, order)
        for middleware in reversed(self._middlewares):
            call = partial(_around, middleware, context, call)
        return await call()


def _around(middleware: Middleware, context: Context, call_next: CallNext) -> Awaitable[Any]:
    return middleware(context, call_next)
