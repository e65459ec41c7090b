"""What may go wrong in a loop that must not end: seen, named, logged, and tried again."""

import logging

from redis import RedisError

from taskq.errors import TaskqError
from taskq.store import translate

logger = logging.getLogger("taskq.worker")


def understand(error: Exception) -> TaskqError:
    """The library's error for whatever a call raised; a bug of ours is logged with its traceback."""
    if isinstance(error, TaskqError):
        return error
    if isinstance(error, (RedisError, OSError)):
        return translate(error)
    logger.error("internal error, please report it", exc_info=error)
    return TaskqError(f"internal error: {type(error).__name__}")
