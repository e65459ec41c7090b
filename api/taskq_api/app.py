"""Puts the API together: routes, middleware, and what lives as long as the process."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from taskq.aio import end_tasks
from taskq.errors import TaskqError
from taskq.liveness import show_life
from taskq.settings import Settings
from taskq_api import errors
from taskq_api.access import check_scope
from taskq_api.auth import Door, check_bind, listed_keys
from taskq_api.deps import Services
from taskq_api.docs import api_routes, describe_names, show_scopes
from taskq_api.hub import Hub
from taskq_api.limits import BodyLimit, SecurityHeaders, is_loopback
from taskq_api.metrics import RequestMetrics
from taskq_api.routes import (
    bulk,
    dashboard,
    events,
    failures,
    health,
    jobs,
    keys,
    leases,
    metrics,
    operate,
    pages,
    queues,
    steering,
)
from taskq_api.schemas import components
from taskq_api.shortcuts import Shortcuts
from taskq_api.version import VERSION

logger = logging.getLogger("taskq.api")

KEYS_SECONDS = 1.0
"""How long a start waits for the API keys."""

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
    {"name": "keys", "description": "API keys, and the trail of what people did."},
    {"name": "health", "description": "For probes; never needs a key."},
]


class Api(FastAPI):
    """FastAPI with the schemas of bodies that routes read and write by themselves, and whose routers all
    ask what a route needs."""

    def __init__(self, **options: Any) -> None:
        self.routers: list[APIRouter] = []
        self.front: ASGIApp = super().__call__
        """What sees a request before any route."""
        super().__init__(**options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.front(scope, receive, send)

    def include_router(self, router: APIRouter, **options: Any) -> None:
        self.routers.append(router)
        super().include_router(router, dependencies=[Depends(check_scope)], **options)

    def openapi(self) -> dict[str, Any]:
        made = self.openapi_schema is not None
        document = super().openapi()
        if not made:
            _drop_foreign_errors(document)
            describe_names(document)
            parts = document.setdefault("components", {})
            parts["schemas"] = components()
            show_scopes(document, self.routers)
        return document


def _drop_foreign_errors(document: dict[str, Any]) -> None:
    """Takes out the form of validation errors that FastAPI adds by itself: ours are problems."""
    for methods in document["paths"].values():
        for operation in methods.values():
            answer = operation["responses"].get("422", {})
            if errors.PROBLEM not in answer.get("content", {}):
                operation["responses"].pop("422", None)


def create_app(settings: Settings, *, keys_stored: bool = False) -> FastAPI:
    """The application. Raises ``ConfigError`` where it would be open to the network by accident:
    ``keys_stored`` says that there are keys in Redis."""
    check_bind(settings, keys_stored=keys_stored)
    listed_keys(settings)
    app = Api(
        title="taskq",
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        docs_url=None,  # ours, below: FastAPI's loads its scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a body is not sent again to where a redirect leads
    )
    app.state.settings = settings
    app.state.stopping = asyncio.Event()
    app.state.registry = CollectorRegistry()
    errors.install(app)
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
        keys,
        health,
        pages,
        dashboard,
    ):
        app.include_router(module.router)
    dashboard.mount_assets(app)
    # Within the framework's own, which would answer first; the one in front is for what stands before it.
    app.add_middleware(errors.Shield)
    app.front = _front(app, settings)
    return app


def _front(app: Api, settings: Settings) -> ASGIApp:
    """From the innermost to the one that sees a request first."""
    # The routes behind it stay: they are what the OpenAPI document shows, and what takes the rest.
    front: ASGIApp = errors.Shield(Shortcuts(app.front, api_routes(app.routers)))
    front = BodyLimit(front, max_bytes=settings.max_body_bytes)
    front = Door(front, settings=settings)
    if settings.origins:
        front = CORSMiddleware(
            front,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Location", "Retry-After"],
        )
    front = SecurityHeaders(errors.Shield(front))
    return RequestMetrics(front, registry=app.state.registry)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    services = app.state.services = Services.open(settings, app.state.registry)
    with contextlib.suppress(TaskqError, TimeoutError):  # then the first request waits for it
        async with asyncio.timeout(KEYS_SECONDS):
            await services.ring.read()
    if settings.allow_open and not services.ring.closed and not is_loopback(settings.api_host):
        logger.warning(
            "TASKQ_ALLOW_OPEN: listening on %s without keys; whoever reaches the port may submit, "
            "read and cancel jobs",
            settings.api_host,
        )
    janitor = asyncio.create_task(services.janitor.run())
    ring = asyncio.create_task(services.ring.run())
    ending = asyncio.create_task(_end_streams(app.state.stopping, services.hub))
    life = asyncio.create_task(show_life(settings.health_file))
    try:
        yield
    finally:
        await end_tasks(janitor, ring, ending, life, *services.background)
        await services.hub.close()
        await services.payloads.close()
        await services.polls.close()
        await services.client.close()


async def _end_streams(stopping: asyncio.Event, hub: Hub) -> None:
    """Open streams end when the process is asked to stop, and do not use up its grace."""
    await stopping.wait()
    await hub.close()
