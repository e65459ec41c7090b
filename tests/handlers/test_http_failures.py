"""``http_call``: what went wrong, in plain words and without secrets."""

import asyncio
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from support.web import (
    OPEN,
    SECRET,
    Context,
    Request,
    Server,
    answer,
    call,
)
from taskq_worker.handlers import HttpStatusError, HttpTransportError, PayloadInvalid
from taskq_worker.handlers.http_call import HttpCallHandler

# --- http_call: failures in plain words ----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        ("400 Bad", False),
        ("404 Not Found", False),
        ("408 T", True),
        ("425 Early", True),
        ("429 Slow", True),
        ("500 Oops", True),
        ("503 Busy", True),
    ],
)
async def test_bad_status(web: Server, status: str, retryable: bool) -> None:
    web.replies["/"] = answer(b"the \x1b[31mreason" + b"." * 500, status)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    error = caught.value
    assert (error.code, error.retryable) == ("http_status", retryable)
    assert error.status == int(status[:3])
    assert f"answered {status}: the \\x1b[31mreason" in str(error)
    assert len(str(error)) < 300


async def test_expected_status(web: Server) -> None:
    web.replies |= {"/": answer(b"", "404 Not Found"), "/ok": answer()}
    assert (await call(url=web.url(), expected_status=[404, 410]))["status"] == 404
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url("/ok"), expected_status=[201])
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("value", "status", "low", "high"),
    [
        ("7", "429 Slow", 7, 7),
        ("999999999999999", "503 Busy", 3600, 3600),
        ("in 900 s", "503 Busy", 600, 900),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "429 Slow", 0, 0),
    ],
    ids=["seconds", "far too many", "a date", "a date that is past"],
)
async def test_retry_after(web: Server, value: str, status: str, low: int, high: int) -> None:
    if value == "in 900 s":
        value = format_datetime(datetime.now(UTC) + timedelta(seconds=900), True)
    web.replies["/"] = answer(b"", status, Retry_After=value)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    assert caught.value.retry_after_seconds is not None
    assert low <= caught.value.retry_after_seconds <= high


@pytest.mark.parametrize(
    ("value", "status"), [("soon", "429 Slow"), ("-1", "503 B"), ("5", "500 X")]
)
async def test_no_retry_after(web: Server, value: str, status: str) -> None:
    web.replies["/"] = answer(b"", status, Retry_After=value)
    with pytest.raises(HttpStatusError) as caught:
        await call(url=web.url())
    assert caught.value.retry_after_seconds is None


async def test_messages_and_logs_keep_secrets(
    web: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """F86: credentials in the URL and in headers are in no message and no log."""

    async def echo(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        shown = json.dumps(request.headers).encode()
        writer.write(answer(shown + request.target.encode(), "403 Forbidden"))
        await writer.drain()

    caplog.set_level(logging.INFO)
    web.replies["/"] = echo
    handler, context = HttpCallHandler(OPEN), Context()
    for url, headers in [
        (f"http://me:{SECRET}@127.0.0.1:{web.port}/", {"X-Other": f"v-{SECRET}"}),
        (web.url(), {"Authorization": f"Bearer {SECRET}"}),
    ]:
        payload = handler.parse({"url": url, "headers": headers})
        with pytest.raises(HttpStatusError) as caught:
            await handler.run(payload, context)
        told = f"{caught.value} {payload!r} {context.lines} {caplog.text}"
        assert SECRET not in told
        assert web.requests[-1].headers["authorization"].split()[1] not in told
    assert context.lines == [f"GET {web.url()}: 403"] * 2


async def test_name_that_does_not_resolve() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(HttpTransportError) as caught:
        await call(HttpCallHandler(resolver=unknown), url=f"http://a:{SECRET}@no.test/")
    assert str(caught.value) == "could not resolve no.test: Name or service not known"
    assert (caught.value.code, caught.value.retryable) == ("dns_failed", True)


async def test_connection_refused(web: Server) -> None:
    await web.stop()
    with pytest.raises(HttpTransportError, match=r"could not connect to 127\.0\.0\.1") as caught:
        await call(url=web.url())
    assert caught.value.code == "connect_failed"
    assert "refused" in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (b"", "protocol_error"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"h" * 300_000, "protocol_error"),
    ],
)
async def test_servers_that_talk_nonsense(web: Server, reply: bytes, code: str) -> None:
    web.replies["/"] = reply
    with pytest.raises(HttpTransportError) as caught:
        await call(url=web.url())
    assert caught.value.code == code


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"url": "/relative"},
        {"url": "ftp://example.com/"},
        {"url": "file:///etc/passwd"},
        {"url": "gopher://127.0.0.1:6379/_x"},
        {"url": "http://"},
        {"url": "http://a b/"},
        {"url": "http://x:0/"},
        {"url": "http://x:99999/"},
        {"url": "http://[fe80::1%25eth0]/"},
        {"url": "http://%31%32%37.0.0.1/"},
        {"url": "http://x/\r\nHost: y"},
        {"url": "http://①②⑦.0.0.1/"},
        {"url": "http://" + "a" * 64 + ".com/"},
        {"url": "http://x/", "method": "TRACE"},
        {"url": "http://x/", "extra": 1},
        {"url": "http://x/", "json": 1, "body": "x"},
        {"url": "http://x/", "json": float("nan")},
        {"url": "http://x/", "body": "\ud800"},
        {"url": "http://x/", "timeout": 0},
        {"url": "http://x/", "timeout": True},
        {"url": "http://x/", "timeout": "5"},
        {"url": "http://x/", "timeout": float("inf")},
        {"url": "http://x/", "expected_status": []},
        {"url": "http://x/", "expected_status": [20]},
        {"url": "http://x/", "headers": {"X": f"{SECRET}\r\nY: 1"}},
        {"url": "http://x/", "headers": {"X": f"{SECRET}☃"}},
        {"url": "http://x/", "headers": {"bad name": SECRET}},
        {"url": "http://x/", "headers": {"Host": SECRET}},
        {"url": "http://x/", "headers": {"Transfer-Encoding": "chunked"}},
        {"url": "http://x/", "headers": {"Content-Length": "1"}},
        {"url": "http://x/", "headers": {"a": SECRET, "A": SECRET}},
        {"url": f"http://u:{SECRET}@x:99999/", "headers": 5},
    ],
)
def test_http_payload_is_checked(payload: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        HttpCallHandler.parse(payload)
    assert not caught.value.retryable
    assert SECRET not in str(caught.value)


def test_payload_schema_can_be_published() -> None:
    schema = HttpCallHandler.payload_model.model_json_schema()
    assert {"json", "body", "url"} <= schema["properties"].keys()
    assert schema["additionalProperties"] is False
