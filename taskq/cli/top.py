"""``taskq top``: how it goes, over and over, until Ctrl-C.

A page of plain text that is written anew in place; each round reads the counts of the queues and the
statistics of those that are shown, so that its cost has a bound.
"""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from taskq.cli.options import connection_options, run, unreachable
from taskq.cli.tables import age, counted, milliseconds, plain, table
from taskq.errors import Unavailable
from taskq.inspector import Inspector, oldest_head, unserved
from taskq.model import QueueInfo
from taskq.registry import WorkerInfo
from taskq.settings import load_settings
from taskq.stats import Latency, Statistics
from taskq.store import AsyncStore

QUEUES_SHOWN = 30
WINDOW_MINUTES = 5

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen without a cursor, and back: what was on it before is there again."""
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True)
class Picture:
    """What one round has seen; ``statistics`` are those of the queues that are shown."""

    infos: Sequence[QueueInfo]
    statistics: Sequence[Statistics]
    workers: Sequence[WorkerInfo]


@click.command()
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between rounds.",
)
@click.option("--rounds", type=click.IntRange(1), help="End after so many. Default: at Ctrl-C.")
@connection_options
def top(
    queue: str | None,
    interval: float,
    rounds: int | None,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Watch queues and workers live.

    The busiest queues first. Rates and latencies are those of the last five minutes.
    """
    live = sys.stdout.isatty()
    if live:
        click.echo(ENTER, nl=False)
    try:
        run(redis_url, namespace, _Top(queue, interval, rounds, live, redis_url, namespace).go)
    except KeyboardInterrupt:
        pass  # that is how it ends
    finally:
        if live:
            click.echo(LEAVE, nl=False)


class _Top:
    def __init__(
        self,
        queue: str | None,
        interval: float,
        rounds: int | None,
        live: bool,
        redis_url: str | None,
        namespace: str | None,
    ) -> None:
        self._queue = queue
        self._interval = interval
        self._rounds = rounds
        self._live = live
        self._settings = load_settings(redis_url=redis_url, namespace=namespace)

    async def go(self, store: AsyncStore) -> None:
        """Raises ``Unavailable`` only in the first round: later an outage is shown and waited for."""
        inspector = Inspector(store)
        done = 0
        while True:
            try:
                text = draw(await look(inspector, self._queue))
            except Unavailable as error:
                if not done:
                    raise
                text = plain(str(unreachable(error, self._settings)))
            self._show(text)
            done += 1
            if done == self._rounds:
                return
            await asyncio.sleep(self._interval)

    def _show(self, text: str) -> None:
        if not self._live:
            click.echo(text + "\n")
            return
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in text.splitlines()[: size.lines - 1]]
        page = "".join(f"{line}{REST_OF_LINE}\n" for line in lines)
        click.echo(f"{HOME}{page}{REST_OF_SCREEN}", nl=False)


async def look(inspector: Inspector, queue: str | None) -> Picture:
    infos = [await inspector.queue(queue)] if queue else await inspector.queues()
    shown = sorted(infos, key=_busy, reverse=True)[:QUEUES_SHOWN]
    statistics = [await inspector.statistics(info.name, WINDOW_MINUTES) for info in shown]
    return Picture(infos, statistics, await inspector.workers())


def _busy(info: QueueInfo) -> tuple[int, int, int]:
    """What is going on now comes first, then what has failed."""
    counts = info.counts
    return counts["queued"] + counts["running"], counts["retrying"], counts["failed"]


def draw(picture: Picture) -> str:
    """The page."""
    slots, busy = sum(w.slots for w in picture.workers), sum(w.busy for w in picture.workers)
    by_name = {info.name: info for info in picture.infos}
    head = (
        f"{counted(len(picture.infos), 'queue')}, {counted(len(picture.workers), 'worker')}, "
        f"{busy}/{slots} slots busy"
    )
    if not picture.infos:
        return f"{head}\nno queues yet"
    rows = [_row(by_name[s.queue], s) for s in picture.statistics]
    headers = ("QUEUE", "WAITING", "RUNNING", "RETRYING", "LATER", "FAILED", "SINCE",
               "IN/MIN", "OUT/MIN", "FAILING/MIN", "WAIT p50/p95", "RUN p50/p95")  # fmt: skip
    lines = [head, table(headers, rows)]
    if len(picture.statistics) < len(picture.infos):
        lines.append(f"and {counted(len(picture.infos) - len(picture.statistics), 'more queue')}")
    for info in picture.infos:
        lonely = unserved(info, picture.workers)
        if lonely and info.name in {s.queue for s in picture.statistics}:
            more = f" and {len(lonely) - 3} more" if len(lonely) > 3 else ""
            names = ", ".join(lonely[:3])
            lines.append(plain(f"queue {info.name}: no live worker runs {names}{more}"))
    return "\n".join(lines)


def _row(info: QueueInfo, statistics: Statistics) -> tuple[object, ...]:
    counts, rates = info.counts, statistics.per_minute
    out = sum(rates.get(word, 0.0) for word in ("succeeded", "failed", "cancelled"))
    paused = " (paused)" if info.settings.get("paused") == "1" else ""
    return (
        info.name + paused,
        counts["queued"],
        counts["running"],
        counts["retrying"],
        counts["scheduled"],
        counts["failed"],
        age(oldest_head(info), info.now),
        rates.get("enqueued", 0.0),
        out,
        rates.get("raised", 0.0),
        _latency(statistics.wait),
        _latency(statistics.run),
    )


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return f"{milliseconds(latency.p50)} / {milliseconds(latency.p95)}"
