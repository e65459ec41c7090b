"""Queues and workers through the dashboard: paused, redriven, purged, looked for."""

import re
import signal
from typing import Any

from playwright.sync_api import expect

from support.browser import Shop
from support.workers import until

MANY = 1000


def test_pause_and_resume_and_why_it_waits_in_two_clicks(visit: Any, shop: Shop) -> None:
    shop.submit("greet", {"name": "first"}, queue="calm")
    page = visit("/ui/queues/calm")
    page.get_by_role("button", name="Pause", exact=True).first.click()
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_text("Queue calm is paused")).to_be_visible()
    job = shop.submit("greet", {"name": "second"}, queue="calm")

    page.goto(shop.url)
    page.get_by_role("link", name=re.compile("Queue calm is paused")).click()
    page.wait_for_url("**/queues/calm")
    expect(page.get_by_text("1 job waits until it is resumed").first).to_be_visible()
    page.get_by_role("list").get_by_role("link", name="greet").click()
    expect(page.locator(".page-head .state")).to_have_text("queued")
    expect(page.locator(".notice")).to_contain_text("Its queue calm is paused")

    page.goto(f"{shop.url}/ui/queues/calm")
    page.get_by_role("button", name="Resume", exact=True).first.click()
    expect(page.get_by_role("button", name="Pause", exact=True).first).to_be_visible()
    shop.wait(job, "succeeded")


def test_a_type_that_nobody_runs_is_told_on_the_overview(visit: Any, shop: Shop) -> None:
    shop.submit("from_the_next_release", {}, queue="deploys")
    page = visit("/")
    page.get_by_role("link", name=re.compile("No worker runs from_the_next_release")).click()
    expect(page.get_by_role("cell", name="no worker runs it")).to_be_visible()


def test_redrive_a_thousand(visit: Any, shop: Shop) -> None:
    jobs = [
        {"job_type": "fragile", "queue": "shelf", "payload": {"number": n}} for n in range(MANY)
    ]
    shop.post("/jobs/batch", {"jobs": jobs})
    counts = lambda: shop.get("/queues/shelf")["counts"]  # noqa: E731
    until(lambda: counts()["failed"] == MANY, 120, "all have failed")
    shop.fixed.touch()

    page = visit("/ui/errors?queue=shelf")
    page.get_by_role("link", name=re.compile("RuntimeError: the shelf is broken")).click()
    page.get_by_role("button", name="Retry all").click()
    expect(page.get_by_role("dialog")).to_contain_text("1,000 jobs")
    page.get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("dialog")).to_contain_text("1,000 jobs done")
    until(lambda: counts()["succeeded"] == MANY, 120, "all have succeeded")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()


def test_purge_wants_the_name_of_the_queue(visit: Any, shop: Shop) -> None:
    shop.patch("/queues/attic", {"paused": True})
    shop.post(
        "/jobs/batch",
        {"jobs": [{"job_type": "greet", "queue": "attic", "payload": {"name": "x"}}] * 30},
    )
    page = visit("/ui/queues/attic")
    page.get_by_role("button", name="Purge").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Cancel 30")
    expect(button).to_be_disabled()
    page.get_by_label(re.compile("^Type")).fill("attic")
    button.click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(lambda: shop.get("/queues/attic")["counts"]["cancelled"] == 30, 10, "they are cancelled")


def test_settings_are_changed_and_what_is_wrong_is_told_at_its_field(
    visit: Any, shop: Shop
) -> None:
    shop.patch("/queues/tuned", {"aging_ms": 5000})
    page = visit("/ui/queues/tuned")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_label("Most waiting jobs").fill("many")
    expect(page.get_by_text("a whole number")).to_be_visible()
    page.get_by_label("Most waiting jobs").fill("500")
    page.get_by_label("Ageing").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(lambda: shop.get("/queues/tuned")["settings"].get("max_depth") == 500, 10, "it is set")
    assert shop.get("/queues/tuned")["settings"].get("aging_ms") is None


def test_a_killed_worker_goes(visit: Any, shop: Shop) -> None:
    before = shop.workers()
    process = shop.start_worker("--processes", "1")
    (worker,) = shop.workers() - before
    page = visit("/ui/workers")
    row = page.get_by_role("row", name=re.compile(re.escape(worker)))
    expect(row).to_be_visible()
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    expect(row).to_be_hidden(timeout=90_000)
    for its in before:
        expect(page.get_by_role("row", name=re.compile(re.escape(its)))).to_be_visible()


def test_a_worker_is_asked_to_stop(visit: Any, shop: Shop) -> None:
    before = shop.workers()
    process = shop.start_worker("--processes", "1")
    (worker,) = shop.workers() - before
    page = visit("/ui/workers")
    page.get_by_role("button", name=f"Actions for {worker}").click()
    page.get_by_role("menuitem", name="Stop").click()
    page.get_by_role("button", name="Stop it").click()
    assert process.wait(30) == 0
    expect(page.get_by_role("row", name=re.compile(re.escape(worker)))).to_be_hidden()


def test_a_worker_shows_its_memory_and_its_lease(visit: Any, shop: Shop) -> None:
    job = shop.submit("march", {"seconds": 60}, queue="default")
    shop.wait(job, "running")
    page = visit("/ui/workers")
    row = page.get_by_role("row").filter(has_text="of 8").first
    expect(row.get_by_text(re.compile(r"^\d+ MB$"))).to_be_visible(timeout=30_000)
    expect(page.get_by_text(re.compile(r"^lease ends in \d+(\.\d+)? s$")).first).to_be_visible()
    shop.post(f"/jobs/{job}/cancel", {})


def test_the_server_tells_its_memory_and_that_a_restart_would_lose_jobs(visit: Any) -> None:
    page = visit("/ui/server")
    memory = page.get_by_role("region", name="Memory")
    expect(memory.get_by_text("none", exact=True)).to_be_visible()
    expect(memory.get_by_text("new jobs are refused, none is lost")).to_be_visible()
    expect(page.get_by_text("off: a restart loses jobs")).to_be_visible()
