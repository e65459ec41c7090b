"""Every error that taskq raises, in one tree.

Each class carries a stable ``code``: the word that REST answers, the CLI prints with ``--json`` and
metrics count. The text says what went wrong and what to do about it::

    TaskqError                    taskq_error
    ├── ConfigError               config                 a setting or an option is wrong
    │   └── UnsafeServerError     unsafe_server          the server would lose or evict jobs
    ├── EmbeddedServerError       embedded_server        the bundled server did not start
    ├── InvalidInput              invalid                a value from the caller was refused
    │   ├── InvalidPayload        invalid_payload        not JSON that every language can read, or not
    │   │                                                what the job type takes
    │   ├── UnknownJobType        unknown_job_type       no worker has published it (strict_types)
    │   └── PayloadTooLarge       payload_too_large
    ├── NotFound                  not_found
    │   ├── JobNotFound           job_not_found
    │   ├── KeyNotFound           key_not_found          no such API key
    │   ├── QueueNotFound         queue_not_found
    │   ├── LeaseNotFound         lease_not_found        never opened, long over, or another key's
    │   ├── WorkerNotFound        worker_not_found
    │   ├── ErrorNotFound         error_not_found        no failures of this fingerprint are known
    │   └── BulkNotFound          bulk_not_found
    ├── Conflict                  conflict               the state does not allow it
    │   ├── WrongState            wrong_state
    │   ├── IdempotencyConflict   idempotency_conflict   same key, other body
    │   ├── UniqueHeld            unique_held            a live job holds the unique key
    │   └── StaleFence            stale_fence            the run is over, or another's by now
    ├── QueueFull                 queue_full             max_depth reached
    ├── LeaseLost                 lease_lost             the caller no longer owns the job
    ├── JobFailed                 job_failed             result() of a job that ended failed
    ├── JobCancelled              job_cancelled          result() of a job that was cancelled
    ├── ResultExpired             result_expired         the result is no longer kept
    ├── ResultTimeout             result_timeout         result(timeout=..) ran out
    ├── Unavailable               redis_unavailable      Redis away, loading, busy or read-only
    │   └── OutOfMemory           redis_out_of_memory    Redis refuses new work until memory is freed
    ├── DurableUnsupported        durable_unsupported    the server cannot promise that a job is on disk
    └── BrokenKey                 broken_key             a key has the wrong type; run doctor

Two more live at the edge, and no call of the library raises them: ``taskq_api.serve.BindError`` (``bind``,
a ``TaskqError``: the address cannot be listened on) and ``taskq_api.errors.Refused`` (what the API refuses
before the library is asked; its code is one of the API's table). What a handler raises is its own.
"""

from typing import Any, ClassVar


class TaskqError(Exception):
    """Base of all errors of taskq."""

    code: ClassVar[str] = "taskq_error"


class ConfigError(TaskqError):
    """A setting, an option or an application path is wrong. Nothing was started."""

    code = "config"


class UnsafeServerError(ConfigError):
    """The Redis server is too old or set up so that jobs could be lost."""

    code = "unsafe_server"


class EmbeddedServerError(TaskqError):
    """The bundled server could not be found or started."""

    code = "embedded_server"


class InvalidInput(TaskqError):
    """A value given by the caller was refused; nothing was stored.

    ``field`` names the offending field where there is one.
    """

    code = "invalid"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidPayload(InvalidInput):
    """The payload or result is not JSON that every reader would understand alike."""

    code = "invalid_payload"


class UnknownJobType(InvalidInput):
    """The queue takes only job types that workers have published (``strict_types``), and this is none."""

    code = "unknown_job_type"


class PayloadTooLarge(InvalidInput):
    """The payload or result is larger than the limit."""

    code = "payload_too_large"


class NotFound(TaskqError):
    """What was asked for does not exist."""

    code = "not_found"


