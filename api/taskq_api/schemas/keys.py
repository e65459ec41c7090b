"""API keys and the audit trail."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from taskq.apikeys import MAX_NAMES, Scope
from taskq_api.schemas.fields import KEY, NAME, QUEUE, RATE, SECONDS_MAX, Timestamp


class KeyRequest(BaseModel):
    """A key to make."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"name": "ci", "scopes": ["submit", "read"], "expires": 2_592_000}]
        },
    )

    name: str = Field(
        min_length=1,
        max_length=200,
        description="who or what will use it. No braces or control characters",
        json_schema_extra={"pattern": KEY},
    )
    scopes: Annotated[list[str], Field(min_length=1, max_length=len(Scope))] = Field(
        description=f"what it may do: {', '.join(Scope)}",
        json_schema_extra={"items": {"type": "string", "enum": [str(scope) for scope in Scope]}},
    )
    expires: Annotated[float | None, Field(gt=0, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        default=None, description="seconds from now until it ends. Default: never"
    )
    queues: Annotated[list[str], Field(max_length=MAX_NAMES)] | None = Field(
        default=None,
        description="only these queues; for all else it is as if they were not there. Default all",
        json_schema_extra={"items": {"type": "string", "pattern": QUEUE}},
    )
    job_types: Annotated[list[str], Field(max_length=MAX_NAMES)] | None = Field(
        default=None,
        description="only jobs of these types; the same. Default all",
        json_schema_extra={"items": {"type": "string", "pattern": NAME}},
    )
    rate: str | None = Field(
        default=None,
        max_length=20,
        json_schema_extra={"pattern": RATE},
        description="requests at most, over all API processes, such as 100/s, 600/m or 5000/h: so many "
        "at once, refilled evenly. Default: no limit",
    )


class Key(BaseModel):
    """An API key, without its secret."""

    id: str = Field(description="the part of it that may be shown")
    name: str = Field(description="who or what uses it")
    scopes: list[Scope] = Field(description="what it may do")
    queues: list[str] | None = Field(description="queues that it may use; null: all")
    job_types: list[str] | None = Field(description="job types that it may use; null: all")
    rate: str | None = Field(description="requests at most; null: no limit")
    created_at: Timestamp = Field(description="when it was made")
    expires_at: Timestamp = Field(description="when it ends; null: never")
    used_at: Timestamp = Field(description="when it was last used, to about a minute")


class Self(BaseModel):
    """Who a request is from, and what it may do."""

    who: str = Field(
        description="`key:<id>`; `env:<n>` for the n-th key of TASKQ_API_KEYS; `open` where none is asked for"
    )
    name: str | None = Field(description="the key's name; null: it has none")
    scopes: list[Scope] = Field(description="what it may do")
    queues: list[str] | None = Field(description="queues that it may use; null: all")
    job_types: list[str] | None = Field(description="job types that it may use; null: all")
    rate: str | None = Field(description="requests at most; null: no limit")
    expires_at: Timestamp = Field(description="when the key ends; null: never")


class NewKey(Key):
    """A key that was just made, with its secret: it cannot be had again."""

    token: str = Field(description="what to send as `Authorization: Bearer <token>`")


class KeyList(BaseModel):
    """Every stored key; those of TASKQ_API_KEYS are not among them."""

    keys: list[Key] = Field(description="oldest first, expired ones too")


class RevokedKey(BaseModel):
    """A key that was revoked: refused everywhere within five seconds."""

    id: str = Field(description="the key")
    name: str = Field(description="who or what used it")
    revoked: bool = Field(description="true")


class AuditEntry(BaseModel):
    """What somebody did."""

    id: str = Field(description="place in the trail")
    at: Timestamp = Field(description="when, by Redis's clock")
    who: str = Field(description="key:<id>, env:<n>, open or cli:<user>@<host>")
    name: str = Field(description="of the key")
    what: str = Field(description="a verb, such as job.cancel")
    target: str = Field(description="the job, queue or key")
    parameters: dict[str, Any] = Field(description="what was asked, without payloads")
    outcome: str = Field(description="ok, or the code of the error")


class AuditPage(BaseModel):
    """A page of the audit trail."""

    entries: list[AuditEntry] = Field(description="newest first")
    next_cursor: str | None = Field(description="give it as `cursor` to go on; null at the end")
