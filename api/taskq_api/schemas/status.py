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


class Server(BaseModel):
    """The Redis server as it tells about itself; null for what it would not tell."""

    namespace: str = Field(description="what the names of all keys begin with")
    flavour: Literal["redis", "valkey", "unknown"] = Field(description="kind of the server")
    version: str = Field(description="its version; `unknown` where it is not told")
    problems: list[str] = Field(description="what would lose jobs or cannot work")
    warnings: list[str] = Field(description="settings that are worth a look")
    unknown: list[str] = Field(description="settings that it would not tell")
    role: str | None = Field(description="`master` or `slave`, in its own words")
    uptime: int | None = Field(description="seconds since its start")
    clients: int | None = Field(description="connections")
    replicas: int | None = Field(description="replicas that are connected to it")
    memory_used: int | None = Field(description="bytes of data")
    memory_peak: int | None = Field(description="bytes of data at most since its start")
    memory_max: int | None = Field(description="bytes that it may use (maxmemory); 0: no limit")
    maxmemory_policy: str | None = Field(description="what it does then; `noeviction` keeps jobs")
    append_only: bool | None = Field(description="whether it writes an append-only file")
    append_fsync: str | None = Field(
        description="`always`, `everysec` or `no`: how often that reaches the disk"
    )
    append_only_ok: bool | None = Field(description="whether its last write there went well")
    append_only_size: int | None = Field(description="bytes of that file")


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
