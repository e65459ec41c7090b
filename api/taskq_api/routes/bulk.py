"""Bulk actions: what a filter matches is counted, started, watched and stopped."""

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.apikeys import Scope
from taskq.bulk import Bulk as StoredBulk
from taskq.errors import BulkNotFound, InvalidInput
from taskq.ids import check_key, check_queue, deterministic_ulid, split_id
from taskq.selection import BulkFilter
from taskq.submission import run_at_ms
from taskq.views import bulk_to_dict, filter_to_dict, preview_to_dict
from taskq_api import schemas
from taskq_api.access import Access, access_of, needs
from taskq_api.deps import acting, known_parameters, parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response
from taskq_api.schemas import Bulk, BulkList, BulkPreview, BulkPreviewRequest, BulkRequest

logger = logging.getLogger("taskq.api")
router = APIRouter(tags=["bulk"])

SOON_SECONDS = 1.0
"""What is done by then is answered as done."""
LOCATION = {"Location": {"description": "path of the action", "schema": {"type": "string"}}}
KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 200 characters. The same key and body again, in the same queue, is the same "
    "action, for as long as it is kept (seven days from its end); another body is refused (409).",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


STARTED = answers(
    {202: Bulk, 200: Bulk},
    "queue_not_found",
    "idempotency_conflict",
    "queue_full",
    *BODY,
    *REDIS,
    headers={202: LOCATION, 200: LOCATION},
)
"""What a route that starts a bulk action answers."""


@router.post(
    "/bulk/preview",
    responses=answers({200: BulkPreview}, "queue_not_found", *BODY, *REDIS),
    openapi_extra=body(BulkPreviewRequest),
)
@needs(Scope.OPERATE)
async def preview_bulk(request: Request) -> Response:
    """Counts the jobs that a bulk action would be about, and changes nothing."""
    its = services(request)
    wanted: BulkPreviewRequest = parse(BulkPreviewRequest, await read_json(request))
    chosen = chosen_jobs(wanted.filter)
    access_of(request).check_part(chosen.queue, chosen.job_type)
    await its.inspector.queue(chosen.queue)
    return json_response(encode(preview_to_dict(await its.bulks.preview(wanted.action, chosen))))


@router.post(
    "/bulk",
    status_code=202,
    responses=STARTED,
    openapi_extra={**body(BulkRequest), "parameters": [KEY_PARAMETER]},
)
@needs(Scope.OPERATE)
async def start_bulk(request: Request) -> Response:
    """Starts a bulk action: 200 if it is done within a second, else 202; it goes on in small pages, also if
    this process ends. `GET /bulk/{id}` shows how far it is."""
    wanted: BulkRequest = parse(BulkRequest, await read_json(request))
    chosen = chosen_jobs(wanted.filter)
    access_of(request).check_part(chosen.queue, chosen.job_type)
    await services(request).inspector.queue(chosen.queue)
    return await launch(
        request,
        "bulk.start",
        wanted.action,
        chosen,
        priority=wanted.priority,
        per_second=wanted.per_second,
    )


@router.get(
    "/bulk",
    responses=answers({200: BulkList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_bulks(
    request: Request, queue: Annotated[str, Query(description="of this queue")]
) -> Response:
    """Bulk actions of a queue: those under way, and the last 100 that ended."""
    access = access_of(request)
    access.check_queue(check_queue(queue))
    found = await services(request).bulks.list(queue)
    shown = [bulk_to_dict(bulk) for bulk in found if _is_visible(access, bulk)]
    return json_response(encode({"bulks": shown}))


@router.get("/bulk/{bulk_id}", responses=answers({200: Bulk}, "bulk_not_found", *REDIS))
@needs(Scope.READ)
async def show_bulk(request: Request, bulk_id: str) -> Response:
    """How a bulk action stands. Kept for seven days from its end, the last 100 of a queue."""
    return _answer(await _find(request, bulk_id))


@router.post("/bulk/{bulk_id}/stop", responses=answers({200: Bulk}, "bulk_not_found", *REDIS))
@needs(Scope.OPERATE)
async def stop_bulk(request: Request, bulk_id: str) -> Response:
    """Ends a bulk action where it is: the page that is under way is still done. One that has ended stays as
    it is."""
    bulk = await _find(request, bulk_id)
    async with acting(request, "bulk.stop", bulk.id):
        stopped = await services(request).bulks.stop(bulk.id)
    return _answer(stopped)


async def _find(request: Request, bulk_id: str) -> StoredBulk:
    """The action of an id in a path, where it is there for this key. Raises ``BulkNotFound``."""
    access = access_of(request)
    if not access.can_see(bulk_id.rpartition(":")[0]):
        raise BulkNotFound(bulk_id[:100])
    bulk = await services(request).bulks.get(bulk_id)
    if not _is_visible(access, bulk):
        raise BulkNotFound(bulk_id[:100])
    return bulk


def _is_visible(access: Access, bulk: StoredBulk) -> bool:
    """A key that is bound to types sees actions on one of those only."""
    return access.can_see(bulk.queue, bulk.filter.job_type)


def chosen_jobs(wanted: schemas.BulkFilter) -> BulkFilter:
    """The filter as the library takes it. Raises ``InvalidInput``."""
    queue, ulids = wanted.queue, []
    for job_id in wanted.ids or ():
        its_queue, ulid = split_id(job_id)
        ulids.append(ulid)
        queue = queue or its_queue
        if its_queue != queue:
            raise InvalidInput("all ids must be of one queue", field="filter.ids")
    if queue is None:
        raise InvalidInput("name a queue, or ids", field="filter.queue")
    return BulkFilter(
        queue=check_queue(queue),
        states=() if wanted.state is None else (wanted.state,),
        job_type=wanted.job_type or "",
        fingerprint=wanted.fingerprint or "",
        since=None if wanted.since is None else max(1, run_at_ms(wanted.since)),
        before=None if wanted.before is None else max(1, run_at_ms(wanted.before)),
        ids=tuple(dict.fromkeys(ulids)),
    )


async def launch(
    request: Request, what: str, action: str, chosen: BulkFilter, **options: Any
) -> Response:
    """Starts an action, and answers how it stands a moment later; ``what`` is its name in the audit trail."""
    its = services(request)
    said = {"action": action, "filter": filter_to_dict(chosen), **options}
    key = request.headers.get("idempotency-key")
    if key is not None:
        owner = access_of(request).owner
        check_key(key, "idempotency_key")
        options["bulk_id"] = deterministic_ulid(owner, chosen.queue, "bulk", key)
    async with acting(request, what, chosen.queue, **said) as note:
        bulk = await its.bulks.start(action, chosen, **options)
        note.parameters["id"] = bulk.id
    if bulk.state == "running":
        run = asyncio.create_task(_carry_out(request, bulk.id))
        its.background.add(run)
        run.add_done_callback(its.background.discard)
        await asyncio.wait([run], timeout=SOON_SECONDS)
        bulk = await its.bulks.get(bulk.id)
    status = 202 if bulk.state == "running" else 200
    return _answer(bulk, status, {"Location": f"/bulk/{bulk.id}"})


async def _carry_out(request: Request, bulk_id: str) -> None:
    try:
        await services(request).bulks.run(bulk_id)
    except Exception as error:
        # It stands in Redis: whichever janitor looks next carries it on.
        logger.warning("bulk action %s waits for a janitor: %s", bulk_id, error)


def _answer(bulk: StoredBulk, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return json_response(encode(bulk_to_dict(bulk)), status, headers)
