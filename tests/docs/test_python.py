"""docs/python.md stays true: its code is run as it stands, under a worker in this process."""

import asyncio
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from taskq import Context
from taskq.submission import SubmitOptions
from taskq.tasks import TaskOptions
from taskq.testing import running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ModuleType]:
    """All of its code as one module."""
    path = tmp_path / "page_of_docs.py"
    path.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


async def test_the_code_of_the_page_runs(page: ModuleType) -> None:
    async with running(page.app) as worker:

        async def work() -> None:
            while True:
                if not await worker.drain():
                    await asyncio.sleep(0.01)

        working = asyncio.create_task(work())
        try:
            async with asyncio.timeout(60):
                await page.submit()
                await page.failing()
                await asyncio.to_thread(page.from_sync_code)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def test_every_task_of_the_page_runs(page: ModuleType) -> None:
    async with running(page.app) as worker:
        job = await page.convert.enqueue("a.png")
        early = await page.confirm.enqueue(page.Order(number=0, items=["tea"]))
        await worker.drain()
        assert await job.result(timeout=5) == "a.webp"
        assert (await early.info()).state == "scheduled"
        assert (await early.info()).failures == 0


def test_every_option_is_in_the_table() -> None:
    shown = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {field.name for field in fields(TaskOptions)} <= set(shown)
    assert {field.name for field in fields(TaskOptions)} - {
        field.name for field in fields(SubmitOptions)
    } == {"backoff", "executor", "memory_mb"}
    for name in (field.name for field in fields(SubmitOptions)):
        assert re.search(rf"\b{name}\b", PAGE), name


def test_every_member_of_the_context_is_named() -> None:
    for name in vars(Context.detached()) | vars(Context):
        if not name.startswith("_") and name != "detached":
            assert re.search(rf"\b{name}\b", PAGE), name
