"""Every page: usable by everybody, on any screen, by keyboard, live, and clean."""

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from support import browser
from support.browser import Shop

FIRST_LOAD_MAX = 350_000
"""Bytes on the wire of all files that the overview loads, fonts included."""

PAGES = {
    "overview": "/",
    "jobs": "/ui/jobs",
    "failed jobs": "/ui/jobs?state=failed",
    "job": "/ui/jobs/{job}",
    "waiting job": "/ui/jobs/{waiting}",
    "log": "/ui/jobs/{job}?tab=redis",
    "queue": "/ui/queues/paged",
    "errors": "/ui/errors",
    "error": "/ui/errors/{error}?queue=paged",
    "workers": "/ui/workers",
    "types": "/ui/types",
    "type": "/ui/types/greet",
    "server": "/ui/server",
    "keys": "/ui/keys",
    "audit": "/ui/audit",
    "missing": "/ui/nothing",
}


@pytest.fixture
def paths(shop: Shop) -> dict[str, str]:
    job = shop.submit("divide", {"by": 0}, queue="paged")
    shop.wait(job, "failed")
    waiting = shop.submit("nobody_runs_this", {"a": [1, "two", None]}, queue="paged", priority=5)
    (error,) = shop.get("/errors?queue=paged")["errors"]
    return {
        name: path.format(job=job, waiting=waiting, error=error["fingerprint"])
        for name, path in PAGES.items()
    }


def settled(page: Any) -> None:
    expect(page.locator("main .skeleton")).to_have_count(0)
    expect(page.locator("main")).not_to_be_empty()
    page.wait_for_timeout(150)  # animations


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_there_is_no_serious_barrier(
    visit: Any, shop: Shop, paths: dict[str, str], theme: str
) -> None:
    page = visit("/", color_scheme=theme)
    found: list[str] = []
    for name, path in paths.items():
        page.goto(shop.url + path)
        settled(page)
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                where = [node["target"] for node in violation["nodes"][:3]]
                found.append(f"{name}: {violation['id']}: {violation['help']} {where}")
    assert found == []


def test_nor_in_what_opens(visit: Any, paths: dict[str, str]) -> None:
    page = visit(paths["job"])
    settled(page)
    openings = {
        "Retry with edits": lambda: page.get_by_role("button", name="Retry with edits").click(),
        "delete": lambda: page.get_by_role("button", name="Delete").click(),
        "palette": lambda: page.keyboard.press("Control+k"),
        "help": lambda: page.keyboard.press("?"),
        "settings": lambda: page.get_by_role("button", name="Settings").click(),
    }
    for name, opening in openings.items():
        opening()
        expect(page.get_by_role("dialog").or_(page.get_by_role("menu"))).to_be_visible()
        page.wait_for_timeout(250)
        violations = Axe().run(page).response["violations"]
        bad = [v["id"] for v in violations if v["impact"] in ("serious", "critical")]
        assert bad == [], name
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog").or_(page.get_by_role("menu"))).to_have_count(0)


@pytest.mark.parametrize("width", [360, 768, 1024, 1920])
def test_nothing_is_wider_than_the_screen(
    visit: Any, shop: Shop, paths: dict[str, str], width: int
) -> None:
    page = visit("/", viewport={"width": width, "height": 800})
    for name, path in paths.items():
        page.goto(shop.url + path)
        settled(page)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide at {width}"


def test_a_narrow_screen_has_the_pages_in_a_menu(visit: Any) -> None:
    page = visit("/", viewport={"width": 360, "height": 740})
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("dialog").get_by_role("link", name="Workers").click()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_palette_goes_anywhere(visit: Any, paths: dict[str, str]) -> None:
    page = visit("/")
    settled(page)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("paged")
    expect(page.get_by_role("option", name="paged")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="paged")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(paths["job"].rsplit("/", 1)[1])
    expect(page.get_by_role("option", name="Open job")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="divide")).to_be_visible()


def test_a_list_is_walked_by_keys(visit: Any, shop: Shop, paths: dict[str, str]) -> None:
    page = visit("/ui/jobs?queue=paged&state=failed")
    expect(page.locator(".job-rows .job-row").first).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("[data-current]")).to_have_count(1)
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Selection")).to_contain_text("1 job")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="divide")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()


def test_the_address_holds_the_view(visit: Any, paths: dict[str, str]) -> None:
    page = visit("/ui/jobs")
    box = page.get_by_role("combobox", name="Search jobs")
    box.fill("queue:pa")
    page.get_by_role("option", name="queue:paged").click()
    page.wait_for_url(re.compile(r"queue=paged"))
    page.get_by_role("button", name=re.compile("failed")).click()
    page.wait_for_url(re.compile(r"state=failed"))
    expect(box).to_have_value("queue:paged state:failed")
    page.go_back()
    expect(box).to_have_value("queue:paged")
    box.fill("colour:red")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no qualifier")


