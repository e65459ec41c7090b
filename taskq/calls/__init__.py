"""The protocol without a socket: what to send for each transition, and what an answer means.

A function here checks its arguments, and returns a ``Call``: a script, its key, its arguments and a
parser. ``taskq.store`` carries calls over a connection, sync or async; nothing else talks to scripts.
Every call may be sent again after a lost answer (see the scripts' contracts).
"""

from taskq.calls.base import TEN_YEARS_MS, Call, check_word, check_worker, delay_to_ms
from taskq.calls.janitor import MAX_LOST, expire, promote, reap, rollup, trim
from taskq.calls.operator import (
    LISTEN_MS,
    SETTINGS,
    Repair,
    cancel,
    check_settings,
    configure,
    delete,
    edit,
    listen,
    purge,
    repair,
    retry,
    watch,
)
from taskq.calls.readers import Cursor, Page, check, counts, metrics, page, parse_job, show
from taskq.calls.submission import MAX_ITEMS, check_priority, check_spec, enqueue
from taskq.calls.worker import (
    MAX_CRASHES,
    PROTOCOL,
    Failure,
    Success,
    claim,
    crash,
    fail,
    finish,
    heartbeat,
    log,
    progress,
    reconcile,
    release,
    snooze,
)
from taskq.codec import MAX_BYTES

__all__ = [
    "LISTEN_MS",
    "MAX_BYTES",
    "MAX_CRASHES",
    "MAX_ITEMS",
    "MAX_LOST",
    "PROTOCOL",
    "SETTINGS",
    "TEN_YEARS_MS",
    "Call",
    "Cursor",
    "Failure",
    "Page",
    "Repair",
    "Success",
    "cancel",
    "check",
    "check_priority",
    "check_settings",
    "check_spec",
    "check_word",
    "check_worker",
    "claim",
    "configure",
    "counts",
    "crash",
    "delay_to_ms",
    "delete",
    "edit",
    "enqueue",
    "expire",
    "fail",
    "finish",
    "heartbeat",
    "listen",
    "log",
    "metrics",
    "page",
    "parse_job",
    "progress",
    "promote",
    "purge",
    "reap",
    "reconcile",
    "release",
    "repair",
    "retry",
    "rollup",
    "show",
    "snooze",
    "trim",
    "watch",
]
