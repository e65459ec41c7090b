"""What happened in a queue: counts by minute and latencies, read from the hashes that the scripts keep."""

import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from taskq.errors import InvalidInput
from taskq.ids import check_queue
from taskq.store import AsyncStore

MINUTES_KEPT = 120
"""Minutes that are read one by one; what is older comes from ten-minute sums."""
MINUTES_MAX = 2880
OVER_MINUTES = 2
"""A minute that ended so long ago takes no more counts: it is read once for all that ask."""
REMEMBER_SECONDS = 60.0
"""For so long: should the server's clock be set back, or its data restored, it is read anew."""
MOST_REMEMBERED = 100_000
"""Counters that are remembered, over all minutes and queues."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in ms, read from a histogram of half octaves: off by a fifth at most."""

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class TypeStatistics:
    """What happened to the jobs of one type. ``counts`` has the words of the scripts (``succeeded``,
    ``failed``, ``cancelled``, ``raised``, ``crashes``, ``lost``)."""

    job_type: str
    counts: dict[str, int]
    wait: Latency | None
    run: Latency | None


@dataclass(frozen=True, slots=True)
class Point:
    """Counts of ``minutes`` minutes from ``at`` (ms) on, over all types."""

    at: int
    minutes: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Statistics:
    """A stretch of a queue's past, from ``since`` to ``now`` (ms), over all types and by type."""

    queue: str
    since: int
    now: int
    counts: dict[str, int]
    per_minute: dict[str, float]
    wait: Latency | None
    run: Latency | None
    types: tuple[TypeStatistics, ...]
    series: tuple[Point, ...]


