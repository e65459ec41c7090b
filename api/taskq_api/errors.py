"""Errors as clients see them: one table from code to HTTP status, and problem+json (RFC 9457).

A 5xx answer never holds text from the inside; what happened is in the log.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskq.errors import (
    InvalidInput,
    OutOfMemory,
    StaleFence,
    TaskqError,
    Unavailable,
    UniqueHeld,
    WrongState,
)

logger = logging.getLogger("taskq.api")

CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is not JSON"),
    "unauthorized": (401, "A valid API key is needed"),
    "scope_missing": (403, "The API key may not do this"),
    "forbidden_job_type": (403, "The API key may not use this job type"),
    "key_restricted": (403, "The API key is bound to some queues or job types"),
    "forbidden_host": (403, "This Host is not served without API keys"),
    "forbidden_origin": (403, "Requests from this Origin are refused without API keys"),
    "not_found": (404, "Nothing is here"),
    "job_not_found": (404, "There is no such job"),
    "queue_not_found": (404, "There is no such queue"),
    "key_not_found": (404, "There is no such API key"),
    "lease_not_found": (404, "There is no such lease"),
    "worker_not_found": (404, "There is no such live worker"),
    "error_not_found": (404, "No failures of this kind are known"),
    "bulk_not_found": (404, "There is no such bulk action"),
    "method_not_allowed": (405, "This method is not allowed here"),
    "wrong_state": (409, "The job's state does not allow this"),
    "idempotency_conflict": (409, "The idempotency key was used with another body"),
    "unique_held": (409, "A live job holds the unique key"),
    "stale_fence": (409, "The run is over, or another's by now"),
    "lease_lost": (410, "The lease has run out or was handed back"),
    "result_expired": (410, "The result is no longer kept"),
    "payload_too_large": (413, "The body or payload is too large"),
    "unsupported_media_type": (415, "Bodies must be application/json"),
    "head_too_large": (431, "URL and headers are too large"),
    "invalid": (422, "A value was refused"),
    "invalid_payload": (
        422,
        "A payload is not JSON that all read alike, or does not fit its job type",
    ),
    "unknown_job_type": (422, "No worker has published this job type, and the queue is strict"),
    "queue_full": (429, "The queue is full"),
    "rate_limited": (429, "The API key has used up its rate"),
    "too_many_failures": (429, "Too many wrong API keys came from this address"),
    "http_error": (400, "The request was refused"),
    "internal": (500, "Something went wrong inside"),
    "taskq_error": (500, "Something went wrong inside"),
    "broken_key": (500, "Stored data is broken: an operator has to run `taskq doctor`"),
    "too_many_streams": (503, "There is no room for another stream"),
    "not_ready": (503, "Not ready to serve"),
    "durable_unsupported": (503, "The server cannot promise that a job is on disk"),
    "redis_unavailable": (503, "Redis cannot be used now"),
    "redis_out_of_memory": (503, "Redis is full and takes no new work"),
}
"""Every code that an answer may carry: its HTTP status and title."""

RETRY_AFTER = {
    "queue_full": "5",
    "too_many_streams": "5",
    "redis_unavailable": "2",
    "redis_out_of_memory": "10",
}
"""Seconds, for the codes that pass by themselves."""

PROBLEM = "application/problem+json"
SHOWN_ERRORS = 20
TOLD_ERRORS = 3
"""Of these in the sentence that sums them up."""
_PLAIN = {"extra_forbidden": "there is no such field", "missing": "is missing"}
"""What pydantic says of its own terms, in ours."""


class Refused(Exception):
    """A request that the API itself refuses, with a code of the table."""

    def __init__(self, code: str, detail: str, *, field: str | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.field = field
        self.more = more


def document(code: str, detail: str, *, field: str | None = None, **more: Any) -> dict[str, Any]:
    """The members of a problem."""
    status, title = CODES[code]
    out = {
        "type": f"urn:taskq:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        out["field"] = field
    return out | more


def problem(
    code: str,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem+json answer; 429 and 503 say when to come back, 401 what to come with."""
    all_headers = dict(headers or {})
    if code in RETRY_AFTER:
        all_headers.setdefault("Retry-After", RETRY_AFTER[code])
    if code == "unauthorized":
        all_headers["WWW-Authenticate"] = 'Bearer realm="taskq"'
    body = document_bytes(code, detail, field=field, **more)
    return Response(body, CODES[code][0], headers=all_headers, media_type=PROBLEM)


def document_bytes(code: str, detail: str, **more: Any) -> bytes:
    """The body of a problem."""
    return json.dumps(document(code, detail, **more)).encode()


