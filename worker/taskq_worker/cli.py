"""``taskq worker`` and ``taskq janitor``."""

import asyncio
import contextlib
import logging
import signal
import time

import click

from taskq.aio import end_tasks
from taskq.errors import Unavailable
from taskq.ids import check_queue
from taskq.janitor import Janitor
from taskq.keys import Keys
from taskq.liveness import show_life
from taskq.log import configure_logging
from taskq.server import ServerReport, check_server, mark_schema, raise_if_unsafe
from taskq.settings import Settings, load_settings
from taskq.store import AsyncStore
from taskq_worker.supervisor import Supervisor

logger = logging.getLogger("taskq.worker")

LOOK_SECONDS = 3.0
"""Pause between two lines about a server that does not answer at the start."""


async def check_at_start(settings: Settings) -> None:
    """Refuses a server that would lose jobs, and says so when there is none that answers.

    Raises ``UnsafeServerError``, ``Unavailable``.
    """
    store = AsyncStore.from_url(
        settings.redis_url,
        Keys(settings.namespace),
        retry_seconds=min(LOOK_SECONDS, settings.start_seconds),
    )
    try:
        report = await _look(store, settings.start_seconds)
        if report.safe:
            await mark_schema(store)
    except Unavailable as error:
        if error.reason in ("connection", "auth", "timeout"):
            raise
        # Loading, busy, failing over: it is there and will be well; the loops wait for it.
        logger.warning("%s", error)
        return
    finally:
        await store.close()
    raise_if_unsafe(report)
    for warning in report.warnings:
        logger.warning("Redis: %s", warning)


async def _look(store: AsyncStore, patience: float) -> ServerReport:
    """Asks until the server answers or ``patience`` seconds are over: a stack may start in any order."""
    until = time.monotonic() + patience
    while True:
        try:
            return await check_server(store)
        except Unavailable as error:
            if error.reason not in ("connection", "timeout") or time.monotonic() >= until:
                raise
            logger.warning("%s; waiting for it", error)


@click.command()
@click.option(
    "-A",
    "--app",
    metavar="MODULE:APP",
    help="Your application. Without it: the built-in types print and http_call.",
)
@click.option("--builtins", is_flag=True, help="Serve print and http_call besides the application.")
@click.option(
    "-q",
    "--queues",
    metavar="A,B",
    default="",
    help="Queues to serve. Default: those the application's tasks name.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Jobs at once in each process.",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes."
)
@click.option(
    "--max-jobs",
    type=click.IntRange(0),
    default=0,
    help="Replace a process after this many jobs (0: never).",
)
@click.option(
    "--max-memory",
    "max_memory_mb",
    type=click.IntRange(0),
    default=0,
    metavar="MIB",
    help="Replace a process that uses more, with all below it (0: never).",
)
@click.option(
    "--grace", type=float, help="Seconds that running jobs get at a stop (TASKQ_GRACE_SECONDS)."
)
@click.option("--redis-url", help="Server (TASKQ_REDIS_URL).")
@click.option("--namespace", help="First part of every key (TASKQ_NAMESPACE).")
@click.option("--log-level", help="debug, info, warning or error (TASKQ_LOG_LEVEL).")
def worker(
    app: str | None,
    builtins: bool,
    queues: str,
    concurrency: int,
    processes: int,
    max_jobs: int,
    max_memory_mb: int,
    grace: float | None,
    redis_url: str | None,
    namespace: str | None,
    log_level: str | None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C."""
    settings = load_settings(
        redis_url=redis_url, namespace=namespace, grace_seconds=grace, log_level=log_level
    )
    configure_logging(settings)
    names = [check_queue(name.strip()) for name in queues.split(",") if name.strip()]

    async def serve() -> int:
        await check_at_start(settings)
        supervisor = Supervisor(
            settings,
            app=app,
            builtins=builtins,
            queues=names,
            slots=concurrency,
            processes=processes,
            max_jobs=max_jobs,
            max_memory_mb=max_memory_mb,
        )
        return await supervisor.run()

    raise SystemExit(asyncio.run(serve()))


@click.command()
@click.option("--redis-url", help="Server (TASKQ_REDIS_URL).")
@click.option("--namespace", help="First part of every key (TASKQ_NAMESPACE).")
@click.option(
    "--every",
    type=float,
    help="Seconds between rounds, at most a fifth of a lease (TASKQ_JANITOR_SECONDS).",
)
@click.option("--once", is_flag=True, help="Do one round and end.")
@click.option("--log-level", help="debug, info, warning or error (TASKQ_LOG_LEVEL).")
def janitor(
    redis_url: str | None,
    namespace: str | None,
    every: float | None,
    once: bool,
    log_level: str | None,
) -> None:
    """Return expired leases, promote due jobs, trim old ones. Workers and the API do it too."""
    settings = load_settings(
        redis_url=redis_url, namespace=namespace, janitor_seconds=every, log_level=log_level
    )
    configure_logging(settings)

    async def serve() -> None:
        await check_at_start(settings)
        store = AsyncStore.from_url(settings.redis_url, Keys(settings.namespace))
        keeper = Janitor(
            store,
            every_seconds=settings.janitor_period,
            lease_seconds=settings.lease_seconds,
        )
        try:
            if once:
                done = await keeper.round()
                click.echo(
                    " ".join(f"{duty}={n}" for duty, n in sorted(done.items())) or "nothing to do"
                )
                return
            task = asyncio.ensure_future(keeper.run())
            life = asyncio.ensure_future(show_life(settings.health_file))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await end_tasks(life)
        finally:
            await store.close()

    asyncio.run(serve())
