"""Queues and their settings, workers, and the job types that workers publish."""

from dataclasses import replace

from fastapi import APIRouter, Depends, Request, Response

from taskq import calls
from taskq.apikeys import Scope
from taskq.ids import check_queue
from taskq.model import QueueInfo
from taskq.present import queue_to_dict, worker_to_dict
from taskq.registry import WorkerInfo
from taskq_api.access import Access, access_of, needs
from taskq_api.deps import acting, known_parameters, parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response
from taskq_api.schemas import JobTypeList, Queue, QueueChanges, QueueList, WorkerList

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
    infos = await its.inspector.queues(access.queues)
    workers = await its.inspector.workers()
    rows = [queue_to_dict(_queue_for(access, info), workers) for info in infos]
    return json_response(encode({"queues": rows}))


def _queue_for(access: Access, info: QueueInfo) -> QueueInfo:
    """Without the waiting lines of types that a key may not see. The counts stay the queue's."""
    if access.job_types is None:
        return info
    paused = info.settings.get("paused_types", "").split()
    shown = " ".join(job_type for job_type in paused if access.can_see_type(job_type))
    lines = tuple(line for line in info.types if access.can_see_type(line.job_type))
    return replace(info, types=lines, settings={**info.settings, "paused_types": shown})


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
    info = _queue_for(access_of(request), await its.inspector.queue(queue))
    return json_response(encode(queue_to_dict(info, await its.inspector.workers())))


@router.patch(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, *BODY, *REDIS),
    openapi_extra=body(QueueChanges),
)
@needs(Scope.OPERATE)
async def change_queue(request: Request, queue: str) -> Response:
    """Changes settings; pauses and resumes. `null` clears a setting. A queue that is not there yet is
    made."""
    its = services(request)
    access_of(request).check_whole_queue(check_queue(queue))
    changes = parse(QueueChanges, await read_json(request)).model_dump(exclude_unset=True)
    if changes:
        call = calls.configure(its.client.store.keys.queue(queue), changes)
        async with acting(request, "queue.change", queue, **changes):
            await its.client.store.know_queue(queue)
            await its.client.store.run(call)
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
    return json_response(encode({"workers": [worker_to_dict(worker) for worker in workers]}))


async def _workers_for(request: Request) -> list[WorkerInfo]:
    """Workers that serve a queue that the key may see, as far as they serve it."""
    access = access_of(request)
    workers = await services(request).inspector.workers()
    if access.everything:
        return workers
    seen = (
        replace(
            worker,
            queues=tuple(queue for queue in worker.queues if access.can_see(queue)),
            types=tuple(job_type for job_type in worker.types if access.can_see_type(job_type)),
        )
        for worker in workers
    )
    return [worker for worker in seen if worker.queues]


@router.get(
    "/job-types",
    tags=["workers"],
    responses=answers({200: JobTypeList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.READ)
async def list_job_types(request: Request) -> Response:
    """Job types that workers have published, with what they say about them."""
    access = access_of(request)
    published = await services(request).registry.types()
    names = {name for name in published if access.can_see_type(name)}
    if (
        access.queues is not None
    ):  # types are published for all queues: those of its workers are its own
        names &= {name for worker in await _workers_for(request) for name in worker.types}
    rows = [{"job_type": name, "published": published[name]} for name in sorted(names)]
    return json_response(encode({"job_types": rows}))
