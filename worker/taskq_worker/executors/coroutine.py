"""Coroutine functions, on the child's event loop."""

from collections.abc import Callable
from typing import Any


class CoroutineExecutor:
    """Cancelling the run cancels the coroutine."""

    async def run(self, func: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        return await func(**kwargs)

    def close(self) -> None:
        return
