"""A queue on a real server with a clock that the test moves, and a look at every byte of it."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from taskq import calls, lua
from taskq.calls import Call, Failure, Success
from taskq.keys import Keys
from taskq.model import Beat, Claimed, ClaimReply, Enqueued, JobSpec, Reaped, Reconciled
from taskq.states import State
from taskq.store import Store

T = TypeVar("T")

START = 1_750_000_000_000.0
"""Where the clock of a bench starts, ms."""
LEASE = 15_000
SECOND = 1000
MINUTE = 60 * SECOND
TYPE = "mail"

BOXES = {*(s.value for s in State), "expiring", "cancelling"} - {"queued", "running"}
"""Sets of ids."""

TOLD = ("stats:", "stats10:", "counters", "events", "ticks", "error")
"""What a call may write even if it is refused: counters, events and the janitor's clocks."""


@dataclass
class Bench:
    """Sends calls at ``now`` (ms) and remembers how often each worker has claimed."""

    store: Store
    queue: str = "q"
    now: float = START
    claims: dict[str, int] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str, queue: str = "q") -> "Bench":
        return cls(Store.from_url(url, Keys()), queue)

    def __post_init__(self) -> None:
        self.keys = self.store.keys.queue(self.queue)
        self.redis: Any = self.store.redis

    # --- time and raw access ---

    def run(self, call: Call[T]) -> T:
        return self.store.run(call)

    def words(self, call: Call[Any]) -> set[str]:
        """The words of its contract that the script answers."""
        reply = self.run(replace(call, parse=lambda reply: reply))
        return set(_words_in(reply)) & set(call.script.replies)

    def wait(self, ms: float) -> None:
        self.now += ms

    def key(self, name: str) -> str:
        return self.keys.prefix + name

    # --- a job's life ---

    def submit(self, *specs: JobSpec) -> list[Enqueued]:
        return self.run(calls.enqueue(self.keys, specs, now=self.now))

    def add(self, *ulids: str, **options: Any) -> list[str]:
        """Stores one job for each id, all with the same options; answers the outcomes."""
        options = {"job_type": TYPE, **options}
        return [e.outcome for e in self.submit(*(JobSpec(id=u, **options) for u in ulids))]

    def claim(
        self,
        worker: str = "w1",
        most: int = 1,
        job_types: Sequence[str] = (TYPE,),
        *,
        call: int | None = None,
        lease_ms: int = LEASE,
        **options: Any,
    ) -> ClaimReply:
        """The worker's next claim, or the one numbered ``call``."""
        if call is None:
            call = self.claims[worker] = self.claims.get(worker, 0) + (1 if most else 0)
        return self.run(
            calls.claim(
                self.keys, worker, call, most, job_types, lease_ms=lease_ms, now=self.now, **options
            )
        )

    def take(self, worker: str = "w1", most: int = 1, *job_types: str) -> list[Claimed]:
        """Claims and answers the jobs."""
        return list(self.claim(worker, most, job_types or (TYPE,)).jobs)

    def finish(
        self, *jobs: Claimed, worker: str = "w1", result: bytes = b"1", **more: Any
    ) -> list[str]:
        done = [Success(j.ulid, j.fence, result, **more) for j in jobs]
        return self.run(calls.finish(self.keys, worker, done, now=self.now))

    def fail(
        self, *jobs: Claimed, worker: str = "w1", delay_ms: int = MINUTE, max_attempts: int = 3
    ) -> list[str]:
        failed = [Failure(j.ulid, j.fence, b'{"type":"E"}', delay_ms, max_attempts) for j in jobs]
        return self.run(calls.fail(self.keys, worker, failed, now=self.now))

    def release(self, *jobs: Claimed, worker: str = "w1", reason: str = "stop") -> list[str]:
        return self.run(calls.release(self.keys, worker, runs(jobs), reason, now=self.now))

    def snooze(self, *jobs: Claimed, worker: str = "w1", delay_ms: int = MINUTE) -> list[str]:
        naps = [(j.ulid, j.fence, delay_ms) for j in jobs]
        return self.run(calls.snooze(self.keys, worker, naps, now=self.now))

    def beat(self, worker: str = "w1", holds: int = 0, lease_ms: int = LEASE) -> Beat:
        return self.run(calls.heartbeat(self.keys, [(worker, lease_ms, holds)], now=self.now))[0]

    def reap(self, **options: Any) -> Reaped:
        return self.run(calls.reap(self.keys, **{"lease_ms": LEASE, "now": self.now, **options}))

    def crash(self, worker: str = "w1") -> Reaped:
        """A supervisor saw the worker die."""
        return self.reap(targets=[(worker, "crashes", "killed")])

    def cancel(self, *ulids: str) -> list[str]:
        return [word for word, _ in self.run(calls.cancel(self.keys, ulids, now=self.now))]

    def retry(self, *ulids: str, fence: str = "") -> list[str]:
        wanted = [(u, fence) for u in ulids]
        return [word for word, _ in self.run(calls.retry(self.keys, wanted, now=self.now))]

    def edit(self, ulid: str, priority: int | None = None, run_at_ms: int | None = None) -> str:
        return self.run(calls.edit(self.keys, [(ulid, priority, run_at_ms)], now=self.now))[0][0]

    def promote(self, limit: int = 1000) -> int:
        return self.run(calls.promote(self.keys, limit, now=self.now))

    def trim(self, limit: int = 500, squeeze: int = 0) -> tuple[int, int, bool]:
        return self.run(calls.trim(self.keys, limit, squeeze, now=self.now))

    def expire(self, limit: int = 200) -> tuple[int, int, bool]:
        return self.run(calls.expire(self.keys, limit, now=self.now))

    def configure(self, **settings: Any) -> None:
        self.run(calls.configure(self.keys, settings, now=self.now))

    def listen(self) -> None:
        """Somebody reads the events, for longer than any test lasts."""
        self.run(calls.listen(self.keys, 100 * 24 * 60 * MINUTE, now=self.now))

    # --- looking ---

    def field(self, ulid: str, name: str) -> str | None:
        value = self.redis.hget(self.keys.job(ulid), name)
        return None if value is None else str(value.decode())

    def state(self, ulid: str) -> State | None:
        """The stored state; None for no job, also where only a stub is left."""
        state = self.field(ulid, "state")
        return None if state is None or self.field(ulid, "stub") else State(state)

    def states(self, ulids: Iterable[str]) -> set[State | None]:
        return {self.state(u) for u in ulids}

    def score(self, ulid: str, job_type: str = TYPE) -> float | None:
        """Its place in line."""
        score: float | None = self.redis.zscore(self.keys.ready(job_type), ulid)
        return score

    def line(self, job_type: str = TYPE) -> list[str]:
        """Ids of a waiting line, first to last."""
        ids: list[bytes] = self.redis.zrange(self.keys.ready(job_type), 0, -1)
        return [i.decode() for i in ids]

    def quarantined(self) -> set[str]:
        ids: list[bytes] = self.redis.hkeys(self.keys.quarantine)
        return {i.decode(errors="replace") for i in ids}

    def tokens(self, job_type: str = TYPE) -> int:
        return int(self.redis.llen(self.keys.wake(job_type)))

    def counted(self) -> dict[str, int]:
        """All counters of all minutes, summed."""
        sums: dict[str, int] = {}
        for name in self.redis.scan_iter(self.key("stats:*")):
            for counter, n in self.redis.hgetall(name).items():
                sums[counter.decode()] = sums.get(counter.decode(), 0) + int(n)
        return sums

    def findings(self, *ulids: str) -> list[tuple[str, str]]:
        """What the consistency check has to say, by default about every id that stands anywhere."""
        return self.run(calls.check(self.keys, ulids or self.everybody(), now=self.now))

    def everybody(self) -> list[str]:
        """Every id that has a hash or stands in a list or set of ids."""
        ids: set[bytes] = set()
        for name, value in self.dump(leave_out=()).items():
            if name.startswith("job:"):
                ids.add(name[4:].encode("latin-1"))
            elif name.startswith(("ready:", "processing:")) or name in BOXES:
                members = value if isinstance(value, (list, set)) else ()
                ids.update(m[0] if isinstance(m, (tuple, list)) else m for m in members)
        return sorted(i.decode(errors="surrogateescape") for i in ids)

    def dump(self, leave_out: Sequence[str] = TOLD) -> dict[str, Any]:
        """Every key of the queue but those that start with a word of ``leave_out``, with all it holds."""
        start = len(self.keys.prefix)
        names: list[bytes] = list(self.redis.scan_iter(self.keys.prefix + "*", count=1000))
        names = [n for n in names if not n[start:].decode("latin-1").startswith(tuple(leave_out))]
        pipe = self.redis.pipeline(transaction=False)
        for name in names:
            pipe.type(name)
        for name, kind in zip(names, pipe.execute(), strict=True):
            _READ[kind](pipe, name)
        return {n[start:].decode("latin-1"): c for n, c in zip(names, pipe.execute(), strict=True)}