def test_what_happens_is_shown_as_it_happens_and_pausing_stops_that(visit: Any, shop: Shop) -> None:
    shop.patch("/queues/lively", {"paused": True})
    page = visit("/ui/jobs?queue=lively")
    expect(page.get_by_text("No job fits")).to_be_visible()
    shop.submit("greet", {"name": "one"}, queue="lively")
    expect(page.locator(".job-rows .job-row")).to_have_count(1)
    page.get_by_role("button", name="Live").click()
    shop.submit("greet", {"name": "two"}, queue="lively")
    page.wait_for_timeout(3500)
    expect(page.locator(".job-rows .job-row")).to_have_count(1)
    page.get_by_role("button", name="Paused").click()
    expect(page.locator(".job-rows .job-row")).to_have_count(2)


def test_events_are_asked_for_once_and_polling_rests_meanwhile(visit: Any) -> None:
    asked: list[str] = []
    page = visit("/ui/types")
    settled(page)
    page.wait_for_timeout(1500)
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    page.wait_for_timeout(6000)
    assert asked.count("events") == 0, "it stays open"
    assert len(asked) <= 8, asked


def test_a_tab_that_is_left_open_neither_grows_nor_hammers(visit: Any, shop: Shop) -> None:
    """Hours of polling by a clock that runs ahead, while jobs come and go: after the first hour nothing is
    kept that was not kept before, and no more is asked than was meant."""
    page = visit("/ui/jobs")
    page.clock.install()
    page.reload()
    settled(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    console = page.context.new_cdp_session(page)

    def an_hour() -> int:
        for step in range(60):
            shop.submit("greet", {"name": str(step)}, queue="open")
            with page.expect_response(lambda answer: "/queues" in answer.url):
                page.clock.run_for(60_000)
        console.send("HeapProfiler.collectGarbage")
        used: int = console.send("Runtime.getHeapUsage")["usedSize"]
        return used

    an_hour()
    before, nodes = an_hour(), page.locator("*").count()
    asked.clear()
    after = an_hour()
    assert after < before * 1.1 + 300_000, (before, after)
    assert page.locator("*").count() < nodes * 1.2
    # Queues, jobs, types, workers, each every 15 s at most beside a stream, and what events bring.
    assert len(asked) < 60 * 4 * 12, len(asked)


def test_without_events_it_polls(visit: Any, shop: Shop) -> None:
    shop.patch("/queues/polled", {"paused": True})
    page = visit("/ui/workers")
    page.watch.expected = ("503",)
    page.route("**/events", lambda route: route.fulfill(status=503, body="{}"))
    page.goto(shop.url + "/ui/jobs?queue=polled")
    expect(page.get_by_text("No job fits")).to_be_visible()
    shop.submit("greet", {"name": "one"}, queue="polled")
    expect(page.locator(".job-rows .job-row")).to_have_count(1)


def test_themes_and_time_zones_are_chosen_and_kept(visit: Any, paths: dict[str, str]) -> None:
    page = visit(paths["job"], color_scheme="light", timezone_id="Asia/Tokyo")
    canvas = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(canvas)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("menuitemradio", name="Dark").click()
    assert page.evaluate(canvas) != light
    here = page.locator(".timeline time").first.inner_text()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("menuitemradio", name="UTC").click()
    assert page.locator(".timeline time").first.inner_text() != here
    page.reload()
    settled(page)
    assert page.evaluate(canvas) != light
    assert page.locator(".timeline time").first.inner_text() != here


def test_the_first_load_is_small(visit: Any, paths: dict[str, str]) -> None:
    page = visit("/")
    settled(page)
    expect(page.locator(".chart canvas")).to_be_visible()
    weight = page.evaluate(
        """() => ["resource", "navigation"].flatMap((type) => performance.getEntriesByType(type))
          .filter((its) => its.initiatorType !== "fetch")
          .reduce((sum, its) => sum + its.encodedBodySize, 0)"""
    )
    assert 50_000 < weight < FIRST_LOAD_MAX


def test_the_empty_overview_shows_how_to_begin(open_page: Any, tmp_path: Path) -> None:
    with browser.opened(tmp_path) as shop:
        url = shop.start_api()
        page = open_page(url)
        expect(
            page.get_by_role("heading", name="No job yet: here is the first one")
        ).to_be_visible()
        command = page.get_by_role("region", name="Command that submits a job").inner_text()
        assert command.startswith(f"curl -X POST {url}/jobs")
        assert '{"job_type":"print","payload":{"message":"Hello"}}' in command
        shop.submit("print", {"message": "Hello"})
        expect(page.get_by_role("link", name=re.compile("No worker is running"))).to_be_visible()
