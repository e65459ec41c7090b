"""Leases: what workers over HTTP send, and what they are answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from taskq.states import State
from taskq_api.schemas.fields import JOB_ID, NAME, QUEUE, SECONDS_MAX, Timestamp
from taskq_api.schemas.status import Problem

MOST_JOBS = 100
WAIT_MAX = 30.0
LEASE_MIN, LEASE_DEFAULT, LEASE_MAX = 1.0, 30.0, 3600.0
MAX_TEXT, MAX_MESSAGE, MAX_TRACE = 4000, 2000, 8000
_ID = "default:3f7c0a9b1d5e8f2460718293a4b5c6d7e8f90a1b"
_FENCE = 1750000000000


class LeaseRequest(BaseModel):
    """A claim. Unknown fields are refused; null is the same as leaving a field out."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"queue": "default", "job_types": ["resize"], "max": 10, "worker": "gpu-1",
                 "lease_seconds": 30, "wait": 20}
            ]
        },
    )  # fmt: skip

    queue: str | None = Field(
        default=None,
        description='queue to take jobs from; a lease is in one queue. Default "default"',
        json_schema_extra={"pattern": QUEUE},
    )
    job_types: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="types that this worker knows, 1 to 1,000: it is given no others. Default: whatever "
        "waits in the queue",
        json_schema_extra={"items": {"type": "string", "pattern": NAME}},
    )
    max: int | None = Field(
        default=None,
        ge=1,
        le=MOST_JOBS,
        description=f"jobs at most, 1 to {MOST_JOBS}; payloads of more than 1 MiB together are shared out "
        "over several leases, and a job under which workers died comes by itself. Default 1",
    )
    worker: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="a name for people, shown in lists of workers and in histories. It gives no rights and "
        "need not be unique. Letters, digits and . _ -. Default none",
    )
    lease_seconds: float | None = Field(
        default=None,
        ge=LEASE_MIN,
        le=LEASE_MAX,
        allow_inf_nan=False,
        description="seconds after which the jobs go to others unless a heartbeat came, "
        f"{LEASE_MIN:g} to {LEASE_MAX:g}. Default {LEASE_DEFAULT:g}",
    )
    wait: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description=f"seconds to wait for a job where none is there; more than {WAIT_MAX:g} is taken as "
        f"{WAIT_MAX:g}. Give your client more time than that. Default 0",
    )


class LeasedJob(BaseModel):
    """A job to run now."""

    id: str = Field(description="the job", examples=[JOB_ID])
    job_type: str = Field(description="its type")
    payload: Any = Field(description="as submitted, integers exact")
    payload_raw: str | None = Field(
        default=None, description="only where what is stored is not JSON: its text"
    )
    fence: int = Field(
        description="number of this run, never used twice, below 2^53: send it with all that you report",
        examples=[_FENCE],
    )
    attempt: int = Field(description="which run this is, from 1")
    failures: int = Field(description="runs that failed before")
    max_attempts: int = Field(description="failures after which it ends failed")
    priority: int = Field(description="-100 to 100")
    timeout: float = Field(description="seconds that the run may take; 0: no limit")
    deadline: Timestamp = Field(
        description="when the run is ended as failed (Timeout) whatever its worker does; null: never"
    )
    created_at: Timestamp = Field(description="when it was submitted")
    suspect: bool = Field(
        description="workers died or were lost under it before: it comes by itself. Run it where it cannot "
        "take others down"
    )


class Lease(BaseModel):
    """Jobs, and the right to run them for a time; without jobs there is no lease and `id` is null."""

    id: str | None = Field(
        description="the lease, a secret: give it in the path of all that follows", examples=[_ID]
    )
    queue: str = Field(description="where the jobs are")
    worker: str | None = Field(description="how lists and histories name this lease")
    lease_seconds: float = Field(description="seconds that it lasts from now or a heartbeat on")
    expires_at: Timestamp = Field(description="when it runs out, by Redis's clock")
    jobs: list[LeasedJob] = Field(description="next first")


class Heartbeat(BaseModel):
    """A renewed lease. Stop each run that is in `cancel`, and each that is not in `held` any more."""

    id: str = Field(description="the lease")
    lease_seconds: float = Field(description="seconds that it lasts from now on")
    expires_at: Timestamp = Field(description="when it runs out, by Redis's clock")
    held: list[str] = Field(
        description="jobs whose runs are still this lease's", examples=[[JOB_ID]]
    )
    cancel: list[str] = Field(
        description="those of them that somebody asked to stop: stop them and report `released`"
    )
    timed_out: list[str] = Field(
        description="jobs that were past their timeout: ended as failed just now, not held any more"
    )


class ErrorOfRun(BaseModel):
    """What went wrong, for people and for counting."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: str = Field(
        default="Error", min_length=1, max_length=200, description="kind of error. Default Error"
    )
    message: str = Field(
        default="", description=f"what happened; cut at {MAX_MESSAGE} characters. Default empty"
    )
    traceback: str | None = Field(
        default=None, description=f"where; its last {MAX_TRACE} characters are kept. Default none"
    )
    code: str | None = Field(
        default=None, max_length=100, description="a stable word of yours. Default none"
    )


Delay = Annotated[float | None, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]
_GOES_WITH = {
    "succeeded": {"result"},
    "failed": {"error", "retry", "retry_after"},
    "released": set(),
    "snoozed": {"delay"},
    "crashed": {"reason"},
}


class RunRef(BaseModel):
    """Which run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(description="the job", max_length=200, examples=[JOB_ID])
    fence: int = Field(
        ge=0, lt=1 << 53, description="the run's fence, as it was handed out", examples=[_FENCE]
    )


