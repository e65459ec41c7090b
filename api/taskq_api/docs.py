"""Pieces of the OpenAPI document that routes share."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel

from taskq.apikeys import Scope
from taskq_api.access import ANY_KEY, PUBLIC, needed
from taskq_api.errors import CODES, PROBLEM
from taskq_api.schemas import Problem, reference
from taskq_api.schemas.fields import KEY, NAME, QUEUE

_EVERYWHERE = (
    "unauthorized",
    "scope_missing",
    "forbidden_job_type",
    "key_restricted",
    "forbidden_host",
    "forbidden_origin",
    "rate_limited",
    "too_many_failures",
)
REDIS = ("redis_unavailable", "broken_key")
BODY = ("invalid_json", "invalid", "invalid_payload", "payload_too_large", "unsupported_media_type")


def answers(
    good: Mapping[int, type[BaseModel] | None],
    *codes: str,
    headers: dict[int, dict[str, Any]] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route: what it answers with, and the codes of its problems."""
    out: dict[int | str, dict[str, Any]] = {}
    for status, model in good.items():
        if model is None:
            out[status] = {"description": "Done; there is nothing to say."}
            continue
        out[status] = {
            "description": (model.__doc__ or "").strip(),
            "content": {"application/json": reference(model)},
        }
        if headers and status in headers:
            out[status]["headers"] = headers[status]
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys((*codes, *_EVERYWHERE)):
        by_status[CODES[code][0]].append(code)
    for status, its_codes in sorted(by_status.items()):
        out[status] = {
            "description": "; ".join(f"`{code}`: {CODES[code][1]}" for code in its_codes),
            "content": {PROBLEM: reference(Problem)},
        }
    return out


def body(model: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra=`` of a route that reads its body by itself."""
    return {"requestBody": {"required": True, "content": {"application/json": reference(model)}}}


def show_scopes(document: dict[str, Any], routers: Iterable[APIRouter]) -> None:
    """Says of each operation which scope its key needs; ``{}`` among them: none while there are no keys."""
    document["components"]["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key. Scopes: "
            + ", ".join(f"`{scope}`" for scope in Scope)
            + ". Without any key made or set, the API is open to its own machine and asks for none.",
        }
    }
    for route in api_routes(routers):
        need = needed(route.endpoint)
        for method in route.methods or ():
            operation = document["paths"].get(route.path_format, {}).get(method.lower())
            if operation is None:
                continue
            if need == PUBLIC:
                operation["security"] = []
                continue
            scopes = [] if need in (None, ANY_KEY) else [str(need)]
            operation["security"] = [{}, {"key": scopes}]
            told = f"`{scopes[0]}`" if scopes else "any key"
            operation["description"] += f"\n\nScope: {told}."


def api_routes(routers: Iterable[APIRouter]) -> list[APIRoute]:
    """Every route of these, without what a router holds besides."""
    every = (route for router in routers for route in router.routes)
    return [route for route in every if isinstance(route, APIRoute)]


_PATTERNS = {"queue": QUEUE, "job_type": NAME, "Idempotency-Key": KEY}


def describe_names(document: dict[str, Any]) -> None:
    """Tells how names and keys are formed in every parameter that is one; the routes check them."""
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if pattern := _PATTERNS.get(parameter["name"]):
                    _form(parameter["schema"], pattern)


def _form(schema: dict[str, Any], pattern: str) -> None:
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") == "string":
            part["pattern"] = pattern
        elif "items" in part:
            _form(part["items"], pattern)
