"""Queues and their settings, workers, and the job types that workers publish."""

from typing import Any

from fastapi import APIRouter, Request, Response

from taskq import calls
from taskq.ids import check_queue
from taskq.inspector import unserved
from taskq.model import QueueInfo
from taskq.present import queue_to_dict, worker_to_dict
from taskq.registry import WorkerInfo
from taskq_api.deps import parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response
from taskq_api.schemas import JobTypeList, Queue, QueueChanges, QueueList, WorkerList

router = APIRouter()


def _shown(info: QueueInfo, workers: list[WorkerInfo]) -> dict[str, Any]:
    out = queue_to_dict(info)
    lonely = set(unserved(info, workers))
    for line, shown in zip(info.types, out["types"], strict=True):
        age = None if line.head_since is None else max(0, info.now - line.head_since)
        shown["head_age"] = None if age is None else round(age / 1000, 3)
        shown["served"] = line.job_type not in lonely
    return out


@router.get("/queues", tags=["queues"], responses=answers({200: QueueList}, *REDIS))
async def list_queues(request: Request) -> Response:
    """Every queue, with its jobs counted by state and its waiting lines."""
    its = services(request)
    infos = await its.inspector.queues()
    workers = await its.inspector.workers()
    return json_response(encode({"queues": [_shown(info, workers) for info in infos]}))


@router.get(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, "queue_not_found", "invalid", *REDIS),
)
async def show_queue(request: Request, queue: str) -> Response:
    """One queue. It exists from its first job or setting on."""
    its = services(request)
    info = await its.inspector.queue(queue)
    return json_response(encode(_shown(info, await its.inspector.workers())))


@router.patch(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, *BODY, *REDIS),
    openapi_extra=body(QueueChanges),
)
async def change_queue(request: Request, queue: str) -> Response:
    """Changes settings; pauses and resumes. `null` clears a setting. A queue that is not there yet is
    made."""
    its = services(request)
    check_queue(queue)
    changes = parse(QueueChanges, await read_json(request)).model_dump(exclude_unset=True)
    if changes:
        call = calls.configure(its.client.store.keys.queue(queue), changes)
        await its.client.store.know_queue(queue)
        await its.client.store.run(call)
    return await show_queue(request, queue)


@router.get("/workers", tags=["workers"], responses=answers({200: WorkerList}, *REDIS))
async def list_workers(request: Request) -> Response:
    """Workers that were seen lately."""
    workers = await services(request).inspector.workers()
    return json_response(encode({"workers": [worker_to_dict(worker) for worker in workers]}))


@router.get("/job-types", tags=["workers"], responses=answers({200: JobTypeList}, *REDIS))
async def list_job_types(request: Request) -> Response:
    """Job types that workers have published, with what they say about them."""
    published = await services(request).registry.types()
    rows = [{"job_type": name, "published": published[name]} for name in sorted(published)]
    return json_response(encode({"job_types": rows}))
