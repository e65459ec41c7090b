"""The application that the worker containers of the tests serve; mounted at /app."""

import asyncio
import os
import tempfile
from typing import Any

from taskq import TaskQ

app = TaskQ()


@app.task(max_attempts=20)
async def nap(number: int, seconds: float) -> int:
    """Sleeps, and gives its number back."""
    await asyncio.sleep(seconds)
    return number


@app.task(executor="process")
def apart(number: int) -> dict[str, Any]:
    """Runs in a process of its own, and tells as whom and where."""
    return {"number": number, "uid": os.getuid(), "cwd": os.getcwd()}


@app.task
def write_file(mib: int) -> int:
    """Leaves that much of a file in the page cache, and tells what else the container could not hold."""
    with tempfile.NamedTemporaryFile(dir="/scratch") as file:
        for _ in range(mib):
            file.write(b"x" * 1_048_576)
        file.flush()
        os.fsync(file.fileno())
        with open(file.name, "rb") as again:
            while again.read(1_048_576):
                pass
    return mib
