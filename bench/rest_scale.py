"""The REST API over a full server: 1,000,000 jobs waiting, 1,000,000 succeeded and 200,000 failed in a queue.

Twenty clients refresh every two seconds a list, a job, the queues and a job's place in line, while a worker
drains the line; or, as a dashboard does that shows everything, the failures by kind and the figures as well.
Blocks of a fifth of a second with and without them take turns in the same run; the line is filled up now and
then. Times are of both kinds, from before the request is written to the end of its answer, by bare sockets in
a process beside the API. Commands are counted by the server over refreshes of the latter kind, without a
worker.

The backlog is copied within the server from jobs that went through the scripts, so that 2,200,000 are there
within a minute.
"""

import asyncio
import itertools
import json
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psutil
import uvloop

from bench import process
from bench.report import Figure, Plan, Section
from bench.rig import QUEUE, CommandCounter, Rig, Worker, fill, keys, rig, spec
from taskq import calls, lua
from taskq.keys import Keys
from taskq.states import State

CLIENTS = 20
REFRESH_SECONDS = 2.0
PER_SECOND = CLIENTS / REFRESH_SECONDS
BLOCK_SECONDS = 0.2
"""Of the worker's rate half of the variance is of spells of a second and more: short blocks see the same of
them on all sides."""
SETTLING_SECONDS = 0.1
"""Before each block, in its own manner and not counted: what a refresh does to the worker shows a little
later, in what it claims. So as much of that comes into a block as leaves it."""
KEPT_SECONDS = 4.5
BUDGET_MS = 300.0
WORKER_BUDGET = 95.0
SERVER_BUDGET = 5.0
KINDS = 20
LOOKS = ("list", "detail", "queues", "position")
ALL = (*LOOKS, "errors", "stats")
COUNTED = 40
"""Refreshes whose commands are counted."""

_COPY = """
local prefix, set, model, score = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
-- The model itself may have run, or been trimmed, when more copies are made of it.
for _, kind in ipairs({ 'job:', 'history:' }) do
  redis.call('COPY', prefix .. kind .. model, prefix .. 'model:' .. kind .. set .. model)
end
local fields = redis.call('HGETALL', prefix .. 'model:job:' .. set .. model)
local told = redis.call('LRANGE', prefix .. 'model:history:' .. set .. model, 0, -1)
local adds = {}
for i = tonumber(ARGV[4]), tonumber(ARGV[5]) do
  local id = string.sub(model, 1, 10) .. string.format('%016d', i)
  redis.call('HSET', prefix .. 'job:' .. id, unpack(fields))
  if #told > 0 then redis.call('RPUSH', prefix .. 'history:' .. id, unpack(told)) end
  adds[#adds + 1] = string.format('%.17g', score + i / 4096)
  adds[#adds + 1] = id
end
redis.call('ZADD', prefix .. set, unpack(adds))
"""
"""Copies of a job, by number, into the set in which it stands."""


