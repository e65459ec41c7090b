"""Live events, as Server-Sent Events."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.errors import QueueNotFound
from taskq.events import Position
from taskq.ids import check_job_type, check_queue, join_id
from taskq_api.deps import job_place, known_parameters, services
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
    wanted = Filter(
        None if queue is None else frozenset(check_queue(name) for name in queue),
        None if job_type is None else frozenset(check_job_type(name) for name in job_type),
    )
    if wanted.queues is not None:
        missing = wanted.queues.difference(await its.inspector.queue_names())
        if missing:
            raise QueueNotFound(min(missing))
    await its.hub.prepare(wanted)
    return EventStream(its.hub, wanted, since)


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
async def stream_job_events(request: Request, job_id: str) -> Response:
    """What becomes of one job: `job` as it is now (without payload and result), then each `state`, its
    `progress` and the lines of its `log`, until it has ended."""
    its = services(request)
    since, told = _since(request)
    if told:
        return Response(status_code=204)
    queue, ulid = job_place(job_id)
    job = await its.inspector.job(join_id(queue, ulid))
    wanted = Filter(frozenset({queue}), None, ulid)
    await its.hub.prepare(wanted)
    return JobStream(its.hub, wanted, since, its.inspector, job.id)
