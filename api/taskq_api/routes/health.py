"""For probes: whether the process lives, and whether it can take jobs."""

import asyncio

from fastapi import APIRouter, Request, Response

from taskq.errors import TaskqError, Unavailable
from taskq.server import check_server
from taskq.store import AsyncStore, translate
from taskq_api.access import public
from taskq_api.deps import services
from taskq_api.docs import answers
from taskq_api.errors import problem
from taskq_api.render import encode, json_response
from taskq_api.schemas import Health, Ready
from taskq_api.version import VERSION

router = APIRouter()

READY_SECONDS = 2.0
_HEALTH = encode({"status": "ok", "version": VERSION})


@router.head("/health", include_in_schema=False)
@router.get("/health", tags=["health"], responses=answers({200: Health}))
@public
async def health() -> Response:
    """Answers while the process lives, whatever Redis does."""
    return json_response(_HEALTH)


@router.head("/ready", include_in_schema=False)
@router.get("/ready", tags=["health"], responses=answers({200: Ready}, "not_ready"))
@public
async def ready(request: Request) -> Response:
    """Whether jobs can be taken now: Redis answers, is writable, has room, and is set up so that it
    keeps jobs. Else 503 with `reasons`."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            return await _look(services(request).probe)
    except TimeoutError:
        reasons = ["Redis did not answer in time"]
    except Unavailable as error:
        reasons = [f"Redis cannot be used now ({error.reason})"]
    except TaskqError:
        reasons = ["Redis answered an error"]
    return _not_ready(reasons)


async def _look(store: AsyncStore) -> Response:
    report = await check_server(store)
    reasons = list(report.problems)
    # Changes nothing, as the list is never there; refused like a write that needs memory.
    (written,) = await store.pipeline([("LPUSHX", store.keys.queue("default").wake(".ready"), "1")])
    if isinstance(written, Exception):
        error = translate(written)
        word = error.reason if isinstance(error, Unavailable) else "error"
        reasons.append(f"Redis does not take writes now ({word})")
    if reasons:
        return _not_ready(reasons)
    server = f"{report.flavour} {report.version}"
    return json_response(encode({"status": "ready", "server": server, "warnings": report.warnings}))


def _not_ready(reasons: list[str]) -> Response:
    return problem("not_ready", "; ".join(reasons), headers={"Retry-After": "2"}, reasons=reasons)