class Past:
    """Reads statistics, and remembers the minutes that are over."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._over: dict[str, tuple[float, _Tally]] = {}
        """By key: when it was read, and what it held."""
        self._counters = 0

    async def read(
        self,
        queue: str,
        minutes: int,
        *,
        types: Container[str] | None = None,
        now: int | None = None,
    ) -> Statistics:
        """What happened in the last ``minutes`` minutes, the one that runs included; of ``types`` only.
        ``now`` is the server's clock (ms) where it is known.

        Older than two hours comes in ten-minute steps, so that the stretch may begin up to nine minutes
        sooner; ``since`` says where. Raises ``InvalidInput``.
        """
        if not 1 <= minutes <= MINUTES_MAX:
            raise InvalidInput(f"minutes must be from 1 to {MINUTES_MAX}", field="minutes")
        if now is None:
            now = await self._store.clock_ms()
        spans, known = await self._stretch(queue, minutes, now)
        tallies = [tally.only(types) for tally in known]
        points = tuple(
            Point(first * 60_000, length, tally.totals())
            for (first, length), tally in zip(spans, tallies, strict=True)
        )
        return _summary(queue, spans[0][0] * 60_000, now, tallies, points)

    async def rate(self, queue: str, minutes: int, words: Container[str], now: int) -> float:
        """How many of what these words count happened a minute, in the last ``minutes`` minutes up to
        ``now`` (the server's clock, ms), over all types."""
        spans, known = await self._stretch(queue, minutes, now)
        n = sum(n for its in known for (word, _), n in its.counts.items() if word in words)
        return round(n / max(1 / 60, now / 60_000 - spans[0][0]), 2)

    async def _stretch(
        self, queue: str, minutes: int, now: int
    ) -> "tuple[list[tuple[int, int]], list[_Tally]]":
        """The spans of the last minutes, oldest first, and what was counted in each."""
        keys = self._store.keys.queue(check_queue(queue))
        spans = _spans(now // 60_000, minutes)
        names = [
            keys.stats(first) if length == 1 else keys.stats10(first) for first, length in spans
        ]
        over = {
            name
            for name, (first, length) in zip(names, spans, strict=True)
            if first + length + OVER_MINUTES <= now // 60_000
        }
        known = await self._tallies(names, over)
        return spans, [known[name] for name in names]

    async def _tallies(self, names: list[str], over: set[str]) -> dict[str, "_Tally"]:
        moment = time.monotonic()
        known = {
            name: its[1]
            for name in names
            if (its := self._over.get(name)) and moment - its[0] < REMEMBER_SECONDS
        }
        asked = [name for name in names if name not in known]
        hashes = await self._store.pipeline([("HGETALL", name) for name in asked])
        for name, pairs in zip(asked, hashes, strict=True):
            known[name] = _Tally.read(pairs)
            if name in over and not isinstance(pairs, Exception):
                self._remember(name, moment, known[name])
        return known

    def _remember(self, name: str, moment: float, tally: "_Tally") -> None:
        """Those that were read first stand first, and go when they are old or the rest has no room."""
        if (old := self._over.pop(name, None)) is not None:
            self._counters -= old[1].size()
        while self._over:
            first, (read_at, its) = next(iter(self._over.items()))
            if self._counters <= MOST_REMEMBERED and moment - read_at < REMEMBER_SECONDS:
                break
            del self._over[first]
            self._counters -= its.size()
        self._over[name] = (moment, tally)
        self._counters += tally.size()


def _spans(this_minute: int, minutes: int) -> list[tuple[int, int]]:
    """(first minute, length) of the hashes to read, oldest first: ten-minute sums, then minutes."""
    first = this_minute - minutes + 1
    edge = (this_minute - MINUTES_KEPT) // 10 * 10
    if first >= edge:
        return [(minute, 1) for minute in range(first, this_minute + 1)]
    sums = [(minute, 10) for minute in range(first // 10 * 10, edge, 10)]
    return sums + [(minute, 1) for minute in range(edge, this_minute + 1)]


class _Tally:
    """Counters by (word, type) and histograms by (kind, type); type '' is the whole queue's."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self.histograms: dict[tuple[str, str], dict[int, int]] = {}

    @classmethod
    def read(cls, pairs: Any) -> "_Tally":
        """Of a stats hash; what cannot be read is passed over, as the scripts do."""
        tally = cls()
        if isinstance(pairs, Exception) or not pairs:
            return tally
        items = (
            pairs.items() if isinstance(pairs, dict) else zip(pairs[::2], pairs[1::2], strict=True)
        )
        for field, value in items:
            parts = field.decode(errors="replace").split(":")
            try:
                if len(parts) == 3:
                    tally._bucket(parts[0], parts[1], int(parts[2]), int(value))
                else:
                    tally._count(parts[0], parts[1] if len(parts) == 2 else "", int(value))
            except ValueError:
                continue
        return tally

    def _count(self, word: str, job_type: str, n: int) -> None:
        self.counts[word, job_type] = self.counts.get((word, job_type), 0) + n

    def _bucket(self, kind: str, job_type: str, bucket: int, n: int) -> None:
        histogram = self.histograms.setdefault((kind, job_type), {})
        histogram[bucket] = histogram.get(bucket, 0) + n

    def size(self) -> int:
        """How many counters it holds, and one for itself."""
        return 1 + len(self.counts) + sum(map(len, self.histograms.values()))

    def only(self, types: Container[str] | None) -> "_Tally":
        """What is counted by these types; all for None."""
        if types is None:
            return self
        its = _Tally()
        its.counts = {key: n for key, n in self.counts.items() if key[1] and key[1] in types}
        its.histograms = {
            key: h for key, h in self.histograms.items() if key[1] and key[1] in types
        }
        return its

    def add(self, other: "_Tally") -> None:
        for (word, job_type), n in other.counts.items():
            self._count(word, job_type, n)
        for (kind, job_type), histogram in other.histograms.items():
            for bucket, n in histogram.items():
                self._bucket(kind, job_type, bucket, n)

    def totals(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for (word, _), n in sorted(self.counts.items()):
            out[word] = out.get(word, 0) + n
        return out

    def latency(self, kind: str, job_type: str | None = None) -> Latency | None:
        """Of one type, or of all."""
        merged: dict[int, int] = {}
        for (of, by), histogram in self.histograms.items():
            if of == kind and job_type in (None, by):
                for bucket, n in histogram.items():
                    merged[bucket] = merged.get(bucket, 0) + n
        return latency(merged)

    def types(self) -> list[str]:
        return sorted({t for _, t in (*self.counts, *self.histograms) if t})


def latency(histogram: Mapping[int, int]) -> Latency | None:
    """Percentiles of a histogram in which bucket b holds durations up to 2^(b/2) ms."""
    total = sum(histogram.values())
    if total <= 0:
        return None

    def percentile(share: float) -> float:
        rank, seen = share * total, 0
        for bucket in sorted(histogram):
            n = histogram[bucket]
            if seen + n >= rank:
                low = 0.0 if bucket == 0 else 2 ** ((bucket - 1) / 2)
                return float(round(low + (2 ** (bucket / 2) - low) * (rank - seen) / n, 3))
            seen += n
        return float(round(2 ** (max(histogram) / 2), 3))

    return Latency(total, percentile(0.50), percentile(0.95), percentile(0.99))


def _summary(
    queue: str, since: int, now: int, tallies: Iterable[_Tally], points: tuple[Point, ...]
) -> Statistics:
    whole = _Tally()
    for tally in tallies:
        whole.add(tally)
    totals = whole.totals()
    elapsed = max(now - since, 1) / 60_000
    types = []
    for job_type in whole.types():
        counts = {word: n for (word, t), n in sorted(whole.counts.items()) if t == job_type}
        wait, run = whole.latency("wait", job_type), whole.latency("run", job_type)
        types.append(TypeStatistics(job_type, counts, wait, run))
    return Statistics(
        queue,
        since,
        now,
        totals,
        {word: round(n / elapsed, 2) for word, n in totals.items()},
        whole.latency("wait"),
        whole.latency("run"),
        tuple(types),
        points,
    )