_READ: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"hash": lambda pipe, name: pipe.hgetall(name),
    b"list": lambda pipe, name: pipe.lrange(name, 0, -1),
    b"set": lambda pipe, name: pipe.smembers(name),
    b"zset": lambda pipe, name: pipe.zrange(name, 0, -1, withscores=True),
    b"stream": lambda pipe, name: pipe.xrange(name),
    b"string": lambda pipe, name: pipe.get(name),
}


def runs(jobs: Iterable[Claimed]) -> list[tuple[str, str]]:
    return [(job.ulid, job.fence) for job in jobs]


def ids(jobs: Iterable[Claimed]) -> list[str]:
    return [job.ulid for job in jobs]


def _words_in(reply: Any) -> Iterable[str]:
    if isinstance(reply, list):
        for part in reply:
            yield from _words_in(part)
    elif isinstance(reply, bytes) and re.fullmatch(rb"[A-Z_]+", reply):
        yield reply.decode()


def sources() -> dict[str, str]:
    """The text of every script, by name."""
    return {name: lua.load(name).source for name in lua.names()}


def reconcile(bench: Bench, answered: int, *held: Any, worker: str = "w1") -> Reconciled:
    return bench.run(calls.reconcile(bench.keys, worker, answered, runs(held), now=bench.now))


def end(bench: Bench, ulid: str, state: State, **options: Any) -> None:
    """Brings a new job to its end."""
    bench.add(ulid, **options)
    if state == State.CANCELLED:
        bench.cancel(ulid)
        return
    worker = f"worker-of-{ulid}"
    (job,) = bench.take(worker)
    if state == State.SUCCEEDED:
        bench.finish(job, worker=worker)
    else:
        bench.fail(job, worker=worker, max_attempts=1)
