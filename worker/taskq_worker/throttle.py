"""At most one log line a second from a place that may fail in a loop."""

import logging
import time
from typing import Any


class Throttle:
    """Counts what it swallows and says so with the next line."""

    def __init__(self, logger: logging.Logger, every_seconds: float = 1.0) -> None:
        self._logger = logger
        self._every = every_seconds
        self._last = float("-inf")
        self._swallowed = 0

    def warning(self, message: str, *args: Any) -> None:
        now = time.monotonic()
        if now - self._last < self._every:
            self._swallowed += 1
            return
        more = f" ({self._swallowed} more like this)" if self._swallowed else ""
        self._last, self._swallowed = now, 0
        self._logger.warning("%s%s", message % args if args else message, more)
