"""The application under a real server, in the process of the test."""

import asyncio
import contextlib
import socket
from typing import Any

import uvicorn

from taskq_api.protocol import BoundedProtocol


@contextlib.asynccontextmanager
async def serving(app: Any) -> Any:
    """The application under uvicorn in this process; answers the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, http=BoundedProtocol, log_config=None, lifespan="on", ws="none"
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        task = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
