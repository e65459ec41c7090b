"""What a key sees of queues and workers that it may see in part."""

from collections.abc import Iterable
from dataclasses import replace

from taskq.model import QueueInfo
from taskq.registry import WorkerInfo
from taskq_api.access import Access


def queue_for(access: Access, info: QueueInfo) -> QueueInfo:
    """Without the waiting lines of types that a key may not see. The counts stay the queue's."""
    if access.job_types is None:
        return info
    paused = info.settings.get("paused_types", "").split()
    shown = " ".join(job_type for job_type in paused if access.can_see_type(job_type))
    lines = tuple(line for line in info.types if access.can_see_type(line.job_type))
    return replace(info, types=lines, settings={**info.settings, "paused_types": shown})


def workers_for(access: Access, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Workers that serve a queue that the key may see, as far as they serve it."""
    if access.everything:
        return list(workers)
    seen = (
        replace(
            worker,
            queues=tuple(queue for queue in worker.queues if access.can_see(queue)),
            types=tuple(job_type for job_type in worker.types if access.can_see_type(job_type)),
        )
        for worker in workers
    )
    return [worker for worker in seen if worker.queues]
