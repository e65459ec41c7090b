"""Jobs: submit, look at, wait for, cancel, retry."""

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.requests import ClientDisconnect

from taskq import codec, tracing
from taskq.aio import end_tasks
from taskq.apikeys import Scope
from taskq.durable import require_durable
from taskq.errors import JobNotFound, ResultExpired, UniqueHeld
from taskq.ids import check_job_type, check_queue
from taskq.inspector import STATE_ORDER
from taskq.model import Job as StoredJob
from taskq.present import job_to_dict
from taskq.states import TERMINAL, State
from taskq.submission import make_spec
from taskq_api.access import Access, access_of, needs
from taskq_api.batch import DEFAULTS, Batch
from taskq_api.deps import (
    Services,
    acting,
    disconnected,
    find_job,
    hidden_holder,
    known_parameters,
    parse,
    read_json,
    services,
    stopping,
)
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.errors import Refused
from taskq_api.render import (
    encode,
    job_body,
    json_response,
    result_body,
    stored_job,
    stored_job_body,
)
from taskq_api.schemas import (
    BatchAnswer,
    BatchEnvelope,
    BatchRequest,
    Job,
    JobList,
    JobRequest,
    Result,
)

router = APIRouter(tags=["jobs"])

WAIT_MAX = 60.0
_LOCATION = {"Location": {"description": "path of the job", "schema": {"type": "string"}}}
_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 200 characters. The same key and body again, in the same queue and with the "
    "same API key, is the same job (200), however often and from wherever it is sent; another body is "
    "refused (409). Remembered while the job is kept, and `dedup_seconds` (600) after it ended.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_TRACE_PARAMETER = {
    "name": "traceparent",
    "in": "header",
    "required": False,
    "description": "W3C trace context of the sender; travels with the job to its worker",
    "schema": {"type": "string"},
}


@router.post(
    "/jobs",
    status_code=201,
    responses=answers(
        {201: Job, 200: Job},
        *BODY,
        "unknown_job_type",
        "idempotency_conflict",
        "unique_held",
        "queue_full",
        "redis_out_of_memory",
        "durable_unsupported",
        *REDIS,
        headers={201: _LOCATION},
    ),
    openapi_extra={**body(JobRequest), "parameters": [_KEY_PARAMETER, _TRACE_PARAMETER]},
)
@needs(Scope.SUBMIT)
async def submit_job(request: Request) -> Response:
    """Stores a job and answers once it is stored: 201, or 200 with the job that this
    `Idempotency-Key` has made before."""
    its, access = services(request), access_of(request)
    wanted: JobRequest = parse(JobRequest, await read_json(request))
    queue, spec = make_spec(
        its.new_ulid,
        wanted.job_type,
        codec.dumps(wanted.payload),
        wanted.options(request.headers.get("idempotency-key")),
        DEFAULTS,
        key_owner=access.owner,
    )
    access.check_use(queue, spec.job_type)
    if not its.payloads.ready(queue, spec.job_type):
        await its.payloads.look(queue, spec.job_type)
    its.payloads.judge(queue, spec.job_type, wanted.payload, len(spec.payload))
    if traceparent := tracing.parse(request.headers.get("traceparent")):
        spec = replace(spec, traceparent=traceparent)
    try:
        outcome = await its.client.submit(queue, spec)
    except UniqueHeld as error:
        raise hidden_holder(error, access) from None
    its.janitor.serve(queue)
    job = stored_job(queue, spec, outcome)
    headers = {"Location": f"/jobs/{job.id}"}
    # Without a key only a repeat of this very call can have stored it: that is news to the client.
    if spec.check and not outcome.created:
        return await answer_job(its, job, access, headers)
    return json_response(stored_job_body(job, spec.payload), 201, headers)


async def answer_job(
    its: Services, known: StoredJob, access: Access, headers: dict[str, str] | None = None
) -> Response:
    """The job as it is now, or as ``known`` if it has just been dropped."""
    try:
        job = await its.inspector.job(known.id)
    except JobNotFound:
        job = replace(known, stub=True, payload=None, history=())
    return json_response(job_body(job, access), 200, headers)


@router.post(
    "/jobs/batch",
    responses=answers({200: BatchAnswer}, *BODY, "durable_unsupported", *REDIS),
    openapi_extra={**body(BatchRequest), "parameters": [_TRACE_PARAMETER]},
)
@needs(Scope.SUBMIT)
async def submit_batch(request: Request) -> Response:
    """Stores up to 1,000 jobs, each for itself; answers what became of each, in the order given. The
    answer is 200 also if jobs were refused: look at `refused`. Where one asks for `durable` and the server
    cannot promise it, nothing is stored."""
    if "idempotency-key" in request.headers:
        raise Refused(
            "invalid",
            "a batch takes no Idempotency-Key: give each job its idempotency_key",
            field="Idempotency-Key",
        )
    its = services(request)
    envelope = parse(BatchEnvelope, await read_json(request))
    traceparent = tracing.parse(request.headers.get("traceparent"))
    batch = Batch(its.new_ulid, access_of(request), its.payloads, traceparent)
    batch.take(envelope.jobs)
    await batch.judge()
    if batch.durable:
        await require_durable(its.client.store)
    for queue in batch.queues():
        await batch.store(its.client, queue)
        its.janitor.serve(queue)
    return json_response(encode(batch.answer()))


