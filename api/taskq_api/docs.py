"""Pieces of the OpenAPI document that routes share."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from taskq_api.errors import CODES, PROBLEM
from taskq_api.schemas import Problem, reference

_EVERYWHERE = ("unauthorized", "forbidden_host", "forbidden_origin")
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
