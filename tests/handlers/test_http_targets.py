"""``http_call`` reaches nothing inside the network, however it is spelt, resolved or redirected."""

import ssl
from collections.abc import Sequence

import pytest
import trustme

from support.web import PUBLIC, SECRET, Dialler, Names, Server, answer, call, redirect
from taskq_worker.handlers import HttpTransportError, TargetRefused
from taskq_worker.handlers._net import refusal
from taskq_worker.handlers.http_call import HttpCallHandler

# --- http_call: targets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:6379/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::a00:1]/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://127。0。0。1/",
        "http://localhost/",
        "http://LOCALHOST.:6379",
        "http://a.localhost/",
        f"http://example.com:{SECRET}@127.0.0.1/",
        "http://example.com%2F@10.0.0.1/",
        "https://192.168.1.1/",
    ],
)
async def test_odd_spellings_of_inner_targets_are_refused(url: str) -> None:
    """F84: whatever an address is written like."""

    async def no_dns(host: str, port: int) -> Sequence[str]:
        raise AssertionError(f"{host} needs no resolver")

    dialler = Dialler()
    with pytest.raises(TargetRefused) as caught:
        await call(HttpCallHandler(resolver=no_dns, dialler=dialler), url=url)
    assert not caught.value.retryable
    assert SECRET not in str(caught.value)
    assert dialler.dialled == []


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.31.0.1",
        "192.168.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.88.99.1",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fe80::1%lo",
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2001:0:4136::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "3fff::1",
        "100::1",
        "5f00::1",
        "4000::1",
    ],
)
def test_refused_addresses(address: str) -> None:
    """F84: what is not public."""
    assert refusal(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.32.0.1",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2606:4700::1111",
        "2a00:1450::1",
        "2001:4860:4860::8888",
    ],
)
def test_public_addresses(address: str) -> None:
    assert refusal(address) is None


async def test_one_inner_address_among_public_ones_refuses_all() -> None:
    names, dialler = Names(mixed_test=[[PUBLIC, "10.0.0.5"]]), Dialler()
    with pytest.raises(TargetRefused, match=r"mixed\.test"):
        await call(HttpCallHandler(resolver=names, dialler=dialler), url="http://mixed.test/")
    assert dialler.dialled == []


async def test_dns_that_flips_cannot_reach_inside(web: Server) -> None:
    """F84: the address that was checked is the one that is called, at each attempt."""
    names, dialler = Names(flip_test=[[PUBLIC], ["127.0.0.1"]]), Dialler()
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    web.replies["/"] = answer(b"public")
    url = web.url(host="flip.test")
    assert (await call(handler, url=url))["body"] == "public"
    assert names.asked == ["flip.test"]
    assert dialler.dialled == [PUBLIC]
    assert web.requests[0].headers["host"] == f"flip.test:{web.port}"
    with pytest.raises(TargetRefused):  # the second attempt is checked as the first was
        await call(handler, url=url)
    assert dialler.dialled == [PUBLIC]


async def test_dns_that_flips_between_redirects(web: Server) -> None:
    names, dialler = Names(flip_test=[[PUBLIC], ["127.0.0.1"]]), Dialler()
    web.replies |= {"/": redirect("/again"), "/again": answer(b"inside")}
    with pytest.raises(TargetRefused):
        await call(HttpCallHandler(resolver=names, dialler=dialler), url=web.url(host="flip.test"))
    assert dialler.dialled == [PUBLIC]


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/", "http://inside.test/", "//127.0.0.1:1/", "http://0x7f.1"],
)
async def test_redirect_to_an_inner_target_is_refused(web: Server, location: str) -> None:
    """F84: each redirect is checked as the first address was."""
    names, dialler = Names(out_test=[[PUBLIC]], inside_test=[["10.9.8.7"]]), Dialler()
    web.replies["/"] = redirect(location)
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    with pytest.raises(TargetRefused):
        await call(handler, url=web.url(host="out.test"))
    assert dialler.dialled == [PUBLIC]


async def test_the_next_address_is_tried(web: Server) -> None:
    names = Names(two_test=[["2606:4700::1", PUBLIC]])
    dialler = Dialler(dead=["2606:4700::1"])
    web.replies["/"] = answer(b"ok")
    handler = HttpCallHandler(resolver=names, dialler=dialler)
    assert (await call(handler, url=web.url(host="two.test")))["body"] == "ok"
    assert dialler.dialled == ["2606:4700::1", PUBLIC]


async def test_allowed_inner_targets(web: Server) -> None:
    web.replies["/"] = answer(b"ok")
    for host in ("localhost.", "2130706433", "[::ffff:127.0.0.1]"):
        assert (await call(url=web.url(host=host)))["body"] == "ok"


@pytest.fixture
def certificate() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server that is `pinned.test` and of a client that trusts it."""
    authority = trustme.CA()
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("pinned.test").configure_cert(theirs)
    authority.configure_trust(ours)
    return theirs, ours


async def test_tls_is_verified_for_the_name_on_the_pinned_address(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    theirs, ours = certificate
    asked_for: list[str | None] = []
    theirs.sni_callback = lambda _sock, name, _context: asked_for.append(name)
    web = Server()
    await web.start(theirs)
    web.replies["/"] = answer(b"secure")
    names, dialler = Names(pinned_test=[[PUBLIC]], other_test=[[PUBLIC]]), Dialler()
    names.answers["pinned.test."] = [[PUBLIC]]
    handler = HttpCallHandler(resolver=names, dialler=dialler, ssl_context=ours)
    try:
        for host in ("pinned.test", "pinned.test."):
            result = await call(handler, url=web.url(host=host, scheme="https"))
            assert result["body"] == "secure"
        assert asked_for == ["pinned.test", "pinned.test"]
        with pytest.raises(HttpTransportError, match=r"[Hh]ostname mismatch") as caught:
            await call(handler, url=web.url(host="other.test", scheme="https"))
        assert caught.value.code == "tls_failed"
    finally:
        await web.stop()
