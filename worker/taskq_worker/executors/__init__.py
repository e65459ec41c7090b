"""How a task's function is run: on the loop, or in a thread."""

from taskq_worker.executors.base import Executor
from taskq_worker.executors.coroutine import CoroutineExecutor
from taskq_worker.executors.thread import ThreadExecutor

__all__ = ["CoroutineExecutor", "Executor", "ThreadExecutor"]
