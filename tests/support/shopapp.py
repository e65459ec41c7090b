"""What the tests of the dashboard run: tasks that work, fail, take long and say nasty things."""

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

from taskq import Context, TaskQ

app = TaskQ()

HOSTILE = (
    '<img src=x onerror="window.pwned=1">"\'><svg/onload=window.pwned=1></script>'
    "<script>window.pwned=1</script>"
    "javascript:window.pwned=1 {{7*7}} ${7*7} \u202e\x1b[31m \u0000 \U0001f600"
)
"""In every place where a job can say something."""


@app.task
async def greet(name: str, times: int = 1, tone: Literal["warm", "cold"] = "warm") -> str:
    """Says hello."""
    return f"Hello {name}" * times


@app.task(max_attempts=1)
async def divide(by: int, order: int = 0) -> dict[str, Any]:
    """Fails for a zero."""
    return {"order": order, "share": _share(by)}


def _share(by: int) -> float:
    return 100 / by


@app.task
async def march(ctx: Context, seconds: float = 60) -> str:
    """Takes long, and tells how far it is."""
    for step in range(1000):
        ctx.progress(step / 1000, f"step {step} of 1000")
        ctx.raise_if_cancelled()
        await asyncio.sleep(seconds / 1000)
    return "there"


@app.task(max_attempts=1)
async def fragile(number: int) -> int:
    """Fails until the file that SHOP_FIXED names is there."""
    if not Path(os.environ["SHOP_FIXED"]).exists():
        raise RuntimeError(f"the shelf is broken, item {number}")
    return number


@app.task(max_attempts=1)
async def mean(ctx: Context, text: str, more: Any = None) -> str:
    """Says something hostile in every place."""
    ctx.log(HOSTILE)
    ctx.progress(0.5, HOSTILE[:200])
    if text == "fail":
        raise type("<b>Bad</b>", (Exception,), {})(HOSTILE)
    return HOSTILE
