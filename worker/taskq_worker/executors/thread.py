"""Plain functions, each in a thread of a pool as large as the child has slots."""

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from taskq_worker.executors.base import Order


class _Ended(Exception):
    """Carries what must not pass through a future as it is (SystemExit, StopIteration ...)."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class ThreadExecutor:
    """A thread cannot be stopped from outside: a cancelled run waits on until its thread is over.

    So a second run never begins beside the first. The context tells the function that it should end; one
    that does not is written off by the child.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="taskq-job")

    async def run(self, order: Order) -> Any:
        context = contextvars.copy_context()
        call = functools.partial(context.run, _guarded, order.task.func, order.kwargs)
        future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.cancelled():
                    raise
            except _Ended as ended:
                raise ended.error from None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _guarded(func: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    try:
        return func(**kwargs)
    except Exception as error:
        if isinstance(error, StopIteration):
            raise _Ended(RuntimeError(f"task raised StopIteration: {error}")) from None
        raise
    except BaseException as error:
        raise _Ended(error) from None
