"""Built-in job types, one file each, and what a package needs to add its own.

A new built-in is a new module here with one concrete `Handler` subclass: `registry.discover` finds
it, no other line changes. Other packages name their class under the entry point group
``taskq.handlers``.
"""

from taskq_worker.handlers.base import JSON, Backoff, Handler, HandlerContext, HandlerSettings
from taskq_worker.handlers.errors import (
    HandlerError,
    HttpStatusError,
    HttpTransportError,
    PayloadInvalid,
    RedirectRefused,
    TargetRefused,
)
from taskq_worker.handlers.registry import DuplicateHandler, discover

__all__ = [
    "JSON",
    "Backoff",
    "DuplicateHandler",
    "Handler",
    "HandlerContext",
    "HandlerError",
    "HandlerSettings",
    "HttpStatusError",
    "HttpTransportError",
    "PayloadInvalid",
    "RedirectRefused",
    "TargetRefused",
    "discover",
]
