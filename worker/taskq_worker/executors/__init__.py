"""How a task's function is run: on the loop, in a thread, or in a process of its own."""

from taskq_worker.executors.base import Executor, Order
from taskq_worker.executors.coroutine import CoroutineExecutor
from taskq_worker.executors.process import ProcessExecutor
from taskq_worker.executors.thread import ThreadExecutor

__all__ = [
    "CoroutineExecutor",
    "Executor",
    "Order",
    "ProcessExecutor",
    "ThreadExecutor",
]
