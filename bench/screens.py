"""The dashboard over a full server: 1,000,000 jobs waiting, 1,000,000 succeeded, 200,000 failed in a queue.

Each screen is opened in a headless Chromium by its address, in a tab of its own, until it shows what it is
about and no placeholder is left. Then the list of jobs is scrolled as fast as frames come.
"""

import importlib.util
import shutil
import time
from typing import Any

from bench import process
from bench.report import Figure, Plan, Section
from bench.rest_scale import Backlog
from bench.rig import QUEUE, median, rig

BUDGET_MS = 1500.0
LATE_MS = 50.0
LATE_BUDGET = 5.0
NAMES = ("chromium", "chromium-browser", "google-chrome")

_SETTLED = """() => { const main = document.querySelector('main');
  return main !== null && main.innerText.trim() !== '' && main.querySelector('.skeleton') === null; }"""
_SCROLL = """() => new Promise((done) => { const times = []; let last = performance.now(), n = 0;
  const step = (now) => { times.push(now - last); last = now; window.scrollBy(0, 240);
    if (++n < 240) requestAnimationFrame(step); else done(times.slice(1)); };
  requestAnimationFrame(step); })"""


def measure(plan: Plan) -> Section:
    """Figures: until a screen is there, and the share of frames that come late while the list is scrolled."""
    jobs = plan.pick(1_000_000, 100_000)
    title = f"screens over {jobs:,} waiting, {jobs:,} succeeded and {jobs // 5:,} failed jobs"
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None or importlib.util.find_spec("playwright") is None:
        return Section("screens", title, skipped="there is no Chromium, or no playwright")
    from playwright.sync_api import sync_playwright

    figures: list[Figure] = []
    with rig() as server:
        backlog = Backlog(server, jobs)
        backlog.build()
        with (
            process.api(server.url) as (port, _),
            process.worker(server.url),
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-gpu"]
            )
            base = f"http://127.0.0.1:{port}"
            for name, where in _screens(backlog).items():
                took = [_open(browser, base + where) for _ in range(plan.pick(3, 1))]
                figures.append(
                    Figure(name, median(took), "ms", BUDGET_MS, note=f"slowest {max(took):.0f}")
                )
            figures.append(_scrolled(browser, base + "/ui/jobs?state=queued"))
            browser.close()
    return Section("screens", title, figures)


def _screens(backlog: Backlog) -> dict[str, str]:
    return {
        "overview": "/",
        "jobs": "/ui/jobs",
        "failed jobs": "/ui/jobs?state=failed",
        "waiting job": f"/ui/jobs/{backlog.job('ready:noop')}",
        "failed job": f"/ui/jobs/{backlog.job('failed')}",
        "queue": f"/ui/queues/{QUEUE}",
        "errors": "/ui/errors",
        "workers": "/ui/workers",
        "job types": "/ui/types",
        "Redis and doctor": "/ui/server",
        "keys": "/ui/keys",
        "audit": "/ui/audit",
    }


def _open(browser: Any, url: str) -> float:
    """Until the screen is there, in ms, in a tab that has nothing stored."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(_SETTLED, polling="raf")
    took = (time.perf_counter() - began) * 1000
    context.close()
    return took


def _scrolled(browser: Any, url: str) -> Figure:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.goto(url)
    page.wait_for_function(_SETTLED)
    frames: list[float] = page.evaluate(_SCROLL)
    context.close()
    late = 100 * sum(frame > LATE_MS for frame in frames) / len(frames)
    note = f"{len(frames)} frames, median {median(frames):.0f} ms, longest {max(frames):.0f} ms"
    return Figure("frames that come late while scrolling", late, "%", LATE_BUDGET, note=note)
