"""Signs of life for what watches a process from outside: a container's health check, systemd's watchdog.

They say that the event loop turns, and nothing about Redis: a process that waits for a server which is
away is well, and killing it would help nobody.
"""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

logger = logging.getLogger("taskq.liveness")

BEAT_SECONDS = 5.0
"""How often the file is touched: an age of several beats means that the loop is held up."""


async def show_life(file: Path | None) -> None:
    """Until cancelled: touches ``file``, and tells systemd where it started this process and asks for it.

    The first sign says that the process is up, the last one that it stops. Signs that cannot be given are
    logged and cost nothing else.
    """
    told_systemd = _notify("READY=1")
    if file is None and not told_systemd:
        return
    every = min(BEAT_SECONDS, _watchdog_seconds() / 3)
    failing = False
    try:
        while True:
            if file is not None:
                failing = _touch(file, failing)
            _notify("WATCHDOG=1")
            await asyncio.sleep(every)
    finally:
        _notify("STOPPING=1")


def _touch(file: Path, failing: bool) -> bool:
    """Answers whether it failed; a failure is logged once, not at each beat."""
    try:
        file.touch()
    except OSError as error:
        if not failing:
            logger.warning("TASKQ_HEALTH_FILE: %s", error)
        return True
    return False


def _watchdog_seconds() -> float:
    """Silence after which systemd ends this process; no end where it does not watch."""
    with contextlib.suppress(ValueError):
        if int(os.environ.get("WATCHDOG_PID", os.getpid())) == os.getpid():
            return int(os.environ["WATCHDOG_USEC"]) / 1e6 if "WATCHDOG_USEC" in os.environ else 1e9
    return 1e9


def _notify(message: str) -> bool:
    """One message of systemd's protocol (sd_notify); False where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(message.encode(), address.replace("@", "\0", 1))
        return True
    return False
