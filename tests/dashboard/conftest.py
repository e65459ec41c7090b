"""The dashboard in a headless Chromium, against a real server, API and worker.

Whatever a test does, nothing may be told in the browser's console or be asked of another origin.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import browser as support
from support.browser import Shop

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="these tests drive a browser: pip install playwright"
)

CHROMIUM = support.chromium()
SECONDS = 20_000
"""How long a page may take for anything (ms): the machine may be busy with others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.xdist_group("browser"))
        if CHROMIUM is None:
            item.add_marker(
                pytest.mark.skip(
                    reason="no Chromium: apt-get install chromium, or name one in TASKQ_TEST_CHROMIUM"
                )
            )


# Not for the session: the driver keeps an event loop running, under which other modules' tests cannot run.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    assert CHROMIUM is not None
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=SECONDS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=support.ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with support.opened(tmp_path_factory.mktemp("shop")) as shop:
        shop.start_api()
        shop.start_worker()
        yield shop


@pytest.fixture
def shop(_shop: Shop) -> Shop:
    """The shop that tests share; each uses queues of its own."""
    _shop.fixed.unlink(missing_ok=True)
    return _shop


class Watch:
    """What a page did that it should not do."""

    def __init__(self, page: Any, url: str) -> None:
        self.wrong: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", lambda message: self.wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._asked(request.url, url))

    def _asked(self, asked: str, url: str) -> None:
        if not asked.startswith((url, "data:", "blob:")):
            self.wrong.append(f"asked {asked}")

    def check(self) -> None:
        left = [text for text in self.wrong if not any(word in text for word in self.expected)]
        assert left == []


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Any]:
    """``open_page(url, path, **context)`` -> a page that is watched; its watch is ``page.watch``."""
    contexts: list[Any] = []
    watches: list[Watch] = []

    def opening(url: str, path: str = "/", **options: Any) -> Any:
        context = chromium.new_context(
            viewport=options.pop("viewport", {"width": 1280, "height": 860}), **options
        )
        contexts.append(context)
        context.set_default_timeout(SECONDS)
        page = context.new_page()
        page.watch = Watch(page, url)
        watches.append(page.watch)
        page.goto(url + path)
        return page

    yield opening
    for watch in watches:
        watch.check()
    for context in contexts:
        context.close()


@pytest.fixture
def visit(open_page: Any, shop: Shop) -> Any:
    """``visit(path)`` -> a page of the shop's dashboard."""
    return lambda path="/", **options: open_page(shop.url, path, **options)