class Backlog:
    """The jobs of the queue, and what their ids are."""

    def __init__(self, server: Rig, jobs: int) -> None:
        self._server = server
        self._jobs = jobs
        self._models: dict[str, tuple[str, float]] = {}
        """By set: the job of which there are copies, and its score."""
        self._copies: dict[str, list[str]] = {}
        """By set: the ids of the latest copies."""
        self._number = 0

    @property
    def line(self) -> str:
        return f"{keys().prefix}ready:noop"

    def build(self) -> None:
        wire = self._server.wire
        wire.command("SADD", Keys().queues, QUEUE)
        wire.command("SCRIPT", "LOAD", lua.load("fail").body)
        kept = {"succeeded_max": self._jobs, "succeeded_bytes": 10**12, "failed_bytes": 10**12}
        wire.run(calls.configure(keys(), {**kept, "failed_max": self._jobs}))
        fill(self._server, 1, payload=b"{}")
        worker = Worker(self._server)
        worker.finish(worker.claim(1))
        self.copy("succeeded", self._jobs)
        for kind in range(KINDS):
            self._models["failed"] = self._fail(kind)
            self.copy("failed", self._jobs // 5 // KINDS)
        fill(self._server, 1, payload=b"{}")
        self.fill_up()

    def fill_up(self) -> None:
        """Where fewer wait than in the beginning, a quarter more: what a worker takes for a while."""
        if (waiting := self.waiting()) < self._jobs:
            self.copy("ready:noop", self._jobs * 5 // 4 - waiting)
        # An empty line leaves the index.
        self._server.wire.command("SADD", keys().lines, "noop")

    def waiting(self) -> int:
        return int(self._server.wire.command("ZCARD", self.line))

    def job(self, name: str) -> str:
        """Id of one of the latest copies in a set."""
        return f"{QUEUE}:{random.choice(self._copies[name])}"

    def copy(self, name: str, n: int) -> None:
        """``n`` copies of the set's model: at first the job that stood last in it."""
        wire, key = self._server.wire, keys().prefix + name
        if name not in self._models:
            model, score = wire.command("ZRANGE", key, -1, -1, "WITHSCORES")
            self._models[name] = model.decode(), float(score)
        model, score = self._models[name]
        until = self._number + n
        while self._number < until:
            last = min(self._number + 1000, until) - 1
            wire.command("EVAL", _COPY, 1, keys().prefix, name, model, score, self._number, last)
            self._copies[name] = [f"{model[:10]}{i:016d}" for i in range(self._number, last + 1)]
            self._number = last + 1

    def _fail(self, kind: int) -> tuple[str, float]:
        """A failed job whose failure is of a kind of its own, and its score."""
        wire = self._server.wire
        wire.run(calls.enqueue(keys(), [spec("breaks")]))
        worker = Worker(self._server, ("breaks",))
        (job,) = worker.claim(1)
        error = {"type": f"Error{kind}", "message": "no such user", "traceback": "  line\n" * 40}
        failure = calls.Failure(job.ulid, job.fence, json.dumps(error).encode(), 0, 1)
        wire.run(calls.fail(keys(), worker.id, [failure]))
        return job.ulid, float(wire.command("ZSCORE", keys().state(State.FAILED), job.ulid))


class _Connection(asyncio.Protocol):
    """A socket over which one request after the other goes. It does as little as it can: what it costs is
    taken from what is measured."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._answer: asyncio.Future[int] | None = None
        self._came = b""

    def connection_made(self, transport: Any) -> None:
        # A uvloop's is none of asyncio's.
        self._transport = transport

    def get(self, path: str) -> "asyncio.Future[int]":
        """The status, once all of the answer has come."""
        self._answer = asyncio.get_running_loop().create_future()
        self._came = b""
        self._transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if end and len(body) == int(head.split(b"\r\ncontent-length: ", 1)[1].split(b"\r\n", 1)[0]):
            assert self._answer is not None
            self._answer.set_result(int(head.split(b" ", 2)[1]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the API has hung up"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Client:
    """A dashboard that somebody looks at: a connection that is kept, as browsers do, and requests one after
    the other."""

    LISTS = ("", "&state=queued", "&state=failed", "&state=succeeded&job_type=noop")

    def __init__(self, backlog: Backlog, port: int, ms: dict[str, list[float]]) -> None:
        self._backlog = backlog
        self._port = port
        self._ms = ms
        self._turn = itertools.count()
        self._open: _Connection | None = None
        self._used_at = 0.0

    async def refresh(self, names: Sequence[str] = ALL, delay: float = 0.0) -> None:
        await asyncio.sleep(delay)
        connection = await self._connection()
        for name, path in self._paths():
            if name not in names:
                continue
            began = time.perf_counter()
            status = await connection.get(path)
            self._ms[name].append((time.perf_counter() - began) * 1000)
            if status != 200:
                raise RuntimeError(f"GET {path}: {status}")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    async def _connection(self) -> _Connection:
        # The server closes one that has been idle for five seconds.
        idle, self._used_at = time.monotonic() - self._used_at, time.monotonic()
        if self._open is None or idle > KEPT_SECONDS:
            self.close()
            loop = asyncio.get_running_loop()
            _, self._open = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        return self._open

    def _paths(self) -> Iterator[tuple[str, str]]:
        turn, job = next(self._turn), self._backlog.job
        yield "list", f"/jobs?queue={QUEUE}{self.LISTS[turn % len(self.LISTS)]}"
        # Those that succeeded first are being trimmed.
        yield "detail", f"/jobs/{job('failed' if turn % 2 else 'ready:noop')}"
        yield "queues", "/queues"
        yield "position", f"/jobs/{job('ready:noop')}/position"
        yield "errors", "/errors"
        yield "stats", f"/stats?queue={QUEUE}"


def measure(plan: Plan) -> Section:
    """Figures: percentiles by route, the worker's rate with the clients in percent of that without, and the
    commands of a refresh."""
    jobs = plan.pick(1_000_000, 100_000)
    ms: dict[str, list[float]] = defaultdict(list)
    with rig() as server:
        backlog = Backlog(server, jobs)
        backlog.build()
        with process.api(server.url) as (port, served):
            api = psutil.Process(served.pid)
            commands = uvloop.run(_count(server, api, backlog, port))
            with process.worker(server.url):
                at_first = backlog.waiting()
                process.wait_for(lambda: backlog.waiting() < at_first, "the worker's start")
                rates = uvloop.run(_compare(backlog, port, ms, plan.pick(500, 25)))
    figures = [
        Figure(f"{name}, p{percent}", _percentile(values, percent), "ms", budget)
        for name, values in ms.items()
        for percent, budget in ((50, None), (99, BUDGET_MS))
    ]
    return Section(
        "rest-scale",
        f"{CLIENTS} clients over {jobs:,} waiting, {jobs:,} succeeded and {jobs // 5:,} failed jobs",
        [*figures, *rates, *commands],
    )


@asynccontextmanager
async def _clients(
    backlog: Backlog, port: int, ms: dict[str, list[float]]
) -> AsyncIterator[list[Client]]:
    clients = [Client(backlog, port, ms) for _ in range(CLIENTS)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def _compare(
    backlog: Backlog, port: int, ms: dict[str, list[float]], rounds: int
) -> list[Figure]:
    """The worker's rate beside the clients in percent of that without.

    A block without them and one with each kind of them take turns. The speed of a shared machine moves by a
    quarter within seconds: many short blocks see the same of it on all sides, a few long ones do not.
    """
    kinds: dict[tuple[str, ...], list[float]] = {(): [], LOOKS: [], ALL: []}
    async with _clients(backlog, port, ms) as clients:
        # Each refreshes every two seconds of those in which clients are there.
        turns = _batches(clients, round((SETTLING_SECONDS + BLOCK_SECONDS) * PER_SECOND))
        # Which comes first takes turns too: what drifts hits all.
        orders = itertools.cycle(itertools.permutations(kinds))
        for order in itertools.islice(orders, rounds):
            backlog.fill_up()
            for names in order:
                kinds[names].append(await _block(backlog, next(turns) if names else (), names))
    alone = kinds[()]
    if sum(alone) <= 0:
        raise RuntimeError("the worker stood still")
    low, *_, high = statistics.quantiles(alone, n=20)
    note = f"{rounds} rounds; alone mostly {low:,.0f} to {high:,.0f} a second"
    return [
        _share("worker's rate with the clients", kinds[LOOKS], alone, note, WORKER_BUDGET),
        _share("... which ask for failures and figures too", kinds[ALL], alone),
    ]


def _share(
    name: str,
    beside: Sequence[float],
    alone: Sequence[float],
    note: str = "",
    budget: float | None = None,
) -> Figure:
    """With the standard error of a ratio of two sums over pairs."""
    share = sum(beside) / sum(alone)
    apart = sum((b - share * a) ** 2 for a, b in zip(alone, beside, strict=True))
    error = f"standard error {100 * math.sqrt(apart) / sum(alone):.1f}"
    return Figure(name, 100 * share, "%", budget, True, f"{error}, {note}" if note else error)


def _batches(clients: Sequence[Client], n: int) -> Iterator[list[Client]]:
    turns = itertools.cycle(clients)
    while True:
        yield list(itertools.islice(turns, n))


async def _block(backlog: Backlog, clients: Sequence[Client], names: Sequence[str]) -> float:
    """Jobs a second that the worker takes from the line meanwhile, ``clients`` spread over it."""
    running = [
        asyncio.create_task(client.refresh(names, i / PER_SECOND))
        for i, client in enumerate(clients)
    ]
    await asyncio.sleep(SETTLING_SECONDS)
    began, before = time.monotonic(), backlog.waiting()
    await asyncio.sleep(BLOCK_SECONDS)
    rate = (before - backlog.waiting()) / (time.monotonic() - began)
    await asyncio.gather(*running)
    return rate


async def _count(server: Rig, api: psutil.Process, backlog: Backlog, port: int) -> list[Figure]:
    """What refreshes alone cost: commands, the longest of them, and the share of a core for all clients."""
    async with _clients(backlog, port, defaultdict(list)) as clients:
        return await _cost(server, api, clients)


async def _cost(server: Rig, api: psutil.Process, clients: list[Client]) -> list[Figure]:
    spent, used = server.cpu_us(), api.cpu_times()
    for client in clients * 10:
        await client.refresh()
    spent, after = server.cpu_us() - spent, api.cpu_times()
    share = 100 * PER_SECOND / (10 * CLIENTS)
    server.wire.command("CONFIG", "SET", "slowlog-log-slower-than", "500")
    counter = CommandCounter(server)
    server.wire.command("SLOWLOG", "RESET")
    with counter("refresh"):
        for _ in range(COUNTED // CLIENTS):
            for client in clients:
                await client.refresh()
    slow = [int(entry[2]) for entry in server.wire.command("SLOWLOG", "GET", "-1")]
    server.wire.command("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    counted = counter.counts["refresh"]
    note = ", ".join(f"{name} {n / COUNTED:.1f}" for name, n in counted.most_common())
    return [
        Figure("KEYS", counted["keys"], "calls", 0),
        Figure("the longest command", max(slow, default=0) / 1000, "ms", 20),
        Figure("server's CPU for the clients", share * spent / 1e6, "% of a core", SERVER_BUDGET),
        Figure(
            "API's CPU for the clients",
            share * (after.user + after.system - used.user - used.system),
            "% of a core",
        ),
        Figure("commands", counted.total() / COUNTED, "per refresh", note=note),
    ]


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