class JobNotFound(NotFound):
    """There is no job of this id, or it is no longer kept."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r}: it never existed or is no longer kept")
        self.job_id = job_id


class KeyNotFound(NotFound):
    """There is no API key of this id."""

    code = "key_not_found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no API key {key_id!r}: `taskq keys list` shows the ids")
        self.key_id = key_id


class QueueNotFound(NotFound):
    """There is no queue of this name."""

    code = "queue_not_found"

    def __init__(self, queue: str, hint: str = "") -> None:
        more = f" ({hint})" if hint else ""
        super().__init__(
            f"no queue {queue!r}: a queue exists from its first job or setting on{more}"
        )
        self.queue = queue


class LeaseNotFound(NotFound):
    """There is no lease of this id for this API key, or it was over long ago."""

    code = "lease_not_found"


class WorkerNotFound(NotFound):
    """There is no live worker of this id."""

    code = "worker_not_found"

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"no live worker {worker!r}: `taskq workers` lists those that were seen lately"
        )
        self.worker = worker


class ErrorNotFound(NotFound):
    """No failures of this fingerprint are known."""

    code = "error_not_found"

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"no failures of the fingerprint {fingerprint!r} are known")
        self.fingerprint = fingerprint


class BulkNotFound(NotFound):
    """There is no bulk action of this id, or it is no longer kept."""

    code = "bulk_not_found"

    def __init__(self, bulk_id: str) -> None:
        super().__init__(f"no bulk action {bulk_id!r}: it never existed or is no longer kept")
        self.bulk_id = bulk_id


class Conflict(TaskqError):
    """The present state does not allow what was asked; nothing was changed."""

    code = "conflict"


class WrongState(Conflict):
    """The job is in a state from which this move does not exist."""

    code = "wrong_state"

    def __init__(self, message: str, *, state: str | None = None) -> None:
        super().__init__(message)
        self.state = state


class IdempotencyConflict(Conflict):
    """The idempotency key or job id was used before with another body."""

    code = "idempotency_conflict"


class UniqueHeld(Conflict):
    """A live job holds the unique key; ``job_id`` names it."""

    code = "unique_held"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(f"unique key {key!r} is held by job {job_id}")
        self.key = key
        self.job_id = job_id


class StaleFence(Conflict):
    """The run under this fence is over, or was never the caller's; ``state`` is the job's now."""

    code = "stale_fence"

    def __init__(self, message: str, *, state: str | None = None) -> None:
        super().__init__(message)
        self.state = state


class QueueFull(TaskqError):
    """The queue holds ``max_depth`` waiting jobs (or 1,000 job types) already."""

    code = "queue_full"


class LeaseLost(TaskqError):
    """The caller's lease or fence is no longer the job's; its write was refused."""

    code = "lease_lost"


class JobFailed(TaskqError):
    """The job ended ``failed``; ``error`` is what its last attempt left."""

    code = "job_failed"

    def __init__(self, job_id: str, error: dict[str, Any] | None) -> None:
        error = error or {}
        super().__init__(
            f"job {job_id} failed: {error.get('type', 'error')}: {error.get('message', 'no reason')}"
        )
        self.job_id = job_id
        self.error = error


class JobCancelled(TaskqError):
    """The job was cancelled, purged or expired before it could succeed."""

    code = "job_cancelled"

    def __init__(self, job_id: str, reason: str | None) -> None:
        why = f": {reason}" if reason and reason != "cancelled" else ""
        super().__init__(f"job {job_id} was cancelled{why}")
        self.job_id = job_id
        self.reason = reason


class ResultExpired(TaskqError):
    """The job succeeded, but its result is no longer kept."""

    code = "result_expired"


class ResultTimeout(TaskqError, TimeoutError):
    """The job had not ended when ``result(timeout=..)`` ran out. It goes on."""

    code = "result_timeout"


class Unavailable(TaskqError):
    """Redis did not take the call: away, loading, busy, read-only or failing over.

    ``reason`` is one stable word (``connection``, ``timeout``, ``loading``, ``busy``, ``readonly``,
    ``noreplicas``, ``misconf``, ``auth``, ``tryagain``, ``closed``: by us). Any transition may be
    repeated safely.
    """

    code = "redis_unavailable"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        """The text without the hint."""

    def __str__(self) -> str:
        if self.reason == "connection":
            return f"{self.message} (set TASKQ_REDIS_URL, or TaskQ(redis_url=...))"
        return self.message


class OutOfMemory(Unavailable):
    """Redis is at ``maxmemory``: new work is refused, running work goes on."""

    code = "redis_out_of_memory"

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="oom")


class DurableUnsupported(TaskqError):
    """The server is not set up so that its answer means that a job is on disk. Nothing was stored."""

    code = "durable_unsupported"


class BrokenKey(TaskqError):
    """A key of the queue has the wrong type. Nothing was written; ``taskq doctor`` names it."""

    code = "broken_key"
