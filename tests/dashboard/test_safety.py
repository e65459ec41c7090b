"""What jobs say is text wherever it is shown, and a key stays where it belongs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from support import browser
from support.browser import Shop
from support.shopapp import HOSTILE

KEY = "a-secret-key-of-the-shop"
MARK = "onerror="
PLACES = """() => [window.pwned === undefined, document.querySelectorAll("img").length,
  document.querySelectorAll("main svg[onload], main script, main b > b").length]"""


def harmless(page: Any) -> None:
    assert page.evaluate(PLACES) == [True, 0, 0]


CHANGING = (
    "Retry", "Cancel", "Delete", "Submit", "Pause", "Resume", "Purge", "Change", "All that match",
    "Actions for",
)  # fmt: skip


def test_hostile_text_is_text_in_every_place(visit: Any, shop: Shop) -> None:
    text = HOSTILE.replace("\u0000", "")
    hostile = {"text": "fail", "more": {text[:80]: text, "list": [text]}}
    failed = shop.submit(
        "mean", {"text": "fail"}, queue="nasty", unique_key="<img src=x onerror=1>"
    )
    odd = shop.submit("mean", hostile, queue="nasty")
    good = shop.submit("mean", {"text": text}, queue="nasty", keep_payload=True)
    for job, state in ((failed, "failed"), (odd, "failed"), (good, "succeeded")):
        shop.wait(job, state)

    page = visit(f"/ui/jobs/{failed}")
    expect(page.locator(".notice")).to_contain_text(MARK)
    expect(page.locator(".timeline")).to_contain_text(MARK)
    expect(page.get_by_role("region", name="Traceback")).to_contain_text(MARK)
    harmless(page)
    for job, tab, region in (
        (failed, "log", "Log"), (odd, "payload", "Payload"), (good, "result", "Result"),
        (good, "payload", "Payload"),
    ):  # fmt: skip
        page.goto(f"{shop.url}/ui/jobs/{job}?tab={tab}")
        expect(page.get_by_role("region", name=region)).to_contain_text(MARK)
        harmless(page)
    for path in ("/", "/ui/errors", "/ui/errors?queue=nasty"):
        page.goto(shop.url + path)
        expect(page.locator("main")).to_contain_text("<b>Bad</b>")
        harmless(page)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/jobs?queue=<img src=x onerror=window.pwned=1>",
        '/ui/jobs?state=<script>&job_type="><svg onload=window.pwned=1>',
        "/ui/jobs/<img src=x onerror=window.pwned=1>",
        "/ui/queues/<img src=x onerror=window.pwned=1>",
        "/ui/types/<img src=x onerror=window.pwned=1>",
        "/ui/errors/<img src=x>?queue=<img src=x onerror=window.pwned=1>",
        "/ui/<img src=x onerror=window.pwned=1>",
        "/ui/workers?q=<img src=x onerror=window.pwned=1>",
    ],
)
def test_a_hostile_address_is_text(visit: Any, path: str) -> None:
    page = visit(path)
    page.watch.expected = ("404", "422")
    expect(page.locator("main")).not_to_be_empty()
    harmless(page)


def test_a_key_is_asked_for_kept_for_the_tab_and_in_no_address(open_page: Any, shop: Shop) -> None:
    url = shop.start_api(TASKQ_API_KEYS=KEY)
    page = open_page(url, "/ui/jobs?state=failed")
    page.watch.expected = ("401", "429")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    expect(page.get_by_text("This API wants a key.")).to_be_visible()
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_label("Key", exact=True).fill("another")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_text("This API wants a key.")).to_be_hidden()
    page.reload()
    expect(
        page.get_by_role("table", name="Jobs").or_(page.get_by_text("No job fits"))
    ).to_be_visible()
    for request in asked:
        assert KEY not in request.url
        assert KEY not in (request.post_data or "")
    assert page.evaluate("[document.cookie, JSON.stringify(localStorage)].join()").find(KEY) < 0
    assert KEY in page.evaluate("JSON.stringify(sessionStorage)")
    # Another tab begins without it.
    other = open_page(url, "/")
    other.watch.expected = ("401", "429")
    expect(other.get_by_text("This API wants a key.")).to_be_visible()


def test_with_a_key_that_only_reads_nothing_offers_to_change_anything(
    open_page: Any, tmp_path: Path
) -> None:
    with browser.opened(tmp_path) as shop:
        url = shop.start_api()
        shop.start_worker()
        failed = shop.submit("divide", {"by": 0}, queue="paged")
        shop.wait(failed, "failed")
        (error,) = shop.get("/errors")["errors"]
        made = shop.post("/keys", {"name": "night watch", "scopes": ["read", "payload"]})
        page = open_page(url, "/")
        page.watch.expected = ("401",)
        page.get_by_role("button", name="Enter a key").click()
        page.get_by_label("Key", exact=True).fill(made["token"])
        page.get_by_role("button", name="Use this key").click()
        expect(
            page.get_by_role("note", name="The key night watch may: payload, read")
        ).to_be_visible()
        for name in ("Keys", "Audit"):
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        for path, seen in (
            ("jobs", page.get_by_role("table", name="Jobs")),
            (f"jobs/{failed}", page.get_by_text("ZeroDivisionError").first),
            ("queues/paged", page.get_by_role("heading", name="paged")),
            (f"errors/{error['fingerprint']}", page.get_by_role("table", name="Jobs")),
            ("workers", page.get_by_role("heading", name="Workers")),
            ("types/divide", page.get_by_text("This key may not submit jobs")),
        ):
            page.goto(f"{url}/ui/{path}")
            expect(seen).to_be_visible()
            expect(page.get_by_role("note", name="night watch")).to_be_visible()
            for name in CHANGING:
                button = page.get_by_role("button", name=re.compile(rf"^{name}\b"))
                expect(button, f"{name} on {path}").to_have_count(0)
            expect(page.locator("main input[type=checkbox]")).to_have_count(0)


def test_an_answer_that_is_no_json_is_told(visit: Any, shop: Shop) -> None:
    page = visit("/ui/workers")
    page.watch.expected = ("502",)
    workers = f"{shop.url}/workers"
    page.route(workers, lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page.reload()
    expect(page.get_by_text("The API answered 502")).to_be_visible()
    page.unroute(workers)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()


def test_an_api_that_is_away_is_told_and_found_again(visit: Any, shop: Shop) -> None:
    page = visit("/")
    page.watch.expected = ("ERR_FAILED", "Failed to load")
    expect(page.locator(".tiles")).to_be_visible()
    queues = f"{shop.url}/queues"
    page.route(queues, lambda route: route.abort())
    expect(page.get_by_text("The API does not answer").first).to_be_visible()
    # What was known is still shown.
    expect(page.locator(".tiles")).to_be_visible()
    page.unroute(queues)
    expect(page.get_by_text("The API does not answer")).to_have_count(0, timeout=60_000)


def test_payloads_are_never_parsed_on_the_way(visit: Any, shop: Shop) -> None:
    text = '{"name":"x","big":[12345678901234567890,1.10,-0.0,1e400],"10":1,"2":2}'
    page = visit("/")
    stored = shop.get(f"/jobs/{shop.submit('greet', {'name': 'x'}, queue='attic', delay=3600)}")
    del stored["payload"]
    answer = json.dumps({**stored, "state": "failed"})[:-1] + f',"payload":{text}}}'
    sent: list[str] = []
    name = stored["id"].replace(":", "%3A")
    page.route(
        f"{shop.url}/jobs/{name}",
        lambda route: route.fulfill(body=answer, content_type="application/json"),
    )
    page.route(
        shop.url + "/jobs",
        lambda route: (
            sent.append(route.request.post_data),
            route.fulfill(status=201, body=answer),
        )[1],
    )
    page.goto(f"{shop.url}/ui/jobs/{name}")
    page.get_by_role("button", name="Retry with edits").click()
    page.get_by_role("button", name="Submit as a new job").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert text in sent[0]
