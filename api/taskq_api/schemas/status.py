"""The state of the API itself, and its errors."""

from typing import Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    """The process lives."""

    status: Literal["ok"] = Field(description="always ok")
    version: str = Field(description="of taskq")


class Ready(BaseModel):
    """Jobs can be taken now."""

    status: Literal["ready"] = Field(description="always ready")
    server: str = Field(description="kind and version of the Redis server")
    warnings: list[str] = Field(description="settings of the server that are worth a look")


class FieldProblem(BaseModel):
    """One value that was refused."""

    field: str = Field(description="its name, with dots where it is nested")
    message: str = Field(description="what is wrong with it")


class Problem(BaseModel):
    """An error (RFC 9457); members beside the first five where they apply."""

    type: str = Field(description="urn:taskq:error:<code>")
    title: str = Field(description="what the code stands for")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what was wrong with this request")
    code: str = Field(description="stable word to compare with", examples=["unique_held"])
    field: str | None = Field(default=None, description="the field or parameter that was refused")
    errors: list[FieldProblem] | None = Field(
        default=None, description="all that was refused, at most 20"
    )
    job_id: str | None = Field(default=None, description="unique_held: the job that holds the key")
    state: str | None = Field(default=None, description="wrong_state, stale_fence: what the job is")
    reason: str | None = Field(default=None, description="of Redis's refusal, in a stable word")
    reasons: list[str] | None = Field(default=None, description="not_ready: what keeps it from it")
