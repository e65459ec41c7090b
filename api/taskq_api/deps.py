"""What routes use: the services of the process, and the strict reading of a request's body."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from taskq import codec
from taskq.apikeys import KeyStore
from taskq.audit import Audit, Note
from taskq.bulk import Bulks
from taskq.client import AsyncClient
from taskq.errors import InvalidInput, InvalidPayload, JobNotFound, UniqueHeld
from taskq.events import EventReader
from taskq.ids import UlidFactory, join_id, split_id
from taskq.inspector import Inspector
from taskq.janitor import Janitor
from taskq.keys import Keys
from taskq.model import Job
from taskq.registry import Registry
from taskq.settings import Settings
from taskq.store import AsyncStore
from taskq_api.access import Access, access_of
from taskq_api.auth import listed_keys
from taskq_api.errors import Refused, invalid
from taskq_api.hub import Hub
from taskq_api.keyring import KeyRing
from taskq_api.metrics import Metrics
from taskq_api.payloads import Payloads
from taskq_api.polling import Polls

RETRY_SECONDS = 2.0
"""How long a request tries again while Redis is away: a restart of a moment is not seen by clients."""
SOCKET_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """Made when the application starts, closed when it ends."""

    settings: Settings
    client: AsyncClient
    inspector: Inspector
    registry: Registry
    janitor: Janitor
    probe: AsyncStore
    """The same connections without patience: for /ready."""
    ring: KeyRing
    keys: KeyStore
    audit: Audit
    polls: Polls
    bulks: Bulks
    payloads: Payloads
    hub: Hub
    """The one reader of events, for all streams."""
    metrics: Metrics
    background: set["asyncio.Task[Any]"] = field(default_factory=set)
    """What goes on after its request was answered; ends with the process, and others carry it on."""
    doctor: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One consistency check at a time."""
    new_ulid: UlidFactory = field(default_factory=UlidFactory)

    @classmethod
    def open(cls, settings: Settings, registry: CollectorRegistry) -> "Services":
        """``registry`` holds what the process itself counts."""
        client = AsyncClient.from_url(
            settings.redis_url,
            settings.namespace,
            retry_seconds=RETRY_SECONDS,
            socket_timeout=SOCKET_SECONDS,
        )
        store = client.store
        probe = AsyncStore(store.redis, Keys(settings.namespace), retry_seconds=0)
        inspector, workers = Inspector(store), Registry(store, ttl_seconds=60)
        hub = Hub(EventReader(probe))
        return cls(
            settings,
            client,
            inspector,
            workers,
            Janitor(
                store,
                every_seconds=settings.janitor_period,
                lease_seconds=settings.lease_seconds,
            ),
            probe,
            KeyRing(store, listed_keys(settings)),
            KeyStore(store),
            Audit(store),
            Polls(
                store,
                AsyncStore.from_url(settings.redis_url, store.keys, socket_timeout=SOCKET_SECONDS),
            ),
            Bulks(store),
            Payloads(store),
            hub,
            Metrics(registry, inspector, workers, store, hub),
        )


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def acting(
    request: Request, what: str, target: str, **parameters: Any
) -> AbstractAsyncContextManager[Note]:
    """Around what a route changes for an operator, for the audit trail: ``async with acting(request,
    "job.cancel", job_id):``."""
    return services(request).audit.acting(access_of(request).actor, what, target, **parameters)


def stopping(request: Request) -> asyncio.Event:
    """Set when the process is asked to stop: those who wait for something answer now."""
    event: asyncio.Event = request.app.state.stopping
    return event


async def disconnected(request: Request) -> None:
    """Returns when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_json(request: Request) -> Any:
    """The body as a value, exact and strict.

    Raises ``Refused`` ``invalid_json`` for what is no JSON at all, ``InvalidPayload`` for what readers
    would understand differently.
    """
    data = await _read(request)
    if not data:
        raise Refused(
            "invalid_json", "the body is empty: send a JSON object, `{}` for none of its fields"
        )
    try:
        return codec.loads(data, what="body", max_bytes=len(data))
    except InvalidPayload as error:
        # Of the refusals only these two are about the form and not about a value.
        if isinstance(error.__context__, (json.JSONDecodeError, UnicodeDecodeError)):
            raise Refused("invalid_json", str(error)) from None
        raise InvalidPayload(str(error)) from None


async def _read(request: Request) -> bytes:
    """The body. Once a request: a second time would wait until the client is gone. Raises
    ``ClientDisconnect``."""
    # starlette's own way costs more than to read what is in it.
    pieces: list[bytes] = []
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def known_parameters(request: Request) -> None:
    """Refuses a query parameter that the route does not have: a filter that is misspelt must not be a list of
    everything. Raises ``InvalidInput``."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            has = f"known are {', '.join(sorted(known))}" if known else "none is known here"
            raise InvalidInput(f"no query parameter {name[:100]!r}: {has}", field=name[:100])


def parse(model: type[BaseModel], value: Any) -> Any:
    """``value`` as ``model``. Raises ``Refused`` ``invalid``, which names the field."""
    if not isinstance(value, dict):
        raise Refused("invalid", "the body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid(error) from None


def hidden_holder(error: UniqueHeld, access: Access) -> Exception:
    """The same refusal without the holder's id, for a key that may not see jobs of every type."""
    if access.job_types is None:
        return error
    return Refused("unique_held", "a live job holds the unique key")


def job_place(job_id: str) -> tuple[str, str]:
    """(queue, ulid) of an id in a path. Raises ``JobNotFound`` also for what cannot be an id."""
    try:
        return split_id(job_id)
    except InvalidInput:
        raise JobNotFound(job_id[:100]) from None


def job_place_for(access: Access, job_id: str) -> tuple[str, str]:
    """(queue, ulid) of an id in a path, in a queue that this key may see. Raises ``JobNotFound``."""
    queue, ulid = job_place(job_id)
    if not access.can_see(queue):
        raise JobNotFound(join_id(queue, ulid))
    return queue, ulid


async def find_job(request: Request, job_id: str) -> Job:
    """The job of an id in a path, where it is there for this key. Raises ``JobNotFound``."""
    access = access_of(request)
    queue, ulid = job_place_for(access, job_id)
    job_id = join_id(queue, ulid)
    job = await services(request).inspector.job(job_id)
    access.check_job(queue, job.job_type, job_id)
    return job
