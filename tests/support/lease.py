"""A worker over HTTP, as a test plays it."""

import asyncio
from typing import Any

from taskq import calls
from taskq.ids import split_id
from taskq_api import schemas


async def lease(api: Any, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/leases", json=fields, headers=headers or {})
    assert answer.status_code == 200, answer.text
    schemas.Lease.model_validate(answer.json(), extra="forbid")
    found: dict[str, Any] = answer.json()
    return found


async def leased(api: Any, n: int = 1, **fields: Any) -> dict[str, Any]:
    """A lease over ``n`` fresh jobs."""
    for _ in range(n):
        await api.submit(**fields)
    found = await lease(api, job_types=["echo"], max=n)
    assert len(found["jobs"]) == n
    return found


async def report(api: Any, held: dict[str, Any], *results: dict[str, Any]) -> dict[str, Any]:
    answer = await api.http.post(f"/leases/{held['id']}/results", json={"results": list(results)})
    assert answer.status_code == 200, answer.text
    schemas.ResultsAnswer.model_validate(answer.json(), extra="forbid")
    found: dict[str, Any] = answer.json()
    return found


def of(job: dict[str, Any], outcome: str, **more: Any) -> dict[str, Any]:
    return {"id": job["id"], "fence": job["fence"], "outcome": outcome, **more}


async def beat(api: Any, held: dict[str, Any]) -> Any:
    return await api.http.post(f"/leases/{held['id']}/heartbeat")


async def shown(api: Any, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get(f"/jobs/{job['id']}")).json()
    return found


async def run_out(api: Any, held: dict[str, Any]) -> None:
    """The lease runs out, and a janitor sees it."""
    keys = api.store.keys.queue(held["queue"])
    await api.store.redis.zadd(keys.leases, {held["worker"]: 0})
    await api.store.run(calls.reap(keys, lease_ms=15_000))


async def time_passes(api: Any, job: dict[str, Any], seconds: float, due: bool = False) -> None:
    """The run began so much earlier; where it is ``due``, janitors look at its lease now."""
    queue, ulid = split_id(job["id"])
    keys = api.store.keys.queue(queue)
    await api.store.redis.hincrby(keys.job(ulid), "started_at", -round(seconds * 1000))
    if due:
        worker = (await api.store.redis.hget(keys.job(ulid), "worker")).decode()
        await api.store.redis.zadd(keys.deadlines, {worker: 1})


async def until_polling(api: Any, n: int = 1) -> None:
    """Waits until ``n`` clients are known to poll."""
    async with asyncio.timeout(10):
        while await api.store.redis.zcard("taskq:workers") < n:
            await asyncio.sleep(0.01)
