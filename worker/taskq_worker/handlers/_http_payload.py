"""What a job of the type `http_call` carries."""

import json
import re
from typing import Annotated, Any, Self

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)

from taskq_worker.handlers._net import is_host

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# They frame the message or belong to the connection; a job that sets them could smuggle a request.
_OWN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def parse_url(text: str) -> httpx.URL:
    """`text` as an absolute http or https URL; raises ValueError that says what is wrong."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise ValueError("not a valid URL") from None
    if url.scheme not in {"http", "https"}:
        raise ValueError("only http and https URLs can be called")
    if not is_host(url.raw_host.decode("ascii")):
        raise ValueError("the URL has no valid host")
    if url.port is not None and not 0 < url.port < 65_536:
        raise ValueError("the port must be from 1 to 65535")
    return url


def _method(value: str) -> str:
    method = value.upper()
    if method not in METHODS:
        raise ValueError(f"must be one of {', '.join(METHODS)}")
    return method


def _url(value: str) -> str:
    parse_url(value)
    return value


def _headers(headers: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for position, (name, value) in enumerate(headers.items(), start=1):
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"the name of header {position} is not valid")
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"the header {name} cannot be set by a job")
        if name.lower() in seen:
            raise ValueError(f"the header {name} is given twice")
        if not _VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(f"the value of the header {name} is not valid")
        seen.add(name.lower())
    return headers


def _method_pattern() -> str:
    """Any case of each method, in the common subset of regular expressions."""
    spelled = ("".join(f"[{char}{char.lower()}]" for char in method) for method in METHODS)
    return f"^({'|'.join(spelled)})$"


class HttpCallPayload(BaseModel):
    """One HTTP request. `json` and `body` exclude each other; `timeout` is in seconds."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"not": {"required": ["json", "body"]}},
    )

    method: Annotated[
        str,
        AfterValidator(_method),
        WithJsonSchema({"type": "string", "pattern": _method_pattern()}),
    ] = "GET"
    url: Annotated[str, AfterValidator(_url)] = Field(repr=False)
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(
        default_factory=dict, repr=False
    )
    json_body: JsonValue = Field(default=None, alias="json", repr=False)
    body: str | None = Field(default=None, repr=False)
    timeout: float = Field(default=30, gt=0, strict=True, allow_inf_nan=False)
    follow_redirects: bool = Field(default=True, strict=True)
    expected_status: list[Annotated[int, Field(ge=100, le=599, strict=True)]] | None = Field(
        default=None, min_length=1
    )

    @model_validator(mode="after")
    def _one_encodable_body(self) -> Self:
        if {"json_body", "body"} <= self.model_fields_set:
            raise ValueError("json and body exclude each other")
        try:
            self.content()
        except (ValueError, RecursionError):
            raise ValueError("the body cannot be encoded") from None
        return self

    def content(self) -> tuple[bytes, str] | None:
        """The encoded body and its default Content-Type, or None if the request has no body."""
        if "json_body" in self.model_fields_set:
            value: Any = self.json_body
            encoded = json.dumps(value, separators=(",", ":"), allow_nan=False)
            return encoded.encode("ascii"), "application/json"
        if self.body is not None:
            return self.body.encode(), "text/plain; charset=utf-8"
        return None
