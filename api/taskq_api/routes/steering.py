"""Single jobs: why one waits, editing one that waits, deleting one that has ended."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq import steering
from taskq.apikeys import Scope
from taskq.calls import delay_to_ms
from taskq.errors import InvalidInput
from taskq.ids import join_id
from taskq.position import position
from taskq.submission import run_at_ms
from taskq.views import position_to_dict
from taskq_api.access import access_of, needs
from taskq_api.deps import (
    acting,
    find_job,
    job_place_for,
    known_parameters,
    parse,
    read_json,
    services,
)
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, job_body, json_response
from taskq_api.schemas import Job, JobChanges, Position

router = APIRouter(tags=["jobs"])


@router.get(
    "/jobs/{job_id}/position",
    responses=answers({200: Position}, "job_not_found", "broken_key", *REDIS),
)
@needs(Scope.READ)
async def job_position(request: Request, job_id: str) -> Response:
    """Why the job waits: its place over all lines, what keeps it there, and when it is likely to start. Of a
    job that no longer waits the reason says so."""
    access = access_of(request)
    queue, ulid = job_place_for(access, job_id)
    found = await position(services(request).inspector, join_id(queue, ulid))
    access.check_job(queue, found.job_type, found.id)
    return json_response(encode(position_to_dict(found)))


@router.patch(
    "/jobs/{job_id}",
    responses=answers({200: Job}, "job_not_found", "wrong_state", *BODY, *REDIS),
    openapi_extra=body(JobChanges),
)
@needs(Scope.OPERATE)
async def edit_job(request: Request, job_id: str) -> Response:
    """Changes the priority of a waiting job, or when it may run. One that has started meanwhile is refused
    and left as it is (409 `wrong_state`)."""
    job = await find_job(request, job_id)
    wanted: JobChanges = parse(JobChanges, await read_json(request))
    if wanted.priority is None and wanted.run_at is None and wanted.delay is None:
        raise InvalidInput("name something to change: priority, run_at or delay", field="priority")
    changes = wanted.model_dump(exclude_none=True, exclude={"fence"})
    async with acting(request, "job.edit", job.id, **changes):
        await steering.edit(
            services(request).client.store,
            job.id,
            priority=wanted.priority,
            run_at_ms=None if wanted.run_at is None else max(0, run_at_ms(wanted.run_at)),
            delay_ms=None if wanted.delay is None else delay_to_ms(wanted.delay, "delay"),
            fence=wanted.fence,
        )
    return json_response(job_body(await find_job(request, job.id), access_of(request)))


@router.delete(
    "/jobs/{job_id}",
    status_code=204,
    responses=answers({204: None}, "job_not_found", "wrong_state", "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.OPERATE)
async def delete_job(
    request: Request,
    job_id: str,
    fence: Annotated[
        int | None,
        Query(ge=0, description="delete it only if its last run is still this one (0: none)"),
    ] = None,
) -> Response:
    """Deletes an ended job with its result and history. For `dedup_seconds` a stub stays, so that a late
    repeat of its submission makes no second job. One that has not ended is refused (409 `wrong_state`)."""
    job = await find_job(request, job_id)
    async with acting(request, "job.delete", job.id):
        await steering.delete(services(request).client.store, job.id, fence=fence)
    return Response(status_code=204)