@router.get(
    "/jobs",
    responses=answers({200: JobList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_jobs(
    request: Request,
    queue: Annotated[str | None, Query(description="only this queue. Default all")] = None,
    state: Annotated[State | None, Query(description="only this state. Default all")] = None,
    job_type: Annotated[str | None, Query(description="only this type. Default all")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="jobs at most")] = 50,
    cursor: Annotated[
        str | None, Query(max_length=2000, description="`next_cursor` of the page before")
    ] = None,
) -> Response:
    """A page of jobs without payloads: waiting ones next first, ended ones newest first. A page does
    bounded work however many jobs there are."""
    access = access_of(request)
    if job_type is not None:
        check_job_type(job_type)
    if queue is not None:
        access.check_queue(check_queue(queue))
    page = await services(request).inspector.jobs(
        queue=queue,
        among=access.queues,
        states=STATE_ORDER if state is None else (state,),
        job_type=job_type or "",
        limit=limit,
        cursor=cursor,
    )
    rows = [
        job_to_dict(job, full=False) for job in page.jobs if access.can_see(job.queue, job.job_type)
    ]
    return json_response(
        encode({"jobs": rows, "looked_at": page.looked, "next_cursor": page.cursor})
    )


@router.get("/jobs/{job_id}", responses=answers({200: Job}, "job_not_found", *REDIS))
@needs(Scope.READ)
async def show_job(request: Request, job_id: str) -> Response:
    """All that is kept of a job, with its history and log. An ended job may have left only a stub."""
    return json_response(job_body(await find_job(request, job_id), access_of(request)))


@router.get(
    "/jobs/{job_id}/result",
    responses=answers(
        {200: Result, 202: Result}, "job_not_found", "result_expired", "invalid", *REDIS
    ),
)
@needs(Scope.READ)
async def job_result(
    request: Request,
    job_id: str,
    wait: Annotated[
        float,
        Query(ge=0, allow_inf_nan=False, description="seconds to wait for the end, 60 at most"),
    ] = 0,
) -> Response:
    """How the job ended: 200 with its state, and `result` or `error`. While it has not ended: 202."""
    job = await find_job(request, job_id)
    if job.state not in TERMINAL and wait > 0:
        await _wait(request, job.id, min(wait, WAIT_MAX))
        await services(request).ring.check_again(access_of(request))
        job = await find_job(request, job_id)
    if job.state not in TERMINAL:
        return json_response(encode({"id": job.id, "state": job.state}), 202)
    if job.state is State.SUCCEEDED and job.result is None:
        raise ResultExpired(f"job {job.id} succeeded, but its result is no longer kept")
    return json_response(result_body(job, access_of(request)))


async def _wait(request: Request, job_id: str, seconds: float) -> None:
    """Waits for the job's end, but not longer than the process lives or the client stays."""
    ended = asyncio.create_task(services(request).client.wait(job_id, seconds))
    stop = asyncio.create_task(stopping(request).wait())
    gone = asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait((ended, stop, gone), return_when=asyncio.FIRST_COMPLETED)
        left = gone.done()
    finally:
        await end_tasks(stop, gone)
        await end_tasks(ended)
    if left:
        raise ClientDisconnect
    if not ended.cancelled():
        ended.result()  # raises what went wrong


@router.post(
    "/jobs/{job_id}/cancel", responses=answers({200: Job}, "job_not_found", "wrong_state", *REDIS)
)
@needs(Scope.OPERATE)
async def cancel_job(request: Request, job_id: str) -> Response:
    """Cancels a waiting job; asks a running one to stop (`cancel_requested`). A cancelled job stays so;
    one that ended otherwise is refused."""
    its = services(request)
    job = await find_job(request, job_id)
    async with acting(request, "job.cancel", job.id):
        state = await its.client.cancel(job.id)
    return await answer_job(its, replace(job, state=state), access_of(request))


@router.post(
    "/jobs/{job_id}/retry",
    responses=answers({200: Job}, "job_not_found", "wrong_state", "unique_held", *REDIS),
)
@needs(Scope.OPERATE)
async def retry_job(request: Request, job_id: str) -> Response:
    """Puts a failed job back in line, with its failures, crashes and losses forgotten."""
    its = services(request)
    job = await find_job(request, job_id)
    try:
        async with acting(request, "job.retry", job.id):
            state = await its.client.retry(job.id)
    except UniqueHeld as error:
        raise hidden_holder(error, access_of(request)) from None
    return await answer_job(its, replace(job, state=state), access_of(request))
