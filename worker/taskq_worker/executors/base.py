"""The protocol of executors, and what they are given."""

from typing import Any, NamedTuple, Protocol

from taskq.tasks import Task
from taskq_worker.runs import Run


class Order(NamedTuple):
    """One run to do: the task, its arguments (the context among them where it wants one), and the run."""

    task: Task[Any, Any]
    kwargs: dict[str, Any]
    run: Run


class Executor(Protocol):
    """Runs a task's function."""

    async def run(self, order: Order) -> Any:
        """Answers what the function answers, or raises what it raises.

        Cancelled to stop it; ends only when the function has ended.
        """

    def close(self) -> None:
        """Gives back threads, processes and the like; does not wait."""
