"""Runs the application under uvicorn: its sockets, its signals and a bounded stop."""

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from taskq.apikeys import KeyStore
from taskq.errors import TaskqError, Unavailable
from taskq.keys import Keys
from taskq.server import check_server, raise_if_unsafe
from taskq.settings import Settings, mask_url
from taskq.store import AsyncStore
from taskq_api.protocol import BoundedProtocol

logger = logging.getLogger("taskq.api")

GRACEFUL_SECONDS = 3
CHECK_SECONDS = 5.0


class BindError(TaskqError):
    """The address cannot be listened on."""

    code = "bind"


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address of ``host``, all with one port. Raises ``BindError``, one line."""
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        for family, address in _addresses(host, port):
            chosen = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_socket(family, (address, chosen)))
            except OSError as error:
                problem = error
                # A machine may have no IPv6 although its resolver says ::1.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        if not sockets:
            raise problem or OSError("it has no address")
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise BindError(_bind_problem(host, port, error)) from None
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # IPv4 first: with port 0 it chooses the number.
    pairs = {(family, str(address[0])) for family, _, _, _, address in found}
    return sorted(pairs, key=lambda pair: (pair[0] != socket.AF_INET, pair[1]))


def _socket(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(2048)  # so that a second listener is refused here and not later
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened


def _bind_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with --port or TASKQ_API_PORT"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


class _Server(uvicorn.Server):
    """uvicorn whose signals are ours: it would end the process by the signal, not with exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit  # the second signal does not wait
        self.should_exit = True
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.stopping.set()


def keys_stored(settings: Settings) -> bool:
    """Whether there are API keys in Redis; no where it does not answer."""
    return asyncio.run(_keys_stored(settings))


async def _keys_stored(settings: Settings) -> bool:
    store = AsyncStore.from_url(settings.redis_url, Keys(settings.namespace), retry_seconds=0)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await KeyStore(store).count() > 0
    except (TaskqError, TimeoutError) as error:
        why = str(error) or "Redis did not answer in time"
        logger.warning("API keys in Redis cannot be looked for: %s", why)
        return False
    finally:
        await store.close()


def run(app: FastAPI, settings: Settings) -> None:
    """Serves until SIGINT or SIGTERM. Raises ``BindError``, ``UnsafeServerError``."""
    sockets = bind(settings.api_host, settings.api_port)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(app, settings, sockets))
    finally:
        for opened in sockets:
            opened.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # another extra brings it; without it the API is only slower
        return None
    return uvloop.new_event_loop


async def _serve(app: FastAPI, settings: Settings, sockets: list[socket.socket]) -> None:
    await _check(settings)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    for opened in sockets:
        host, port = opened.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logger.info("listening on http://%s:%s (documentation at /docs)", shown, port)
    # What is there by now stays until the end: a collection need not walk it for each few requests.
    gc.collect()
    gc.freeze()
    await _Server(config).serve(sockets)


async def _check(settings: Settings) -> None:
    """Refuses a server that would lose jobs. One that is away may come: /ready says so meanwhile."""
    store = AsyncStore.from_url(settings.redis_url, Keys(settings.namespace), retry_seconds=0)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            report = await check_server(store)
    except (Unavailable, TimeoutError) as error:
        why = str(error) or "Redis did not answer in time"
        logger.warning("%s: %s; starting all the same", mask_url(settings.redis_url), why)
        return
    finally:
        await store.close()
    raise_if_unsafe(report)
    for warning in report.warnings:
        logger.warning("%s", warning)
