"""The protocol of executors."""

from collections.abc import Callable
from typing import Any, Protocol


class Executor(Protocol):
    """Runs a task's function. ``run`` is cancelled to stop it, and ends only when the function has."""

    async def run(self, func: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        """Answers what ``func`` answers, or raises what it raises."""

    def close(self) -> None:
        """Gives back threads and the like; does not wait."""
