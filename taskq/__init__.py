"""taskq: a distributed task queue on Redis that does not lose work.

>>> from taskq import TaskQ
>>> app = TaskQ()
>>> @app.task
... async def add(a: int, b: int) -> int:
...     return a + b
>>> add.name
'add'
"""

from taskq.app import BoundTask, CallNext, JobHandle, RegisteredTask, SubmitOptions, TaskQ
from taskq.context import Cancel, Context, Retry, Snooze
from taskq.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    TaskqError,
    UniqueHeld,
)
from taskq.model import Job
from taskq.retry import Backoff
from taskq.settings import Settings
from taskq.states import State

__all__ = [
    "Backoff",
    "BoundTask",
    "CallNext",
    "Cancel",
    "Context",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "RegisteredTask",
    "ResultExpired",
    "ResultTimeout",
    "Retry",
    "Settings",
    "Snooze",
    "State",
    "SubmitOptions",
    "TaskQ",
    "TaskqError",
    "UniqueHeld",
]
