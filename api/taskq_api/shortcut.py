"""The busiest route goes past the routing and the dependencies of the framework, of which it uses nothing."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class Shortcut:
    """ASGI: answers one method and path by ``endpoint``; all else, and any other way to spell that path, is
    the application's. Errors are answered by the application's own handlers."""

    def __init__(self, app: ASGIApp, method: str, path: str, endpoint: Endpoint) -> None:
        self.app = app
        self._method = method
        self._path = path
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] != self._path
            or scope["method"] != self._method
        ):
            await self.app(scope, receive, send)
            return
        scope["endpoint"] = self._endpoint
        request = Request(scope, receive, send)
        try:
            response = await self._endpoint(request)
        except Exception as error:
            response = await _answer(request, error)
        await response(scope, receive, send)


async def _answer(request: Request, error: Exception) -> Response:
    """By the handler of the error's class or of the nearest above it. Raises what has none."""
    app: Starlette = request.scope["app"]
    for kind in type(error).__mro__:
        if (handler := app.exception_handlers.get(kind)) is not None:
            answer: Response = await handler(request, error)
            return answer
    raise error
