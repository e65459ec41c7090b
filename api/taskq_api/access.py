"""What a request may do and see: the one place that decides, asked by every route.

A route says in one line what it needs, below its path: ``@needs(Scope.READ)``, ``@needs()`` (any key) or
``@public``. One that says nothing is refused to everybody. Then it asks the request's ``Access``
(``access_of(request)``) what is there for this key::

    a queue by name               check_queue(queue)
    all of a queue                check_whole_queue(queue), check_part(queue, job_type)
    a job by its id               deps.find_job(request, job_id), which asks check_job
    a submission                  check_use(queue, job_type)
    a lease                       check_queue(queue), types(asked)
    a list or a stream            queues, job_types, can_see(queue, job_type) of each row
    workers, the installation     check_everything()
    an answer that takes long     services(request).ring.check_again(access), every few seconds
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from taskq.apikeys import ALL_SCOPES, ApiKey, Rate, Scope
from taskq.audit import Actor
from taskq.errors import JobNotFound, QueueNotFound
from taskq_api.errors import Refused

F = TypeVar("F", bound=Callable[..., Any])

ACCESS = "taskq.access"
"""Where a request's scope holds its ``Access``."""

BLIND = "taskq.blind"
"""Set in a request's scope where it was let in on what was known of keys before Redis went away."""
PUBLIC = "public"
ANY_KEY = "any"
_MARK = "taskq_scope"


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks, and what for. None for a list means all."""

    who: str
    """In the audit trail: ``key:<id>``, ``env:<n>`` or ``open``."""
    name: str = ""
    owner: str = ""
    """Keeps idempotency keys of different API keys apart."""
    scopes: frozenset[Scope] = ALL_SCOPES
    queues: frozenset[str] | None = None
    job_types: frozenset[str] | None = None
    rate: Rate | None = None

    @classmethod
    def of(cls, key: ApiKey) -> "Access":
        return cls(
            f"key:{key.id}", key.name, key.id, key.scopes, key.queues, key.job_types, key.rate
        )

    @property
    def is_stored(self) -> bool:
        """Its key was made by us: 192 random bits, which nobody guesses."""
        return self.who.startswith("key:")

    @property
    def actor(self) -> Actor:
        return Actor(self.who, self.name)

    @property
    def everything(self) -> bool:
        """Nothing is hidden: neither a queue nor a type."""
        return self.queues is None and self.job_types is None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    # --- whether something is there for this key ---

    def can_see(self, queue: str, job_type: str | None = None) -> bool:
        """Whether a queue, or a job of a type in it, is there for this key."""
        if self.queues is not None and queue not in self.queues:
            return False
        return job_type is None or self.job_types is None or job_type in self.job_types

    def can_see_type(self, job_type: str) -> bool:
        return self.job_types is None or job_type in self.job_types

    # --- the same as errors ---

    def check_queue(self, queue: str) -> None:
        """Raises ``QueueNotFound``, in the same words whether or not it exists."""
        if not self.can_see(queue):
            raise QueueNotFound(queue, "for this API key: it may use other queues only")

    def check_job(self, queue: str, job_type: str, job_id: str) -> None:
        """Raises ``JobNotFound``, as if there were none. A job whose type is no longer known ('') is
        not there for a key that is bound to types."""
        if not self.can_see(queue, job_type):
            raise JobNotFound(job_id)

    def check_use(self, queue: str, job_type: str) -> None:
        """For a submission. Raises ``QueueNotFound``, ``Refused`` ``forbidden_job_type``."""
        self.check_queue(queue)
        if not self.can_see_type(job_type):
            raise Refused(
                "forbidden_job_type",
                f"this API key may not use job type {job_type!r}",
                field="job_type",
            )

    def check_whole_queue(self, queue: str) -> None:
        """For what touches every job of a queue. Raises ``QueueNotFound``, ``Refused`` ``key_restricted``
        where the key is bound to types."""
        self.check_queue(queue)
        if self.job_types is not None:
            raise Refused(
                "key_restricted",
                "this acts on all jobs of the queue, and this API key may use some job types only",
            )

    def check_part(self, queue: str, job_type: str | None) -> None:
        """For what touches the jobs of one type in a queue, or all where none is named. Raises
        ``QueueNotFound``, ``Refused`` ``key_restricted`` or ``forbidden_job_type``."""
        if job_type:
            self.check_use(queue, job_type)
        else:
            self.check_whole_queue(queue)

    def check_everything(self) -> None:
        """For what concerns the whole installation. Raises ``Refused`` ``key_restricted`` where the key is
        bound to anything."""
        if not self.everything:
            raise Refused(
                "key_restricted",
                "this concerns all queues, and this API key may use some of them, or some job types, only",
            )

    def types(self, asked: Iterable[str] | None) -> list[str] | None:
        """The types to lease: those asked for, or all that the key may use; None for no bound at all.

        Raises ``Refused`` ``forbidden_job_type`` where another one is asked for.
        """
        if asked is None:
            return None if self.job_types is None else sorted(self.job_types)
        wanted = list(asked)
        for job_type in wanted:
            if not self.can_see_type(job_type):
                raise Refused(
                    "forbidden_job_type",
                    f"this API key may not use job type {job_type!r}",
                    field="job_types",
                )
        return wanted


OPEN = Access("open")
"""Of every request to an API without keys."""


def access_of(request: Request) -> Access:
    found: Access = request.scope[ACCESS]
    return found


def is_blind(request: Request) -> bool:
    """Whether the answer must hold nothing of what is stored."""
    return BLIND in request.scope


def needs(scope: Scope | None = None) -> Callable[[F], F]:
    """Declares what a route needs; without a scope any key will do."""

    def mark(endpoint: F) -> F:
        setattr(endpoint, _MARK, ANY_KEY if scope is None else scope)
        return endpoint

    return mark


def public(endpoint: F) -> F:
    """Declares a route that needs no key. Its path must be open at the door too (``auth.is_open``)."""
    setattr(endpoint, _MARK, PUBLIC)
    return endpoint


def needed(endpoint: Any) -> str | None:
    """What a route has declared; None for nothing."""
    found: str | None = getattr(endpoint, _MARK, None)
    return found


def allow(scope: Any, need: str | None) -> None:
    """Raises ``Refused`` where the request may not do what a route needs."""
    if need == PUBLIC:
        return
    access: Access | None = scope.get(ACCESS)
    if access is None or need is None:
        raise Refused("scope_missing", "this route is open to nobody: it declares no scope")
    if need != ANY_KEY and need not in access.scopes:
        has = ", ".join(sorted(access.scopes))
        raise Refused(
            "scope_missing", f"this needs the scope {need}; the API key has {has}", scope=str(need)
        )


async def check_scope(request: Request) -> None:
    """The dependency that every route of a router has."""
    allow(request.scope, needed(request.scope["endpoint"]))
