"""Failures by kind, and the jobs behind them."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.apikeys import Scope
from taskq.errors import ErrorNotFound
from taskq.failures import failures, failures_of
from taskq.ids import check_queue
from taskq.present import job_to_dict
from taskq.states import State
from taskq.views import error_group_to_dict
from taskq_api.access import access_of, needs
from taskq_api.deps import known_parameters, services
from taskq_api.docs import REDIS, answers
from taskq_api.render import encode, json_response
from taskq_api.schemas import ErrorJobs, ErrorList
from taskq_api.schemas.steering import FINGERPRINT

router = APIRouter(tags=["errors"])

_QUEUE = Query(description="only this queue. Default all")
_CURSOR = Query(max_length=2000, description="`next_cursor` of the page before")


@router.get(
    "/errors",
    responses=answers({200: ErrorList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_errors(
    request: Request,
    queue: Annotated[str | None, _QUEUE] = None,
    cursor: Annotated[str | None, _CURSOR] = None,
) -> Response:
    """Failures by kind: how often, since when, of which type, and a job to look at. Kept at the moment of
    the failure, so that a look costs nothing. A page is 20 queues."""
    access = access_of(request)
    if queue is not None:
        access.check_queue(check_queue(queue))
    groups, go_on = await failures(
        services(request).inspector, queue, among=access.queues, cursor=cursor
    )
    rows = [error_group_to_dict(group) for group in groups if access.can_see_type(group.job_type)]
    return json_response(encode({"errors": rows, "next_cursor": go_on}))


@router.get(
    "/errors/{fingerprint}",
    responses=answers({200: ErrorJobs}, "error_not_found", "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def show_error(
    request: Request,
    fingerprint: str,
    queue: Annotated[str | None, _QUEUE] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="jobs at most")] = 50,
    cursor: Annotated[str | None, _CURSOR] = None,
) -> Response:
    """One kind of failure, and the jobs whose last failure is of it, the latest first. `unknown` stands
    for jobs that failed under a version that knew no kinds. To retry them all: `POST /bulk`."""
    if not re.fullmatch(FINGERPRINT, fingerprint):
        raise ErrorNotFound(fingerprint[:100])
    its, access = services(request), access_of(request)
    if queue is not None:
        access.check_queue(check_queue(queue))
    found = await failures_of(its.inspector, fingerprint, queue, among=access.queues)
    groups = [group for group in found if access.can_see_type(group.job_type)]
    page = await its.inspector.jobs(
        queue=queue,
        among=access.queues,
        states=(State.FAILED, State.RETRYING),
        limit=limit,
        cursor=cursor,
        fingerprint=fingerprint,
    )
    jobs = [job for job in page.jobs if access.can_see(job.queue, job.job_type)]
    if not (groups or jobs or page.cursor or cursor):
        raise ErrorNotFound(fingerprint)
    answer = {
        "errors": [error_group_to_dict(group) for group in groups],
        "jobs": [job_to_dict(job, full=False) for job in jobs],
        "looked_at": page.looked,
        "next_cursor": page.cursor,
    }
    return json_response(encode(answer))
