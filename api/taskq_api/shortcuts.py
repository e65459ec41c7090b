"""Most requests go past the layers, routing and dependencies of the framework, which cost more than answers.

What a route takes is read from its signature, as the framework reads it. Whatever does not fit (another
method, a path without a route, a query that is to be refused) is the framework's, which has the words for it.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from taskq_api.access import allow, needed
from taskq_api.deps import known_parameters


class Shortcuts:
    """ASGI: answers what the ``routes`` take that need nothing else; the rest is the application's. Errors
    are answered by the application's own handlers."""

    def __init__(self, app: ASGIApp, routes: Iterable[APIRoute]) -> None:
        self.app = app
        self._fixed: dict[tuple[str, str], _Direct] = {}
        self._templates: dict[tuple[str, int], list[_Direct]] = {}
        for route in routes:
            if (direct := _Direct.of(route)) is None:
                continue
            for method in route.methods or ():
                if "{" in route.path:
                    key = method, len(direct.segments)
                    self._templates.setdefault(key, []).append(direct)
                else:
                    self._fixed.setdefault((method, route.path), direct)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        route, endpoint, arguments = found
        scope["route"], scope["endpoint"] = route, endpoint
        request = Request(scope, receive, send)
        try:
            allow(scope, needed(endpoint))
            response = await endpoint(request, **arguments)
        except Exception as error:
            response = await _answer(request, error)
        await response(scope, receive, send)

    def find(
        self, scope: Scope
    ) -> tuple[APIRoute, Callable[..., Awaitable[Response]], dict[str, Any]] | None:
        """The route of a request, its endpoint, and what that is called with; None for the framework."""
        method, path = scope["method"], scope["path"]
        direct, parts = self._fixed.get((method, path)), ()
        if direct is None:
            parts = path.split("/")
            for direct in self._templates.get((method, len(parts)), ()):
                if direct.matches(parts):
                    break
            else:
                return None
        arguments = direct.query(scope["query_string"])
        if arguments is None:
            return None
        for at, name in direct.names:
            arguments[name] = parts[at]
        return direct.route, direct.endpoint, arguments


class _Direct:
    """A route whose endpoint takes its request, parts of its path and values of its query."""

    def __init__(
        self, route: APIRoute, model: type[BaseModel], lists: frozenset[str], strict: bool
    ) -> None:
        self.route = route
        self.endpoint: Callable[..., Awaitable[Response]] = route.endpoint
        self.segments = route.path.split("/")
        self.names = [(i, part[1:-1]) for i, part in enumerate(self.segments) if part[:1] == "{"]
        """Where its path has values, and what they are called."""
        self._words = [(i, part) for i, part in enumerate(self.segments) if part[:1] != "{"]
        self._model = model
        self._lists = lists
        self._strict = strict

    @classmethod
    def of(cls, route: APIRoute) -> "_Direct | None":
        """None for a route that needs the framework."""
        # One that refuses unknown parameters may have no other dependency.
        needs = {depends.dependency for depends in route.dependencies}
        hints = get_type_hints(route.endpoint, include_extras=True)
        parameters = inspect.signature(route.endpoint).parameters
        named = set(re.findall(r"{(\w+)}", route.path))
        whole = all(re.fullmatch(r"[^{}]*|{\w+}", part) for part in route.path.split("/"))
        if needs - {known_parameters} or not whole or "request" not in parameters:
            return None
        fields: dict[str, Any] = {}
        for name, parameter in parameters.items():
            hint, default = hints[name], parameter.default
            if get_origin(hint) is Annotated and _is_plain(hint.__metadata__[0]):
                fields[name] = (hint, ... if default is parameter.empty else default)
            elif hint is not (str if name in named else Request):
                return None
        lists = frozenset(name for name, (hint, _) in fields.items() if _takes_many(hint))
        return cls(route, create_model(route.name, **fields), lists, bool(needs))

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether a path of as many parts is one of the route's."""
        for at, word in self._words:
            if parts[at] != word:
                return False
        return all(parts[at] for at, _ in self.names)

    def query(self, text: bytes) -> dict[str, Any] | None:
        """What is asked for, with defaults; None where something does not fit."""
        given: dict[str, Any] = {}
        fields = self._model.model_fields
        if not (text or fields):
            return given
        for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
            if name in self._lists:
                given.setdefault(name, []).append(value)
            elif name in fields:
                given[name] = value
            elif self._strict:
                return None
        try:
            values = self._model.model_validate(given)
        except ValidationError:
            return None
        return {name: getattr(values, name) for name in fields}


def _is_plain(about: object) -> bool:
    """Whether this describes a parameter of the query that is called as it is in Python."""
    return isinstance(about, Query) and about.alias is None


def _takes_many(hint: Any) -> bool:
    """Whether a parameter may be repeated: ``list[str] | None``."""
    kind = get_args(hint)[0]
    return any(get_origin(part) is list for part in (kind, *get_args(kind)))


async def _answer(request: Request, error: Exception) -> Response:
    """By the handler of the error's class or of the nearest above it. Raises what has none."""
    app: Starlette = request.scope["app"]
    for kind in type(error).__mro__:
        if (handler := app.exception_handlers.get(kind)) is not None:
            answer: Response = await handler(request, error)
            return answer
    raise error
