"""A first application: two tasks, one async and one plain."""

import asyncio

from taskq import Context, TaskQ

app = TaskQ()


@app.task
async def greet(name: str) -> str:
    await asyncio.sleep(0.1)
    return f"Hello {name}"


@app.task(max_attempts=3, timeout=60)
def resize(ctx: Context, path: str, width: int = 800) -> dict[str, int]:
    ctx.log(f"attempt {ctx.attempt}: resizing {path}")
    ctx.progress(0.5, "half way")
    return {"width": width}
