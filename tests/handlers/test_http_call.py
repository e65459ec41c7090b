"""``http_call``: what it sends, keeps and follows, and that no server can make it hang."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from support.web import (
    OPEN,
    SECRET,
    Request,
    Server,
    answer,
    call,
    drip,
    endless,
    redirect,
)
from taskq_worker.handlers import (
    HandlerSettings,
    HttpTransportError,
    PayloadInvalid,
    RedirectRefused,
    TargetRefused,
)
from taskq_worker.handlers.http_call import HttpCallHandler

# --- http_call: what it does ---------------------------------------------------------------------


async def test_get(web: Server) -> None:
    web.replies["/a"] = answer("grüß".encode(), "200 Fine", X_One="1")
    result = await call(url=web.url("/a?q=1"), headers={"X-Mine": "me"})
    assert result.pop("elapsed_ms") >= 0
    assert result == {
        "status": 200,
        "reason": "Fine",
        "headers": {"content-length": "6", "x-one": "1"},
        "body": "grüß",
        "truncated": False,
        "url": web.url("/a?q=1"),
        "redirects": 0,
    }
    [request] = web.requests
    assert (request.method, request.target) == ("GET", "/a?q=1")
    assert request.headers["host"] == f"127.0.0.1:{web.port}"
    assert request.headers["x-mine"] == "me"


@pytest.mark.parametrize("method", ["get", "Post", "PUT", "patch", "DELETE", "OPTIONS"])
async def test_methods_in_any_case(web: Server, method: str) -> None:
    web.replies["/"] = answer(b"ok")
    await call(url=web.url(), method=method)
    assert web.requests[0].method == method.upper()


async def test_head_has_no_body(web: Server) -> None:
    web.replies["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: gzip\r\n\r\n"
    result = await call(url=web.url(), method="HEAD")
    assert (result["body"], result["truncated"]) == ("", False)
    assert result["headers"]["content-length"] == "5000"


@pytest.mark.parametrize(
    ("extra", "sent", "content_type"),
    [
        ({"json": {"n": 2**70, "s": "é\ud800"}}, None, "application/json"),
        ({"json": None}, b"null", "application/json"),
        ({"body": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"body": "a=1", "headers": {"content-type": "a/b"}}, b"a=1", "a/b"),
        ({}, b"", None),
    ],
)
async def test_bodies(
    web: Server, extra: dict[str, Any], sent: bytes | None, content_type: str | None
) -> None:
    web.replies["/"] = answer()
    await call(url=web.url(), method="POST", **extra)
    [request] = web.requests
    if sent is None:
        assert json.loads(request.body) == extra["json"]
    else:
        assert request.body == sent
    assert request.headers.get("content-type") == content_type


async def test_userinfo_becomes_basic_auth_and_is_not_shown(web: Server) -> None:
    web.replies["/"] = answer()
    result = await call(url=f"http://me:{SECRET}@127.0.0.1:{web.port}/")
    assert web.requests[0].headers["authorization"].startswith("Basic ")
    assert result["url"] == web.url()


async def test_charset_and_broken_text(web: Server) -> None:
    web.replies["/latin"] = answer(b"\xe9", Content_Type="text/plain; charset=ISO-8859-1")
    web.replies["/odd"] = answer(b"ab\xff", Content_Type="text/plain; charset=zip")
    assert (await call(url=web.url("/latin")))["body"] == "é"
    assert (await call(url=web.url("/odd")))["body"] == "ab\ufffd"


async def test_response_headers_are_capped(web: Server) -> None:
    many = {f"X{n}": "v" * 600 for n in range(80)} | {"A": "w" * 5000}
    web.replies["/"] = answer(b"", "200 OK", **dict(reversed(many.items())))
    headers = (await call(url=web.url()))["headers"]
    assert len(headers) == 64
    assert len(headers["a"]) == 1024


async def test_environment_is_not_trusted(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.replies["/"] = answer(b"direct")
    assert (await call(url=web.url()))["body"] == "direct"


# --- http_call: limits ---------------------------------------------------------------------------


async def test_endless_body_is_cut(web: Server) -> None:
    """F84: a body without end is cut."""
    web.replies["/"] = endless
    result = await call(url=web.url())
    assert result["truncated"] is True
    assert result["body"] == "y" * 65_536
    await asyncio.wait_for(web.client_gone.wait(), 5)


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True)])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_cap_is_exact(web: Server, size: int, truncated: bool, packed: bool) -> None:
    body = b"z" * size
    web.replies["/"] = (
        answer(gzip.compress(body), Content_Encoding="gzip") if packed else answer(body)
    )
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_body_bytes=100))
    result = await call(handler, url=web.url())
    assert (len(result["body"]), result["truncated"]) == (min(size, 100), truncated)


async def test_cut_inside_a_character_leaves_no_replacement(web: Server) -> None:
    web.replies["/"] = answer("aé".encode())
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_body_bytes=2))
    assert (await call(handler, url=web.url()))["body"] == "a"


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    piece = bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])


async def test_gzip_bomb_costs_what_is_kept(web: Server) -> None:
    web.replies["/"] = answer(bomb(64 << 20), Content_Encoding="gzip")
    result = await call(url=web.url())
    assert result["truncated"] is True
    assert result["body"] == "\0" * 65_536


async def test_inflate_never_makes_more_than_asked() -> None:
    from taskq_worker.handlers._body import _Inflate

    assert len(_Inflate("gzip").feed(bomb(16 << 20), 1000)) == 1000


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0"),
        ("deflate", zlib.compress(b"one two")),
        ("deflate", zlib.compress(b"one two")[2:-4]),
    ],
    ids=["gzip", "deflate", "raw deflate"],
)
async def test_compressed_bodies(web: Server, encoding: str, packed: bytes) -> None:
    web.replies["/"] = answer(packed, Content_Encoding=encoding)
    assert (await call(url=web.url()))["body"] == "one two"


@pytest.mark.parametrize(
    "packed",
    [b"not gzip at all", gzip.compress(b"x" * 500)[:20]],
    ids=["something else", "cut short"],
)
async def test_damaged_compression_is_an_error(web: Server, packed: bytes) -> None:
    web.replies["/"] = answer(packed, Content_Encoding="gzip")
    with pytest.raises(HttpTransportError) as caught:
        await call(url=web.url())
    assert caught.value.code == "protocol_error"


async def test_slow_drip_ends_at_the_deadline(web: Server) -> None:
    """F84: a body that trickles ends in time."""
    web.replies["/"] = drip
    with pytest.raises(HttpTransportError, match=r"within 0\.2 seconds") as caught:
        await call(url=web.url(), timeout=0.2)
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)
    await asyncio.wait_for(web.client_gone.wait(), 5)


async def test_the_deadline_spans_redirects(web: Server) -> None:
    web.replies["/"] = redirect("/slow")
    web.replies["/slow"] = drip
    with pytest.raises(HttpTransportError, match="GET http"):
        await call(url=web.url(), timeout=0.2)


async def test_a_resolver_that_hangs_ends_at_the_deadline() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(HttpTransportError) as caught:
        await call(HttpCallHandler(OPEN, resolver=never), url="http://slow.test/", timeout=0.05)
    assert caught.value.code == "timeout"


async def test_cancellation_passes_through(web: Server) -> None:
    web.replies["/"] = drip
    task = asyncio.ensure_future(call(url=web.url()))
    while not web.requests:
        await asyncio.wait([task], timeout=0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(web.client_gone.wait(), 5)


async def test_timeout_above_the_workers_limit_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match="at most 300"):
        await call(url="http://127.0.0.1/", timeout=301)


# --- http_call: redirects ------------------------------------------------------------------------


async def test_redirects_are_followed_and_their_bodies_not_read(web: Server) -> None:
    async def heavy(web: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /b?x=1\r\nContent-Length: 99999999\r\n\r\n")
        await writer.drain()
        await web.client_gone.wait()

    web.replies |= {"/a": heavy, "/b": answer(b"end")}
    result = await call(url=web.url("/a"))
    assert (result["body"], result["redirects"]) == ("end", 1)
    assert result["url"] == web.url("/b?x=1")


async def test_redirects_not_followed_on_request(web: Server) -> None:
    web.replies["/"] = redirect("/b")
    result = await call(url=web.url(), follow_redirects=False)
    assert (result["status"], result["headers"]["location"]) == (302, "/b")


@pytest.mark.parametrize(("limit", "fine"), [(3, True), (2, False), (0, False)])
async def test_redirect_limit(web: Server, limit: int, fine: bool) -> None:
    web.replies |= {"/": redirect("/1"), "/1": redirect("/2"), "/2": redirect("/3")}
    web.replies["/3"] = answer(b"end")
    handler = HttpCallHandler(HandlerSettings(http_allow_private=True, http_max_redirects=limit))
    if fine:
        assert (await call(handler, url=web.url()))["redirects"] == 3
        return
    with pytest.raises(RedirectRefused) as caught:
        await call(handler, url=web.url())
    assert not caught.value.retryable
    assert len(web.requests) == limit + 1


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        ("301 Moved", "POST", "GET", False),
        ("302 Found", "POST", "GET", False),
        ("302 Found", "PUT", "PUT", True),
        ("303 See Other", "PUT", "GET", False),
        ("303 See Other", "HEAD", "HEAD", True),
        ("307 Temporary", "POST", "POST", True),
        ("308 Permanent", "POST", "POST", True),
    ],
)
async def test_methods_across_redirects(
    web: Server, status: str, method: str, then: str, keeps_body: bool
) -> None:
    web.replies |= {"/": redirect("/b", status), "/b": answer()}
    await call(url=web.url(), method=method, body="text", headers={"X-Keep": "1"})
    second = web.requests[1]
    assert second.method == then
    assert second.body == (b"text" if keeps_body else b"")
    assert ("content-type" in second.headers) is keeps_body
    assert second.headers["x-keep"] == "1"


CREDENTIALS = {"Authorization": "Bearer t", "cookie": "a=b", "X-Api-Key": "k", "X-Plain": "p"}


async def test_same_origin_redirect_keeps_credentials(web: Server) -> None:
    web.replies |= {"/": redirect("/b"), "/b": answer()}
    await call(url=web.url(), headers=CREDENTIALS)
    assert web.requests[1].headers["authorization"] == "Bearer t"


async def test_cross_origin_redirect_drops_credentials(web: Server) -> None:
    web.replies |= {"/": redirect(web.url("/b", host="u:pw@localhost")), "/b": answer()}
    result = await call(url=web.url(), headers=CREDENTIALS)
    second = web.requests[1].headers
    assert second["host"] == f"localhost:{web.port}"
    assert not {"authorization", "cookie", "x-api-key"} & second.keys()
    assert second["x-plain"] == "p"
    assert result["url"] == web.url("/b", host="localhost")


@pytest.mark.parametrize("location", ["ftp://example.com/", "file:///etc/passwd", "gopher://x:1/"])
async def test_redirect_to_another_scheme_is_refused(web: Server, location: str) -> None:
    """F84: a redirect to file: or gopher: is not followed."""
    web.replies["/"] = redirect(location)
    with pytest.raises(TargetRefused):
        await call(url=web.url())


@pytest.mark.parametrize("location", ["http://", "http://x:99999/", "http://[::1/"])
async def test_redirect_to_no_url_is_an_error(web: Server, location: str) -> None:
    web.replies["/"] = redirect(location)
    with pytest.raises(RedirectRefused):
        await call(url=web.url())
