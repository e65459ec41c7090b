"""What ``GET /metrics`` tells: of queues, workers and server as Redis knows them, and of this process.

It is read once for all scrapes of a second; its size has a bound whatever there is. The names of all series
stand in docs/operations.md.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskq import calls
from taskq.errors import TaskqError
from taskq.inspector import Inspector, oldest_head, serving
from taskq.model import QueueInfo, QueueMetrics
from taskq.registry import Registry, WorkerInfo
from taskq.states import State
from taskq.store import AsyncStore
from taskq_api.hub import Hub
from taskq_api.version import VERSION

CACHE_SECONDS = 1.0
READ_SECONDS = 5.0
"""What reading Redis for a page may take."""
QUEUES_SHOWN = 200
TYPES_SHOWN = 50
PAIRS_SHOWN = 300
"""Job types with series of their own, over all queues."""
WORKERS_SHOWN = 500
OTHER = "other"

OCTAVES = range(2, 23)
"""Bounds of the histograms: 2^2 to 2^22 ms, 4 ms to 70 minutes."""
HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at Redis."""

    queues: int
    infos: Sequence[QueueInfo]
    counted: Sequence[QueueMetrics]
    workers: Sequence[WorkerInfo]
    server: Mapping[str, Any]


class RequestMetrics:
    """ASGI: counts requests by the template of their route, never by their path."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self.app = app
        self._requests = Counter(
            "taskq_api_requests",
            "Requests that this process answered",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "taskq_api_request_seconds",
            "Until the answer began",
            ("route", "method"),
            buckets=HTTP_BUCKETS,
            registry=registry,
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        def noting(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                counter, histogram = self._of(_route(scope), scope["method"], message["status"])
                counter.inc()
                histogram.observe(time.perf_counter() - began)
            return send(message)

        await self.app(scope, receive, noting)

    def _of(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        key = (route, method if method in METHODS else OTHER, status)
        found = self._children.get(key)
        if found is None:
            found = self._requests.labels(*key), self._seconds.labels(*key[:2])
            self._children[key] = found
        return found


def _route(scope: Scope) -> str:
    """The template of the route that answered; ``other`` where none did."""
    route = scope.get("route")
    if route is not None:
        return str(getattr(route, "path", OTHER))
    if "endpoint" not in scope:
        return OTHER
    # A route that is not FastAPI's leaves only its endpoint; all of ours are without parameters. What is
    # mounted goes by where it is mounted: below it there may be any path.
    return str(scope.get("root_path") or scope["path"])


class Metrics:
    """Made once a process: reads, keeps for a second, and writes the page."""

    def __init__(
        self,
        registry: CollectorRegistry,
        inspector: Inspector,
        workers: Registry,
        store: AsyncStore,
        hub: Hub,
    ) -> None:
        self._registry = registry
        self._inspector = inspector
        self._workers = workers
        self._store = store
        self._hub = hub
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._families: list[Metric] = []
        self._pages: dict[str, bytes] = {}
        self._chosen = Chosen()

    async def page(self, accept: str) -> tuple[bytes, str]:
        """(text, content type), in the format that is asked for."""
        encoder, content_type = choose_encoder(accept)
        async with self._lock:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                self._families = await self._read()
                self._pages.clear()
                self._read_at = time.monotonic()
            if content_type not in self._pages:
                page = _Page([*self._families, *self._own()], self._registry)
                # Many series take a while to write: requests go on meanwhile.
                self._pages[content_type] = await asyncio.to_thread(encoder, page)
            return self._pages[content_type], content_type

    async def blind_page(self, accept: str) -> tuple[bytes, str]:
        """What this process counts by itself, for while Redis is away; looks at nothing and keeps nothing."""
        encoder, content_type = choose_encoder(accept)
        down = GaugeMetricFamily("taskq_redis_up", "1 if Redis answered this scrape", 0)
        page = _Page([down, *self._own()], self._registry)
        return await asyncio.to_thread(encoder, page), content_type

    async def _read(self) -> list[Metric]:
        began = time.monotonic()
        facts: Facts | None = None
        try:
            async with asyncio.timeout(READ_SECONDS):
                facts = await self._facts()
        except (TaskqError, TimeoutError):
            pass  # that is what taskq_redis_up is for
        families: list[Metric] = []
        if facts is not None:
            self._chosen.choose(facts)
            families = await asyncio.to_thread(lambda: [*describe(facts, self._chosen)])
        up, seconds = 0 if facts is None else 1, time.monotonic() - began
        return [
            *families,
            GaugeMetricFamily("taskq_redis_up", "1 if Redis answered this scrape", up),
            GaugeMetricFamily("taskq_scrape_seconds", "What reading Redis took", seconds),
        ]

    async def _facts(self) -> Facts:
        queues, left_out = await self._inspector.over_queues(calls.counts, most=QUEUES_SHOWN)
        counted, _ = await self._inspector.over_queues(calls.metrics, queues)
        (server,) = await self._store.pipeline([("INFO",)])
        return Facts(
            len(queues) + left_out,
            list(queues.values()),
            list(counted.values()),
            await self._workers.workers(),
            server if isinstance(server, dict) else {},
        )

    def _own(self) -> Iterable[Metric]:
        build = GaugeMetricFamily("taskq_build_info", "Always 1", labels=("version",))
        build.add_metric((VERSION,), 1)
        yield build
        errors = CounterMetricFamily(
            "taskq_redis_errors", "Calls that failed and were tried again", labels=("reason",)
        )
        for reason, n in (self._store.errors + self._hub.reader.errors).items():
            errors.add_metric((reason,), n)
        yield errors
        yield GaugeMetricFamily("taskq_api_event_streams", "Open event streams", self._hub.streams)
        yield CounterMetricFamily(
            "taskq_api_event_resets", "Streams that went on with a gap", self._hub.resets
        )


class _Page:
    """What an encoder reads: the families read from Redis, then those of this process."""

    def __init__(self, families: list[Metric], registry: CollectorRegistry) -> None:
        self._families = families
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        yield from self._families
        for family in self._registry.collect():
            # When a series began is nobody's question here, and would double their number.
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


# --- facts as series --------------------------------------------------------------------------------


class Chosen:
    """Which job types have counters of their own. Once chosen a type stays: were it to fall into ``other``
    and out of it, ``other`` would go up and down."""

    def __init__(self) -> None:
        self._types: dict[str, set[str]] = {}

    def choose(self, facts: Facts) -> None:
        most = types_per_queue(len(facts.infos))
        chosen: dict[str, set[str]] = {}
        for counted, info in zip(facts.counted, facts.infos, strict=True):
            totals: dict[str, int] = {}
            for field, n in counted.counters.items():
                word, _, rest = field.partition(":")
                if word in ENDS or word in BY_TYPE:
                    totals[rest] = totals.get(rest, 0) + n
            kept = self._types.get(info.name, set()) & totals.keys()
            new = sorted(totals.keys() - kept, key=lambda name: (-totals[name], name))
            chosen[info.name] = kept | set(new[: max(0, most - len(kept))])
        self._types = chosen

    def name(self, queue: str, job_type: str) -> str:
        """What a type is called on the page."""
        return job_type if job_type in self._types.get(queue, ()) else OTHER


def describe(facts: Facts, chosen: Chosen) -> Iterable[Metric]:
    """The series of one look at Redis."""
    yield GaugeMetricFamily("taskq_queues", "Queues that there are", facts.queues)
    left_out = facts.queues - len(facts.infos)
    yield GaugeMetricFamily("taskq_queues_left_out", "Queues not on this page", left_out)
    yield from _queues(facts)
    yield from _counters(facts, chosen)
    yield from _histograms(facts, chosen)
    yield from _workers(facts.workers)
    yield from _server(facts.server)


def _queues(facts: Facts) -> Iterable[Metric]:
    per_queue = types_per_queue(len(facts.infos))
    jobs = _gauge("taskq_jobs", "Jobs that are kept", "state")
    waiting = _gauge("taskq_waiting_jobs", "Jobs in line", "job_type")
    oldest = _gauge("taskq_oldest_waiting_seconds", "How long the oldest head has been in line")
    paused = _gauge("taskq_queue_paused", "1 if the whole queue is paused")
    workers = _gauge("taskq_queue_workers", "Live worker processes that serve it")
    lag = _gauge("taskq_promotion_lag_seconds", "By how much the first delayed job is overdue")
    window = _gauge("taskq_dedup_window_seconds", "How long ended jobs are recognised")
    quarantined = _gauge("taskq_quarantined_items", "Broken items that were set aside")
    ticks = _gauge("taskq_janitor_tick_age_seconds", "Since a duty was last done", "duty")
    for info, counted in zip(facts.infos, facts.counted, strict=True):
        name = info.name
        for state in State:
            jobs.add_metric((name, state.value), info.counts.get(state.value, 0))
        lines = {line.job_type: line.waiting for line in info.types}
        for job_type, n in _busiest(lines, per_queue).items():
            waiting.add_metric((name, job_type), n)
        oldest.add_metric((name,), _age(info.now, oldest_head(info)))
        paused.add_metric((name,), float(info.settings.get("paused") == "1"))
        workers.add_metric((name,), len(serving(name, facts.workers)))
        lag.add_metric((name,), _age(counted.now, counted.first_due))
        window.add_metric((name,), counted.dedup_window / 1000)
        quarantined.add_metric((name,), info.counts.get("quarantined", 0))
        for duty in ("reap", "promote", "expire", "trim", "rollup"):
            if duty in counted.ticks:
                ticks.add_metric((name, duty), _age(counted.now, counted.ticks[duty]))
    yield from (jobs, waiting, oldest, paused, workers, lag, window, quarantined, ticks)


PLAIN = {
    "enqueued": ("taskq_jobs_enqueued", "Jobs stored"),
    "leases_expired": ("taskq_leases_expired", "Workers given up as their lease ran out"),
    "fenced_out": ("taskq_fenced_out", "Reports of runs that were no longer the caller's"),
    "reconciled": ("taskq_jobs_reconciled", "Claimed jobs whose claim's answer was lost"),
    "trimmed": ("taskq_jobs_trimmed", "Ended jobs dropped by retention"),
    "trimmed_early": ("taskq_jobs_trimmed_early", "Those dropped early for memory"),
}
"""Words of the scripts without a type, and their series."""

BY_TYPE = {
    "raised": ("taskq_job_failures", "Runs that raised or timed out"),
    "retrying": ("taskq_job_retries", "Runs after which the job will be tried again"),
    "crashes": ("taskq_job_crashes", "Runs whose process died"),
    "lost": ("taskq_job_losses", "Runs whose lease ran out"),
}
ENDS = ("succeeded", "failed", "cancelled")


def _counters(facts: Facts, chosen: Chosen) -> Iterable[Metric]:
    plain = {word: _counter(*about) for word, about in PLAIN.items()}
    by_type = {word: _counter(*about, "job_type") for word, about in BY_TYPE.items()}
    finished = _counter("taskq_jobs_finished", "Jobs that ended", "job_type", "state")
    for info, counted in zip(facts.infos, facts.counted, strict=True):
        words = _by_word(counted.counters)
        for word, family in plain.items():
            family.add_metric((info.name,), words.get(word, {}).get("", 0))
        named = {
            word: _merged((chosen.name(info.name, t), n) for t, n in words.get(word, {}).items())
            for word in (*BY_TYPE, *ENDS)
        }
        for word, family in by_type.items():
            for job_type, n in named[word].items():
                family.add_metric((info.name, job_type), n)
        for word in ENDS:
            for job_type, n in named[word].items():
                finished.add_metric((info.name, job_type, word), n)
    yield from (*plain.values(), *by_type.values(), finished)


def _histograms(facts: Facts, chosen: Chosen) -> Iterable[Metric]:
    for kind, name, about in (
        ("wait", "taskq_job_wait_seconds", "From eligible to started"),
        ("run", "taskq_job_run_seconds", "From started to reported"),
    ):
        family = HistogramMetricFamily(name, about, labels=("queue", "job_type"))
        for info, counted in zip(facts.infos, facts.counted, strict=True):
            histograms: dict[str, dict[int, int]] = {}
            for field, n in counted.counters.items():
                word, _, rest = field.partition(":")
                job_type, _, bucket = rest.partition(":")
                if word == kind and bucket.isdecimal():
                    of = histograms.setdefault(chosen.name(info.name, job_type), {})
                    of[int(bucket)] = of.get(int(bucket), 0) + n
            for job_type, histogram in sorted(histograms.items()):
                family.add_metric((info.name, job_type), *_buckets(histogram))
        yield family


def _buckets(histogram: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """Counts up to each bound, and the sum of all durations as far as half octaves tell it."""
    buckets = [
        (str(2**octave / 1000), float(sum(n for b, n in histogram.items() if b <= 2 * octave)))
        for octave in OCTAVES
    ]
    buckets.append(("+Inf", float(sum(histogram.values()))))
    # The middle of a half octave; the first one holds all up to 1 ms.
    seconds = sum(
        n * (0.5 if b == 0 else 2 ** ((b - 0.5) / 2)) / 1000 for b, n in histogram.items()
    )
    return buckets, seconds


def _workers(workers: Sequence[WorkerInfo]) -> Iterable[Metric]:
    by_state = GaugeMetricFamily("taskq_workers", "Live worker processes", labels=("state",))
    states = {"running": 0, "quiet": 0, "stopping": 0}
    for worker in workers:
        state = worker.state if worker.state in states else OTHER
        states[state] = states.get(state, 0) + 1
    for state, n in states.items():
        by_state.add_metric((state,), n)
    yield by_state
    slots, busy = sum(w.slots for w in workers), sum(w.busy for w in workers)
    yield GaugeMetricFamily("taskq_worker_slots", "Slots of live workers", slots)
    yield GaugeMetricFamily("taskq_worker_busy_slots", "Slots with a job", busy)
    abandoned = sum(w.counted.get("abandoned_slots", 0) for w in workers)
    yield GaugeMetricFamily(
        "taskq_worker_abandoned_slots", "Slots whose run cannot be stopped", abandoned
    )
    for word, about in (
        ("claims", "Claims that took jobs"),
        ("claimed_jobs", "Jobs claimed"),
        ("reports", "Calls that reported ends of runs"),
        ("reported_jobs", "Runs reported"),
        ("redis_errors", "Calls to Redis that failed and were tried again"),
    ):
        family = CounterMetricFamily(f"taskq_worker_{word}", about, labels=("worker",))
        by_name: dict[str, int] = {}
        for worker in sorted(workers, key=lambda w: w.seen_at, reverse=True)[:WORKERS_SHOWN]:
            # A record of a process before with the same number counts no more.
            by_name.setdefault(f"{worker.host}:{worker.pid}", worker.counted.get(word, 0))
        for name, n in by_name.items():
            family.add_metric((name,), n)
        yield family


def _server(info: Mapping[str, Any]) -> Iterable[Metric]:
    def number(name: str) -> float:
        value = info.get(name, 0)
        return float(value) if isinstance(value, (int, float)) else 0.0

    for name, field, about in (
        ("taskq_redis_used_memory_bytes", "used_memory", "Memory that the server uses"),
        ("taskq_redis_max_memory_bytes", "maxmemory", "Its limit; 0: none"),
        ("taskq_redis_clients", "connected_clients", "Connections to it"),
        ("taskq_redis_uptime_seconds", "uptime_in_seconds", "Since it started"),
        ("taskq_redis_aof_enabled", "aof_enabled", "1 if the append-only file is on"),
    ):
        yield GaugeMetricFamily(name, about, number(field))
    wrote = [info.get(f"aof_last_{what}_status", "ok") for what in ("write", "bgrewrite")]
    well = float(wrote == ["ok", "ok"])
    yield GaugeMetricFamily("taskq_redis_aof_ok", "1 if its last writes went well", well)
    evicted = number("evicted_keys")
    yield CounterMetricFamily("taskq_redis_evicted_keys", "Keys that it evicted", evicted)


# --- small pieces -----------------------------------------------------------------------------------


def _gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, labels=("queue", *labels))


def _counter(name: str, about: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, about, labels=("queue", *labels))


def _age(now: float, since: float | None) -> float:
    """Seconds; 0 for none, and for what lies ahead."""
    return 0.0 if since is None else max(0.0, now - since) / 1000


def types_per_queue(queues: int) -> int:
    return max(1, min(TYPES_SHOWN, PAIRS_SHOWN // max(1, queues)))


def _busiest(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """The greatest counts by name, the rest as ``other``."""
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return _merged((name if at < most else OTHER, counts[name]) for at, name in enumerate(order))


def _merged(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, n in pairs:
        out[name] = out.get(name, 0) + n
    return out


def _by_word(counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Counters that are no buckets, by word and type ('' for the queue's own)."""
    out: dict[str, dict[str, int]] = {}
    for field, n in counters.items():
        word, _, job_type = field.partition(":")
        if ":" not in job_type:
            out.setdefault(word, {})[job_type] = n
    return out