class RunResult(RunRef):
    """How a run ended."""

    outcome: Literal["succeeded", "failed", "released", "snoozed", "crashed"] = Field(
        description="`succeeded`; `failed`: it is retried after a back-off, up to the job's max_attempts; "
        "`released`: hand it back to its old place in line, burning nothing, or end it as cancelled where "
        "that was asked for; `snoozed`: run it again later, burning nothing; `crashed`: its own process "
        "died (three of these fail the job)"
    )
    result: Any = Field(
        default=None, description="of succeeded: any JSON, kept exactly. Default null"
    )
    error: ErrorOfRun | None = Field(default=None, description="of failed: what went wrong")
    retry: bool | None = Field(
        default=None, description="of failed: false ends the job at once. Default true"
    )
    retry_after: Delay = Field(
        default=None, description="of failed: seconds until the retry. Default: a growing back-off"
    )
    delay: Delay = Field(default=None, description="of snoozed: seconds. Default 0")
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^[ !#-\[\]-~]+$",
        description="of crashed: how the process died, in printable ASCII without double quotes and "
        "backslashes. Default: its process died",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "RunResult":
        given = self.model_fields_set - {"id", "fence", "outcome"} - _GOES_WITH[self.outcome]
        wrong = sorted(name for name in given if getattr(self, name) is not None)
        if wrong:
            raise ValueError(f"{wrong[0]} does not go with the outcome {self.outcome}")
        return self


class ResultsRequest(BaseModel):
    """How runs ended, each for itself: one that is refused does not keep the others out."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"results": [
                    {"id": JOB_ID, "fence": _FENCE, "outcome": "succeeded", "result": {"width": 800}},
                    {"id": JOB_ID, "fence": _FENCE, "outcome": "failed",
                     "error": {"type": "NotFound", "message": "no such picture"}, "retry": False},
                ]}
            ]
        },
    )  # fmt: skip

    results: list[RunResult] = Field(
        min_length=1,
        max_length=MOST_JOBS,
        description=f"1 to {MOST_JOBS}; may be part of the lease",
    )


class ResultsEnvelope(BaseModel):
    """The same with unchecked results."""

    model_config = ConfigDict(extra="forbid", strict=True)

    results: list[Any] = Field(min_length=1, max_length=MOST_JOBS)


class RunOutcome(BaseModel):
    """What became of one report. The same report again is answered the same."""

    id: str | None = Field(description="the job, as it was given")
    fence: int | None = Field(description="the fence, as it was given")
    status: int = Field(
        description="200 recorded; 409 the run is over (`stale_fence`), drop what you have of it; 404 no "
        "such job; 422 refused; else the status of its problem"
    )
    state: State | None = Field(
        default=None, description="what the job is by now, where it is known"
    )
    problem: Problem | None = Field(default=None, description="where it was refused")


class ResultsAnswer(BaseModel):
    """What became of each report, in the order given."""

    recorded: int = Field(description="reports that count")
    refused: int = Field(description="reports that do not")
    held: int = Field(description="runs that the lease still holds; 0: it is over")
    results: list[RunOutcome] = Field(description="one per report")


class LogEntry(BaseModel):
    """A line for the job's log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seq: int = Field(
        ge=1,
        lt=1 << 53,
        description="numbers the lines of a run upwards, gaps allowed: a line that is not above the last "
        "stored one is not stored again, so that it is safe to repeat",
    )
    line: str = Field(description=f"the text; cut at {MAX_TEXT} characters")


class RunProgress(RunRef):
    """How far a run is, and what it has to tell."""

    fraction: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="how far it is, 0 to 1. Default: not told",
    )
    message: str | None = Field(
        default=None,
        description=f"with a fraction: what it is at; cut at {MAX_TEXT} characters. Default empty",
    )
    log: Annotated[list[LogEntry], Field(max_length=200)] | None = Field(
        default=None, description="lines for its log, of which the last 200 are kept. Default none"
    )

    @model_validator(mode="after")
    def _tells_something(self) -> "RunProgress":
        if self.fraction is None and not self.log:
            raise ValueError("a fraction or a log is needed (a message goes with a fraction)")
        return self


class ProgressRequest(BaseModel):
    """News of runs, each for itself."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"runs": [{"id": JOB_ID, "fence": _FENCE, "fraction": 0.5, "message": "half way",
                           "log": [{"seq": 1, "line": "read 10 files"}]}]}
            ]
        },
    )  # fmt: skip

    runs: list[RunProgress] = Field(
        min_length=1, max_length=MOST_JOBS, description=f"1 to {MOST_JOBS} runs of the lease"
    )


class ProgressEnvelope(BaseModel):
    """The same with unchecked news."""

    model_config = ConfigDict(extra="forbid", strict=True)

    runs: list[Any] = Field(min_length=1, max_length=MOST_JOBS)


class ProgressAnswer(BaseModel):
    """What became of the news of each run, in the order given."""

    runs: list[RunOutcome] = Field(description="200 noted; 409 the run is over: stop it")


class HandBack(BaseModel):
    """The lease is over; its jobs are back in line."""

    released: int = Field(description="jobs that went back, burning nothing")
