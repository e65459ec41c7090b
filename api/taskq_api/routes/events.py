"""Live events, as Server-Sent Events."""

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.apikeys import Scope
from taskq.errors import QueueNotFound
from taskq.events import Position
from taskq.ids import check_job_type, check_queue
from taskq_api.access import Access, access_of, needs
from taskq_api.deps import find_job, known_parameters, services
from taskq_api.docs import REDIS, answers
from taskq_api.sse import Filter, split_end
from taskq_api.streams import EventStream, JobStream

router = APIRouter()

_STREAM = {
    "description": "Events, until the client goes or the process stops.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
_ENDED = {"description": "The job has ended and all was told: do not come back."}
_LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "the `id` that was read last: goes on after it. Browsers send it by themselves",
    "schema": {"type": "string"},
}


def _since(request: Request) -> tuple[Position | None, bool]:
    """Where to go on (None: now), and whether all was told. Raises ``InvalidInput``."""
    text, end = split_end(request.headers.get("last-event-id", ""))
    return (Position.parse(text) if text else None), end


@router.get(
    "/events",
    tags=["events"],
    status_code=200,
    response_class=EventStream,
    responses={
        **answers({}, "queue_not_found", "invalid", "too_many_streams", *REDIS),
        200: _STREAM,
    },
    openapi_extra={"parameters": [_LAST_EVENT_ID]},
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def stream_events(
    request: Request,
    queue: Annotated[
        list[str] | None, Query(max_length=100, description="only this queue; may be repeated")
    ] = None,
    job_type: Annotated[
        list[str] | None, Query(max_length=100, description="only this type; may be repeated")
    ] = None,
) -> Response:
    """What becomes of jobs, as it happens. `state` tells which jobs are now in a state, `progress` and
    `log` which have something to say, `cancelling` which were asked to stop. `reset` says that something
    cannot be told: read anew what you show. Goes on after `Last-Event-ID` without a gap or a repeat."""
    its = services(request)
    since, _ = _since(request)
    access = access_of(request)
    wanted = _filter(access, queue, job_type)
    if wanted.queues is not None and wanted.named:
        missing = wanted.queues.difference(await its.inspector.queue_names())
        if missing:
            raise QueueNotFound(min(missing))
    await its.hub.prepare(wanted)
    return EventStream(its.hub, wanted, since, functools.partial(its.ring.check_again, access))


def _filter(access: Access, queues: list[str] | None, job_types: list[str] | None) -> Filter:
    """What is asked for, as far as the key may see it. Raises ``InvalidInput``, ``QueueNotFound``."""
    for name in queues or ():
        access.check_queue(check_queue(name))
    types = access.job_types
    if job_types is not None:
        asked = frozenset(check_job_type(name) for name in job_types)
        types = asked if types is None else asked & types
    return Filter(
        access.queues if queues is None else frozenset(queues), types, named=queues is not None
    )


@router.get(
    "/jobs/{job_id}/events",
    tags=["events"],
    status_code=200,
    response_class=EventStream,
    responses={
        **answers({}, "job_not_found", "invalid", "too_many_streams", *REDIS),
        200: _STREAM,
        204: _ENDED,
    },
    openapi_extra={"parameters": [_LAST_EVENT_ID]},
)
@needs(Scope.READ)
async def stream_job_events(request: Request, job_id: str) -> Response:
    """What becomes of one job: `job` as it is now (without payload and result), then each `state`, its
    `progress` and the lines of its `log`, until it has ended."""
    its = services(request)
    since, told = _since(request)
    if told:
        return Response(status_code=204)
    job = await find_job(request, job_id)
    wanted = Filter(frozenset({job.queue}), None, job.ulid)
    await its.hub.prepare(wanted)
    check = functools.partial(its.ring.check_again, access_of(request))
    return JobStream(its.hub, wanted, since, its.inspector, job.id, check)
