"""One job through the dashboard: submitted, watched, failed, read, tried again, cancelled."""

import re
from typing import Any

from playwright.sync_api import expect

from support.browser import Shop

BIG = 9007199254740993123
"""An integer that a browser's numbers would change."""


def the_state(page: Any, state: str) -> None:
    expect(page.locator(".page-head .state")).to_have_text(state)


def test_submit_through_the_form_and_watch_it_run(visit: Any, shop: Shop) -> None:
    page = visit("/ui/types/march")
    page.get_by_label("seconds").fill("not a number")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_text("must be a number")).to_be_visible()
    page.get_by_label("seconds").fill("12")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.locator(".notice a").click()
    the_state(page, "running")
    expect(page.get_by_role("meter", name="Progress")).to_be_visible()
    # Nothing is reloaded: the page follows by itself.
    the_state(page, "succeeded")
    expect(page.get_by_role("region", name="Result")).to_have_text('"there"')


def test_a_field_that_is_needed_is_asked_for(visit: Any) -> None:
    page = visit("/ui/types/greet")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_text("is needed")).to_be_visible()
    page.get_by_label("name").fill("Ada")
    page.get_by_label("tone").select_option("cold")
    page.get_by_role("button", name="JSON").click()
    expect(page.get_by_role("textbox", name="Payload")).to_have_value(
        '{\n  "name": "Ada",\n  "tone": "cold"\n}'
    )
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator(".notice", has_text="Stored")).to_be_visible()


def test_why_it_failed_is_two_clicks_from_the_overview(visit: Any, shop: Shop) -> None:
    shop.wait(shop.submit("divide", {"by": 0}, queue="sums"), "failed")
    page = visit("/")
    page.get_by_role("link", name=re.compile("ZeroDivisionError")).first.click()
    expect(page.get_by_role("region", name="Traceback")).to_contain_text("return 100 / by")
    page.get_by_role("link", name=re.compile("^sums:")).click()
    the_state(page, "failed")
    expect(page.locator(".notice")).to_contain_text("ZeroDivisionError: division by zero")


def test_retry_with_edits_keeps_every_digit(visit: Any, shop: Shop) -> None:
    failed = shop.submit("divide", {"by": 0, "order": BIG}, queue="sums")
    shop.wait(failed, "failed")
    page = visit(f"/ui/jobs/{failed}?tab=payload")
    expect(page.get_by_role("region", name="Payload")).to_contain_text(str(BIG))
    page.get_by_role("button", name="Retry with edits").click()
    text = page.get_by_role("textbox", name="Payload")
    expect(text).to_have_value(f'{{\n  "by": 0,\n  "order": {BIG}\n}}')
    text.fill(f'{{"by": 4, "order": {BIG}')
    expect(page.get_by_role("button", name="Submit as a new job")).to_be_disabled()
    text.fill(f'{{"by": 4, "order": {BIG}}}')
    page.get_by_role("button", name="Submit as a new job").click()
    the_state(page, "succeeded")
    expect(page.get_by_role("region", name="Result")).to_contain_text(str(BIG))
    again = page.url.rsplit("/", 1)[1].split("?")[0].replace("%3A", ":")
    assert again != failed
    assert shop.get(f"/jobs/{again}")["result"] == {"order": BIG, "share": 25.0}
    assert shop.get(f"/jobs/{failed}")["state"] == "failed"


def test_cancel_a_running_one(visit: Any, shop: Shop) -> None:
    job = shop.submit("march", {"seconds": 600})
    shop.wait(job, "running")
    page = visit(f"/ui/jobs/{job}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Ask it to stop").click()
    the_state(page, "cancelled")
    assert shop.get(f"/jobs/{job}")["state"] == "cancelled"


def test_change_the_place_of_a_waiting_one_and_delete_an_ended_one(visit: Any, shop: Shop) -> None:
    job = shop.submit("greet", {"name": "later"}, queue="later", delay=3600)
    page = visit(f"/ui/jobs/{job}")
    expect(page.locator(".notice")).to_contain_text("It is due in")
    page.get_by_role("button", name="Run now or later").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Change it").click()
    expect(page.locator(".facts", has_text="Priority").first).to_contain_text("7")
    assert shop.get(f"/jobs/{job}")["priority"] == 7
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    the_state(page, "cancelled")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/ui/jobs?*")
    page.goto(f"{shop.url}/ui/jobs/{job}")
    page.watch.expected = ("404",)


def test_a_job_that_is_not_there_says_so(visit: Any) -> None:
    page = visit("/ui/jobs/default:01K2J7Q0V4T8Z3M6N9R1S5X7YB")
    expect(page.get_by_role("heading", name="There is no such job")).to_be_visible()
    page.watch.expected = ("404",)  # the browser itself tells of each
