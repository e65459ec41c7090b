"""Figures: statistics for people, and the page that Prometheus reads."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import PlainTextResponse

from taskq import calls
from taskq.apikeys import Scope
from taskq.errors import QueueNotFound
from taskq.ids import check_queue
from taskq.present import queue_to_dict, statistics_to_dict
from taskq.stats import MINUTES_MAX
from taskq_api.access import access_of, is_blind, needs
from taskq_api.deps import known_parameters, services
from taskq_api.docs import REDIS, answers
from taskq_api.render import encode, json_response
from taskq_api.schemas import StatisticsList
from taskq_api.visible import queue_for, workers_for

router = APIRouter()

QUEUES_SHOWN = 50
_PAGE: dict[str, Any] = {
    "description": "Every series, in the format that `Accept` asks for.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


@router.get(
    "/stats",
    tags=["metrics"],
    responses=answers({200: StatisticsList}, "queue_not_found", "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def show_statistics(
    request: Request,
    queue: Annotated[
        list[str] | None,
        Query(max_length=QUEUES_SHOWN, description="only this queue; may be repeated"),
    ] = None,
    minutes: Annotated[
        int, Query(ge=1, le=MINUTES_MAX, description="how far back, the minute that runs included")
    ] = 60,
) -> Response:
    """What happened in the last minutes: counts, rates, and how long jobs waited and ran, by type and over
    time; what waits now, and since when. Without `queue` the first 50 by name; `left_out` counts the
    rest."""
    inspector, access = services(request).inspector, access_of(request)
    for name in queue or ():
        access.check_queue(check_queue(name))
    (infos, left_out), everybody = await asyncio.gather(
        inspector.over_queues(
            calls.counts,
            wanted=lambda name: access.can_see(name) and (queue is None or name in queue),
            most=QUEUES_SHOWN,
        ),
        inspector.workers(),
    )
    if missing := set(queue or ()).difference(infos):
        raise QueueNotFound(min(missing))
    workers = workers_for(access, everybody)
    rows = []
    for name, info in infos.items():
        about = queue_to_dict(queue_for(access, info), workers)
        now = {
            "waiting": sum(line["waiting"] for line in about["types"]),
            "oldest_waiting": about["head_age"] or 0.0,
            "running": about["counts"]["running"],
        }
        past = await inspector.statistics(name, minutes, types=access.job_types, now=int(info.now))
        rows.append(statistics_to_dict(past) | now)
    return json_response(encode({"queues": rows, "left_out": left_out}))


@router.get(
    "/metrics",
    tags=["metrics"],
    response_class=PlainTextResponse,
    responses={**answers({}), 200: _PAGE},
)
@needs(Scope.READ)
async def show_metrics(request: Request) -> Response:
    """Figures for Prometheus. Answers also while Redis is away: then `taskq_redis_up` is 0."""
    access_of(request).check_everything()
    metrics, accept = services(request).metrics, request.headers.get("accept", "")
    blind = is_blind(request)
    page, content_type = await (metrics.blind_page(accept) if blind else metrics.page(accept))
    return Response(page, headers={"content-type": content_type})
