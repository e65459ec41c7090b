"""What operators do to queues and workers, and the consistency check."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.apikeys import Scope
from taskq.doctor import glance
from taskq.ids import check_job_type, check_queue
from taskq.present import worker_to_dict
from taskq.selection import BulkFilter
from taskq.server import look_at_server
from taskq.steering import purge, tell_worker
from taskq.views import finding_to_dict, server_to_dict
from taskq_api.access import access_of, needs
from taskq_api.deps import acting, known_parameters, parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response
from taskq_api.routes.bulk import KEY_PARAMETER, STARTED, launch
from taskq_api.schemas import (
    Asked,
    Findings,
    Purged,
    PurgeRequest,
    RetryFailedRequest,
    Server,
)

router = APIRouter()


@router.post(
    "/queues/{queue}/purge",
    tags=["queues"],
    responses=answers({200: Purged}, "queue_not_found", *BODY, *REDIS),
    openapi_extra=body(PurgeRequest),
)
@needs(Scope.OPERATE)
async def purge_queue(request: Request, queue: str) -> Response:
    """Takes jobs out of a queue, a bounded number a request: waiting ones are cancelled with the reason
    `purged`, ended ones deleted. Running ones are left alone."""
    its = services(request)
    wanted: PurgeRequest = parse(PurgeRequest, await read_json(request))
    access_of(request).check_part(check_queue(queue), wanted.job_type)
    await its.inspector.queue(queue)
    async with acting(
        request, "queue.purge", queue, states=[wanted.what], job_type=wanted.job_type
    ) as note:
        done = await purge(
            its.client.store,
            queue,
            wanted.what,
            job_type=wanted.job_type or "",
            limit=wanted.limit,
            cursor=wanted.cursor,
        )
        note.parameters["removed"] = done.removed
    answer = {"removed": done.removed, "more": done.cursor is not None, "next_cursor": done.cursor}
    return json_response(encode(answer))


@router.post(
    "/queues/{queue}/retry-failed",
    tags=["queues"],
    status_code=202,
    responses=STARTED,
    openapi_extra={**body(RetryFailedRequest), "parameters": [KEY_PARAMETER]},
)
@needs(Scope.OPERATE)
async def retry_failed(request: Request, queue: str) -> Response:
    """Puts all failed jobs of this moment back in line, as a bulk action: 200 if it is done within a second,
    else 202."""
    wanted: RetryFailedRequest = parse(RetryFailedRequest, await read_json(request))
    if wanted.job_type is not None:
        check_job_type(wanted.job_type)
    access_of(request).check_part(check_queue(queue), wanted.job_type)
    await services(request).inspector.queue(queue)
    chosen = BulkFilter(queue=queue, job_type=wanted.job_type or "")
    return await launch(
        request, "queue.retry-failed", "retry", chosen, per_second=wanted.per_second
    )


@router.post(
    "/workers/{worker_id}/quiet",
    tags=["workers"],
    responses=answers({200: Asked}, "worker_not_found", *REDIS),
)
@needs(Scope.OPERATE)
async def quiet_worker(request: Request, worker_id: str) -> Response:
    """Asks a worker to claim nothing more and to finish what it has; its state is `quiet` then. It concerns
    all processes of the same `taskq worker`, until that ends."""
    return await _ask(request, worker_id, "quiet")


@router.post(
    "/workers/{worker_id}/stop",
    tags=["workers"],
    responses=answers({200: Asked}, "worker_not_found", *REDIS),
)
@needs(Scope.OPERATE)
async def stop_worker(request: Request, worker_id: str) -> Response:
    """Asks a worker to end as SIGTERM does: it claims nothing more, finishes what it can within the grace and
    hands the rest back. It concerns all processes of the same `taskq worker`; whatever started that may start
    another."""
    return await _ask(request, worker_id, "stop")


async def _ask(request: Request, worker_id: str, wish: str) -> Response:
    access_of(request).check_everything()
    async with acting(request, f"worker.{wish}", worker_id[:200]):
        asked = await tell_worker(services(request).client.store, worker_id, wish)
    ends = await services(request).inspector.lease_ends(asked)
    shown = [worker_to_dict(worker, ends.get(worker.id)) for worker in asked]
    return json_response(encode({"workers": shown}))


@router.get(
    "/server",
    tags=["doctor"],
    responses=answers({200: Server}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def show_server(request: Request) -> Response:
    """The Redis server: whether it keeps jobs, its memory, and how what it writes reaches the disk."""
    access_of(request).check_everything()
    store = services(request).client.store
    report, facts = await look_at_server(store)
    return json_response(encode(server_to_dict(store.keys.namespace, report, facts)))


@router.get(
    "/doctor",
    tags=["doctor"],
    responses=answers({200: Findings}, "queue_not_found", "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def doctor(
    request: Request,
    queue: Annotated[
        str | None, Query(description="only this queue (and the server). Default all")
    ] = None,
    seconds: Annotated[
        float, Query(gt=0, le=20, allow_inf_nan=False, description="time for this page")
    ] = 5,
    cursor: Annotated[
        str | None, Query(max_length=100, description="`next_cursor` of the page before")
    ] = None,
) -> Response:
    """Checks that the server is set up right and that every job stands where its state says, queue by queue,
    for some seconds a page. A queue that is too large for a page is said to be so: `taskq doctor` looks at
    all of it, and `taskq doctor --fix` puts right what it finds."""
    access_of(request).check_everything()
    its = services(request)
    if queue is not None:
        await its.inspector.queue(queue)
    names = [queue] if queue is not None else await its.inspector.queue_names()
    async with its.doctor:
        seen = await glance(its.client.store, names, seconds=seconds, cursor=cursor)
    problems = {} if cursor else await its.payloads.problems()
    found = [finding_to_dict(finding) for finding in seen.findings]
    for name, problem in sorted(problems.items()):
        found.append(
            {
                "severity": "warning",
                "queue": "",
                "subject": f"job type {name}",
                "message": f"its schema {problem}: payloads are not checked",
                "advice": "publish another: start a worker whose application has it right",
                "fix": "",
                "fixed": False,
            }
        )
    return json_response(
        encode({"findings": found, "looked_at": seen.looked, "next_cursor": seen.cursor})
    )
