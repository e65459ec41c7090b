"""Bodies as the OpenAPI document shows them. Requests are validated with these models; answers are made
by ``taskq_api.render`` and only described here (and held against these models by the tests)."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from taskq_api.schemas.jobs import BatchAnswer, Job, JobList, Result
from taskq_api.schemas.keys import AuditPage, KeyList, KeyRequest, NewKey, RevokedKey, Self
from taskq_api.schemas.leases import (
    HandBack,
    Heartbeat,
    Lease,
    LeaseRequest,
    ProgressAnswer,
    ProgressRequest,
    ResultsAnswer,
    ResultsEnvelope,
    ResultsRequest,
    RunOutcome,
    RunProgress,
    RunResult,
)
from taskq_api.schemas.operate import (
    Asked,
    Findings,
    Purged,
    PurgeRequest,
    RetryFailedRequest,
)
from taskq_api.schemas.queues import (
    SETTING_TEXTS,
    JobTypeList,
    Queue,
    QueueChanges,
    QueueList,
    WorkerList,
)
from taskq_api.schemas.requests import BatchEnvelope, BatchItem, BatchRequest, JobRequest
from taskq_api.schemas.stats import StatisticsList
from taskq_api.schemas.status import Health, Problem, Ready, Server
from taskq_api.schemas.steering import (
    Bulk,
    BulkFilter,
    BulkList,
    BulkPreview,
    BulkPreviewRequest,
    BulkRequest,
    ErrorJobs,
    ErrorList,
    JobChanges,
    Position,
)

_MODELS: list[type[BaseModel]] = [
    JobRequest,
    BatchRequest,
    Job,
    JobList,
    Result,
    BatchAnswer,
    LeaseRequest,
    Lease,
    Heartbeat,
    ResultsRequest,
    ResultsAnswer,
    ProgressRequest,
    ProgressAnswer,
    HandBack,
    Queue,
    QueueList,
    QueueChanges,
    WorkerList,
    JobTypeList,
    KeyRequest,
    NewKey,
    KeyList,
    Self,
    RevokedKey,
    AuditPage,
    JobChanges,
    Position,
    ErrorList,
    ErrorJobs,
    BulkRequest,
    BulkPreviewRequest,
    BulkPreview,
    Bulk,
    BulkList,
    PurgeRequest,
    Purged,
    RetryFailedRequest,
    Asked,
    Findings,
    StatisticsList,
    Health,
    Ready,
    Server,
    Problem,
]


def components() -> dict[str, Any]:
    """Schemas of the OpenAPI document, by name."""
    _, document = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}


__all__ = [
    "SETTING_TEXTS",
    "Asked",
    "AuditPage",
    "BatchAnswer",
    "BatchEnvelope",
    "BatchItem",
    "BatchRequest",
    "Bulk",
    "BulkFilter",
    "BulkList",
    "BulkPreview",
    "BulkPreviewRequest",
    "BulkRequest",
    "ErrorJobs",
    "ErrorList",
    "Findings",
    "HandBack",
    "Health",
    "Heartbeat",
    "Job",
    "JobChanges",
    "JobList",
    "JobRequest",
    "JobTypeList",
    "KeyList",
    "KeyRequest",
    "Lease",
    "LeaseRequest",
    "NewKey",
    "Position",
    "Problem",
    "ProgressAnswer",
    "ProgressRequest",
    "PurgeRequest",
    "Purged",
    "Queue",
    "QueueChanges",
    "QueueList",
    "Ready",
    "Result",
    "ResultsAnswer",
    "ResultsEnvelope",
    "ResultsRequest",
    "RetryFailedRequest",
    "RevokedKey",
    "RunOutcome",
    "RunProgress",
    "RunResult",
    "Self",
    "Server",
    "StatisticsList",
    "WorkerList",
    "components",
    "reference",
]
