"""Queues and their settings, workers, and the job types that workers publish."""

from fastapi import APIRouter, Depends, Request, Response

from taskq import calls
from taskq.failures import latencies
from taskq.ids import check_queue
from taskq.present import queue_to_dict, worker_to_dict
from taskq.views import job_type_to_dict
from taskq_api.deps import known_parameters, parse, read_json, services
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
async def list_queues(request: Request) -> Response:
    """Every queue, with its jobs counted by state and its waiting lines."""
    its = services(request)
    infos = await its.inspector.queues()
    workers = await its.inspector.workers()
    return json_response(encode({"queues": [queue_to_dict(info, workers) for info in infos]}))


@router.get(
    "/queues/{queue}",
    tags=["queues"],
    responses=answers({200: Queue}, "queue_not_found", "invalid", *REDIS),
)
async def show_queue(request: Request, queue: str) -> Response:
    """One queue. It exists from its first job or setting on."""
    its = services(request)
    info = await its.inspector.queue(queue)
    return json_response(encode(queue_to_dict(info, await its.inspector.workers())))


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
        its.payloads.forget(queue)
    return await show_queue(request, queue)


@router.get(
    "/workers",
    tags=["workers"],
    responses=answers({200: WorkerList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
async def list_workers(request: Request) -> Response:
    """Workers that were seen lately."""
    workers = await services(request).inspector.workers()
    return json_response(encode({"workers": [worker_to_dict(worker) for worker in workers]}))


@router.get(
    "/job-types",
    tags=["workers"],
    responses=answers({200: JobTypeList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
async def list_job_types(request: Request) -> Response:
    """Job types that workers have published: what they take, who runs them, and how long they wait and
    run."""
    its = services(request)
    published = await its.registry.types()
    workers = await its.inspector.workers()
    problems = await its.payloads.problems()
    past = await latencies(
        its.client.store,
        [about.get("queue") for about in published.values() if isinstance(about, dict)],
    )
    rows = [
        job_type_to_dict(name, published[name], workers, past, problems.get(name))
        for name in sorted(published)
    ]
    return json_response(encode({"job_types": rows}))
