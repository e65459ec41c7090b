"""Queues and their settings, workers, and the job types that workers publish."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from taskq import calls
from taskq.apikeys import Scope
from taskq.failures import latencies
from taskq.ids import check_queue
from taskq.present import queue_to_dict, worker_to_dict
from taskq.registry import WorkerInfo
from taskq.views import job_type_to_dict
from taskq_api.access import Access, access_of, needs
from taskq_api.deps import acting, known_parameters, parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response
from taskq_api.schemas import JobTypeList, Queue, QueueChanges, QueueList, WorkerList
from taskq_api.visible import queue_for, workers_for

router = APIRouter()


@router.get(
    "/queues",
    tags=["queues"],
    responses=answers({200: QueueList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_queues(request: Request) -> Response:
    """Every queue, with its jobs counted by state and its waiting lines."""
    its = services(request)
    access = access_of(request)
    infos, workers = await asyncio.gather(
        its.inspector.queues(access.queues), its.inspector.workers()
    )
    rows = [queue_to_dict(queue_for(access, info), workers) for info in infos]
    return json_response(encode({"queues": rows}))


@router.get(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, "queue_not_found", "invalid", *REDIS),
)
@needs(Scope.READ)
async def show_queue(request: Request, queue: str) -> Response:
    """One queue. It exists from its first job or setting on."""
    access_of(request).check_queue(check_queue(queue))
    return await _answer_queue(request, queue)


async def _answer_queue(request: Request, queue: str) -> Response:
    its = services(request)
    info = queue_for(access_of(request), await its.inspector.queue(queue))
    return json_response(encode(queue_to_dict(info, await its.inspector.workers())))


@router.patch(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, *BODY, "queue_not_found", *REDIS),
    openapi_extra=body(QueueChanges),
)
@needs(Scope.OPERATE)
async def change_queue(request: Request, queue: str) -> Response:
    """Changes settings; pauses and resumes. `null` clears a setting. A queue that is not there yet is
    made, unless nothing is to be changed."""
    its = services(request)
    access_of(request).check_whole_queue(check_queue(queue))
    changes = parse(QueueChanges, await read_json(request)).model_dump(exclude_unset=True)
    if changes:
        call = calls.configure(its.client.store.keys.queue(queue), changes)
        async with acting(request, "queue.change", queue, **changes):
            await its.client.store.know_queue(queue)
            await its.client.store.run(call)
        its.payloads.forget(queue)
    return await _answer_queue(request, queue)


@router.get(
    "/workers",
    tags=["workers"],
    responses=answers({200: WorkerList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_workers(request: Request) -> Response:
    """Workers that were seen lately."""
    workers = await _workers_for(request)
    ends = await services(request).inspector.lease_ends(workers)
    shown = [worker_to_dict(worker, ends.get(worker.id)) for worker in workers]
    return json_response(encode({"workers": shown}))


async def _workers_for(request: Request) -> list[WorkerInfo]:
    return workers_for(access_of(request), await services(request).inspector.workers())


@router.get(
    "/job-types",
    tags=["workers"],
    responses=answers({200: JobTypeList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_job_types(request: Request) -> Response:
    """Job types that workers have published: what they take, who runs them, and how long they wait and
    run."""
    its, access = services(request), access_of(request)
    workers = await _workers_for(request)
    problems = await its.payloads.problems()
    published = _types_for(access, await its.registry.types(), workers)
    past = await latencies(
        its.inspector,
        [about.get("queue") for about in published.values() if isinstance(about, dict)],
    )
    rows = [
        job_type_to_dict(name, published[name], workers, past, problems.get(name))
        for name in sorted(published)
    ]
    return json_response(encode({"job_types": rows}))


def _types_for(
    access: Access, published: dict[str, Any], workers: Iterable[WorkerInfo]
) -> dict[str, Any]:
    """Types are published for all queues: those that its workers run are a key's own."""
    served = {name for worker in workers for name in worker.types}
    return {
        name: about
        if not isinstance(about, dict) or access.can_see(str(about.get("queue")))
        else {**about, "queue": None}
        for name, about in published.items()
        if access.can_see_type(name) and (access.queues is None or name in served)
    }
