"""Coroutine functions, on the child's event loop."""

from typing import Any

from taskq_worker.executors.base import Order


class CoroutineExecutor:
    """Cancelling the run cancels the coroutine."""

    async def run(self, order: Order) -> Any:
        return await order.task.func(**order.kwargs)

    def close(self) -> None:
        return