def describe(error: TaskqError) -> dict[str, Any]:
    """The members of the problem that an error of the library stands for."""
    code = error.code if error.code in CODES else "taskq_error"
    more: dict[str, Any] = {}
    if isinstance(error, InvalidInput) and error.field is not None:
        more["field"] = error.field
    if isinstance(error, UniqueHeld):
        more["job_id"] = error.job_id
    if isinstance(error, (StaleFence, WrongState)) and error.state is not None:
        more["state"] = str(error.state)
    if isinstance(error, Unavailable):
        more["reason"] = error.reason
    return document(code, _detail(code, error), **more)


def answer(error: TaskqError) -> Response:
    """The answer that an error of the library stands for."""
    return problem(**_arguments(describe(error)))


def _detail(code: str, error: TaskqError) -> str:
    if isinstance(error, OutOfMemory):
        return "Redis is at maxmemory; nothing was stored. Try again later"
    if isinstance(error, Unavailable):
        return (
            f"Redis cannot be used now ({error.reason}). Try again; "
            "with an Idempotency-Key a repeat cannot make a second job"
        )
    if CODES[code][0] == 500:
        return f"{CODES[code][1]}; the server's log says more"
    return str(error)


class _Seldom:
    """Lets one message a second through, so that an outage does not fill the log."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < 1:
            return False
        self._last = now
        return True


class Teller:
    """Logs what is the server's fault and not the client's."""

    def __init__(self) -> None:
        self._seldom = _Seldom()

    def __call__(self, error: TaskqError) -> None:
        if isinstance(error, Unavailable):
            if self._seldom():
                logger.warning("%s", error)
        elif describe(error)["status"] >= 500:
            logger.error("%s: %s", type(error).__name__, error)


def install(app: FastAPI) -> None:
    """Answers every error of a route as a problem."""
    tell = Teller()

    async def taskq_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, TaskqError)
        tell(error)
        shown = describe(error)
        headers = {"Connection": "close"} if shown["status"] == 413 else {}
        return problem(**_arguments(shown), headers=headers)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return problem(error.code, str(error), field=error.field, **error.more)

    app.add_exception_handler(TaskqError, taskq_error)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)


def _arguments(shown: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in shown.items() if k not in ("type", "title", "status")}


async def _invalid_request(_: Request, error: Exception) -> Response:
    """A path or query parameter that FastAPI refused."""
    assert isinstance(error, RequestValidationError)
    detail, field, errors = _explain([(e["loc"][1:], e["msg"]) for e in error.errors()])
    return problem("invalid", detail, field=field, errors=errors)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem("not_found", "nothing is at this path; /openapi.json lists what there is")
    if error.status_code == 405:
        allow = f"{request.method} is not allowed here"
        return problem("method_not_allowed", allow, headers=error.headers)
    if error.status_code < 500:
        return problem("http_error", str(error.detail)[:200])
    return problem("internal", CODES["internal"][1])


def invalid(error: ValidationError) -> Refused:
    """What pydantic refused, as a refusal that names the field and holds no value."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    detail, field, errors = _explain([(e["loc"], _PLAIN.get(e["type"], e["msg"])) for e in found])
    return Refused("invalid", detail, field=field, errors=errors)


def _explain(found: list[tuple[Any, str]]) -> tuple[str, str | None, list[dict[str, str]]]:
    """(detail, field, errors) of validation errors; a name given by the client is cut short."""
    errors = [
        {
            "field": ".".join(str(part) for part in loc)[:100],
            "message": message.removeprefix("Value error, ")[:300],
        }
        for loc, message in found[:SHOWN_ERRORS]
    ]
    told = [": ".join(filter(None, error.values())) for error in errors[:TOLD_ERRORS]]
    return "; ".join(told), errors[0]["field"] or None, errors


class Shield:
    """ASGI: an exception that nobody foresaw becomes a 500 without internals, and a log entry."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        def noting(message: Message) -> Awaitable[None]:
            nonlocal started
            started = True
            return send(message)

        try:
            await self.app(scope, receive, noting)
        except ClientDisconnect:
            return  # nobody is there to be answered
        except asyncio.CancelledError:
            # Only a stop whose grace is over cancels a request.
            if started:
                raise
            await problem(
                "not_ready", "this process is stopping; try again", headers={"Retry-After": "1"}
            )(scope, receive, send)
        except Exception:
            # The path, not the query: it may hold anything.
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await problem("internal", CODES["internal"][1])(scope, receive, send)
