"""Puts the API together: routes, middleware, and what lives as long as the process."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from taskq.aio import end_tasks
from taskq.liveness import show_life
from taskq.settings import Settings
from taskq_api import errors
from taskq_api.auth import KeyAuth, check_bind, key_digests
from taskq_api.deps import Services
from taskq_api.hub import Hub
from taskq_api.limits import BodyLimit, SameOrigin, SecurityHeaders, is_loopback
from taskq_api.metrics import RequestMetrics
from taskq_api.routes import (
    bulk,
    events,
    failures,
    health,
    jobs,
    leases,
    metrics,
    operate,
    pages,
    queues,
    steering,
)
from taskq_api.schemas import components
from taskq_api.version import VERSION

logger = logging.getLogger("taskq.api")

DESCRIPTION = """
Submit jobs to **taskq**, watch them and steer them.

Errors are `application/problem+json` (RFC 9457) with a stable `code`. Times are RFC 3339 in UTC with
milliseconds; durations are seconds. A 503 or 429 says in `Retry-After` when to come back; with an
`Idempotency-Key` a repeated submission cannot make a second job.
"""

TAGS = [
    {"name": "jobs", "description": "Submit, look at and steer jobs."},
    {"name": "leases", "description": "Run jobs over HTTP, in any language."},
    {"name": "errors", "description": "Failures by kind."},
    {"name": "bulk", "description": "Many jobs at once: preview, start, watch, stop."},
    {"name": "queues", "description": "Queues and their settings."},
    {"name": "events", "description": "What happens, as it happens."},
    {"name": "metrics", "description": "Figures."},
    {"name": "workers", "description": "Who runs jobs, and which."},
    {"name": "doctor", "description": "Is everything where it should be?"},
    {"name": "health", "description": "For probes; never needs a key."},
]


class Api(FastAPI):
    """FastAPI with the schemas of bodies that routes read and write by themselves."""

    def openapi(self) -> dict[str, Any]:
        made = self.openapi_schema is not None
        document = super().openapi()
        if not made:
            _drop_foreign_errors(document)
            parts = document.setdefault("components", {})
            parts["schemas"] = components()
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{}, {"key": []}]
        return document


def _drop_foreign_errors(document: dict[str, Any]) -> None:
    """Takes out the form of validation errors that FastAPI adds by itself: ours are problems."""
    for methods in document["paths"].values():
        for operation in methods.values():
            answer = operation["responses"].get("422", {})
            if errors.PROBLEM not in answer.get("content", {}):
                operation["responses"].pop("422", None)


def create_app(settings: Settings) -> FastAPI:
    """The application. Raises ``ConfigError`` where it would be open to the network by accident."""
    check_bind(settings)
    digests = key_digests(settings)
    app = Api(
        title="taskq",
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        docs_url=None,  # ours, below: FastAPI's loads its scripts from elsewhere
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.stopping = asyncio.Event()
    app.state.registry = CollectorRegistry()
    errors.install(app)
    # Found first, and free of the dependency machinery that this busiest route does not use; its twin
    # in the router is what the OpenAPI document shows.
    app.add_route("/jobs", jobs.submit_job, methods=["POST"], include_in_schema=False)
    for module in (
        jobs,
        steering,
        failures,
        bulk,
        leases,
        queues,
        events,
        metrics,
        operate,
        health,
        pages,
    ):
        app.include_router(module.router)
    # The one that is added last sees a request first.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if digests:
        app.add_middleware(KeyAuth, digests=digests)
    else:
        hosts, loopback = [settings.api_host], is_loopback(settings.api_host)
        app.add_middleware(SameOrigin, hosts=hosts, check_host=loopback)
    app.add_middleware(errors.Shield)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestMetrics, registry=app.state.registry)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    if settings.api_keys is None and not is_loopback(settings.api_host):
        logger.warning(
            "TASKQ_ALLOW_OPEN: listening on %s without keys; whoever reaches the port may submit, "
            "read and cancel jobs",
            settings.api_host,
        )
    services = app.state.services = Services.open(settings, app.state.registry)
    janitor = asyncio.create_task(services.janitor.run())
    ending = asyncio.create_task(_end_streams(app.state.stopping, services.hub))
    life = asyncio.create_task(show_life(settings.health_file))
    try:
        yield
    finally:
        await end_tasks(janitor, ending, life, *services.background)
        await services.hub.close()
        await services.payloads.close()
        await services.polls.close()
        await services.client.close()


async def _end_streams(stopping: asyncio.Event, hub: Hub) -> None:
    """Open streams end when the process is asked to stop, and do not use up its grace."""
    await stopping.wait()
    await hub.close()
