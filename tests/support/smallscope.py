"""Every interleaving of two jobs, two workers, janitor and operator, breadth first, over the real scripts.

A state is all keys of the queue (copied with DUMP and RESTORE), the clock, and what each worker believes.
A step is one call: in time, sent again, or late, with its answer heard or lost. After each step: check
finds every id in its place, fences and attempts only go up, only the holder of the present fence moves a
running job, and an outcome stays (but for the operator's retry of a dead letter). Now and then a state is
drained: with no more faults both jobs must end.
"""

import hashlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from taskq import calls
from taskq.calls import Call, Failure, Success
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.store import Store

START = 1_800_000_000_000
LEASE = 1000
TYPE = "t"
JOBS = ("a", "b")
ENDED = ("succeeded", "failed", "cancelled")
LEFT_OUT = (b"history:", b"log:", b"stats:", b"events", b"wake:", b"control:")
TIMES = {b"created_at", b"started_at", b"finished_at", b"eligible_at"}

Run = tuple[str, str]


@dataclass(frozen=True)
class Worker:
    """What a worker process believes."""

    name: str
    life: int = 0
    call: int = 0
    """The last claim that was sent; ``answered`` the last whose answer was heard."""
    answered: int = 0
    held: frozenset[Run] = frozenset()
    ever: frozenset[Run] = frozenset()

    @property
    def id(self) -> str:
        return f"{self.name}.{self.life}"


@dataclass(frozen=True)
class Node:
    keys: tuple[tuple[bytes, bytes, int], ...]
    clock: int
    workers: tuple[Worker, ...]
    sent: tuple[tuple[str, str, tuple[Any, ...]], ...]
    """The last calls, by which they can be sent again: name, worker id, arguments."""
    seen: "tuple[tuple[str, str, str, str, str, str], ...]"
    """Per job: id, state, worker, fence, attempts, life."""
    buried: frozenset[str] = frozenset()
    """Worker ids that died, or from which a reap took a job: none may get another."""
    path: tuple[str, ...] = ()


class Violation(AssertionError):
    """An invariant that does not hold, with the steps that led there."""


@dataclass
class Explorer:
    url: str
    seconds: float
    max_depth: int = 60
    drain_every: int = 40
    states: int = 0
    steps: int = 0
    depth: int = 0
    drained: int = 0
    walks: int = 0
    seed: int = 1
    start: tuple[str, ...] = ()
    """Steps that are taken before the search begins."""
    _hashes: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = Store.from_url(self.url, Keys("small"))
        self.redis: Any = self.store.redis
        self.keys = self.store.keys.queue("q")

    def explore(self) -> None:
        """Raises ``Violation`` with the shortest sequence that breaks something."""
        end = time.monotonic() + 0.7 * self.seconds
        self.redis.flushdb()
        seen = tuple((job, "", "", "0", "0", "0") for job in JOBS)
        empty = Node((), START, (Worker("w1"), Worker("w2")), (), seen)
        root = empty
        for job in JOBS:
            root = self._do(root, f"enqueue {job}", self._sending("enqueue", "", (job,)))
        for name in self.start:
            root = self._do(root, name, dict(self._steps(root))[name])
        frontier = deque([root])
        self._hashes.update(self._digest(node) for node in (empty, root))
        self._broad(frontier, end)
        self._deep(frontier or deque([root]), end + 0.3 * self.seconds)

    def _deep(self, frontier: "deque[Node]", end: float) -> None:
        """Random walks from the edge of what the search has seen."""
        rng = random.Random(self.seed)
        while time.monotonic() < end:
            node = rng.choice(frontier)
            for _ in range(20):
                node = self._do(node, *rng.choice(list(self._steps(node))))
                self.steps += 1
            self.walks += 1
            self._drain(node)

    def _broad(self, frontier: "deque[Node]", end: float) -> None:
        while frontier and time.monotonic() < end:
            node = frontier.popleft()
            self.depth = len(node.path)
            if self.depth >= self.max_depth:
                break
            for name, step in list(self._steps(node)):
                after = self._do(node, name, step)
                self.steps += 1
                digest = self._digest(after)
                if digest not in self._hashes:
                    self._hashes.add(digest)
                    self.states += 1
                    if self.states % self.drain_every == 0:
                        self._drain(after)
                    frontier.append(after)
                if time.monotonic() > end:
                    return

    # --- steps ----------------------------------------------------------------------------------

    def _steps(self, node: Node) -> "Iterator[tuple[str, Callable[[Node], Node]]]":
        for job, _, _, _, _, life in node.seen:
            if life == "0":
                yield f"enqueue {job}", self._sending("enqueue", "", (job,))
                break
        for i, worker in enumerate(node.workers):
            yield f"{worker.id} claims", self._claiming(i, heard=True)
            yield f"{worker.id} claims, answer lost", self._claiming(i, heard=False)
            for run in sorted(worker.held):
                for how in ("finish", "fail", "release"):
                    yield f"{worker.id} {how} {run[0]}", self._reporting(i, how, run)
                # A report that could not be sent, in the end.
                yield f"{worker.id} forgets {run[0]}", self._forgetting(i, run)
            for run in sorted(worker.ever - worker.held):
                yield (
                    f"{worker.id} finish {run[0]}, late",
                    self._sending("finish", worker.id, (run,)),
                )
            if worker.call:
                yield f"{worker.id} reconciles", self._reconciling(i)
                yield f"{worker.id} beats", self._beating(i)
            if worker.life < 1 and worker.call:
                yield f"{worker.id} dies", self._dying(i)
        for name, by, arguments in node.sent:
            yield f"{name} {by} {arguments} again", self._sending(name, by, arguments)
        yield "a lease passes", lambda n: replace(n, clock=n.clock + LEASE + 1)
        yield "reap", self._sending("reap", "", ())
        for job, state, _, fence, _, _ in node.seen:
            if state and state not in ENDED:
                yield f"cancel {job}", self._sending("cancel", "", (job,))
            if state == "failed":
                yield f"retry {job}", self._sending("retry", "", (job, fence))

    def _sending(self, name: str, by: str, arguments: tuple[Any, ...]) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            self.store.run(self._call(name, by, arguments, node))
            return self._remember(node, name, by, arguments)

        return step

    def _remember(self, node: Node, name: str, by: str, arguments: tuple[Any, ...]) -> Node:
        said = (name, by, arguments)
        return replace(node, sent=(*[s for s in node.sent if s != said], said)[-2:])

    def _call(self, name: str, by: str, arguments: tuple[Any, ...], node: Node) -> Call[Any]:
        keys, now = self.keys, float(node.clock)
        match name:
            case "enqueue":
                return calls.enqueue(keys, [JobSpec(arguments[0], TYPE, check=True)], now=now)
            case "claim":
                return calls.claim(keys, by, arguments[0], 1, [TYPE], lease_ms=LEASE, now=now)
            case "finish":
                (run,) = arguments
                return calls.finish(keys, by, [Success(*run, run[1].encode())], now=now)
            case "fail":
                (run,) = arguments
                return calls.fail(keys, by, [Failure(*run, b'{"type":"E"}', 0, 2)], now=now)
            case "release":
                return calls.release(keys, by, list(arguments), "stop", now=now)
            case "reconcile":
                return calls.reconcile(keys, by, arguments[0], list(arguments[1]), now=now)
            case "reap":
                return calls.reap(keys, lease_ms=LEASE, now=now)
            case "bury":
                return calls.reap(keys, lease_ms=LEASE, targets=[(by, "crashes", "died")], now=now)
            case "cancel":
                return calls.cancel(keys, [arguments[0]], now=now)
            case "retry":
                return calls.retry(keys, [(arguments[0], arguments[1])], now=now)
        raise AssertionError(name)

    def _claiming(self, i: int, *, heard: bool) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            # n + 1 only after the answer to n.
            number = worker.answered + 1
            reply = self.store.run(self._call("claim", worker.id, (number,), node))
            worker = replace(worker, call=number)
            if heard and reply.status != "OK":
                # A dead id: all is dropped, and the process goes on under a new one.
                worker = Worker(worker.name, worker.life + 1, ever=worker.ever)
            elif heard:
                runs = frozenset((job.ulid, job.fence) for job in reply.jobs)
                worker = replace(
                    worker, answered=number, held=worker.held | runs, ever=worker.ever | runs
                )
            node = self._remember(node, "claim", node.workers[i].id, (number,))
            return _with(node, i, worker)

        return step

    def _reporting(self, i: int, how: str, run: Run) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            self.store.run(self._call(how, worker.id, (run,), node))
            node = self._remember(node, how, worker.id, (run,))
            return _with(node, i, replace(worker, held=worker.held - {run}))

        return step

    def _forgetting(self, i: int, run: Run) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            return _with(node, i, replace(worker, held=worker.held - {run}))

        return step

    def _reconciling(self, i: int) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            held = tuple(sorted(worker.held))
            reply = self.store.run(
                self._call("reconcile", worker.id, (worker.answered, held), node)
            )
            if reply.status == "LOST":
                return _with(node, i, Worker(worker.name, worker.life + 1, ever=worker.ever))
            kept = frozenset(run for run in worker.held if run[0] not in reply.not_mine)
            return _with(node, i, replace(worker, held=kept))

        return step

    def _beating(self, i: int) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            (beat,) = self.store.run(
                calls.heartbeat(
                    self.keys, [(worker.id, LEASE, len(worker.held))], now=float(node.clock)
                )
            )
            if beat.status == "LOST":
                return _with(node, i, Worker(worker.name, worker.life + 1, ever=worker.ever))
            return node

        return step

    def _dying(self, i: int) -> "Callable[[Node], Node]":
        def step(node: Node) -> Node:
            worker = node.workers[i]
            self.store.run(self._call("bury", worker.id, (), node))
            node = self._remember(node, "bury", worker.id, ())
            node = replace(node, buried=node.buried | {worker.id})
            return _with(node, i, Worker(worker.name, worker.life + 1))

        return step

    # --- states ---------------------------------------------------------------------------------

    def _do(self, node: Node, name: str, step: "Callable[[Node], Node]") -> Node:
        self._restore(node)
        path = (*node.path, name)
        after = replace(step(node), path=path)
        after = replace(after, keys=self._dump(), seen=self._look(after))
        self._judge(node, after)
        reaped = {
            old[2]
            for old, new in zip(node.seen, after.seen, strict=True)
            if name.startswith("reap") and old[1] == "running" != new[1]
        }
        return replace(after, buried=after.buried | reaped)

    def _restore(self, node: Node) -> None:
        pipe = self.redis.pipeline(transaction=False)
        pipe.flushdb()
        for key, value, ttl in node.keys:
            pipe.restore(key, max(0, ttl), value)
        pipe.execute()

    def _dump(self) -> tuple[tuple[bytes, bytes, int], ...]:
        start = len(self.keys.prefix)
        names = [n for n in self.redis.keys("*") if not n[start:].startswith(LEFT_OUT)]
        names.sort()
        pipe = self.redis.pipeline(transaction=False)
        for name in names:
            pipe.dump(name)
        return tuple((n, v, 0) for n, v in zip(names, pipe.execute(), strict=True))

    def _digest(self, node: Node) -> bytes:
        whole = hashlib.blake2b(digest_size=16)
        whole.update(
            repr((node.clock, node.workers, node.sent, node.seen, sorted(node.buried))).encode()
        )
        for name, value, _ in node.keys:
            whole.update(name)
            if b"}:job:" not in name:
                whole.update(value)
        return whole.digest()

    def _look(self, node: Node) -> "tuple[tuple[str, str, str, str, str, str], ...]":
        pipe = self.redis.pipeline(transaction=False)
        for job in JOBS:
            pipe.hmget(self.keys.job(job), "state", "worker", "fence", "attempts")
        out = []
        for (job, *_, life), fields in zip(node.seen, pipe.execute(), strict=True):
            state, worker, fence, attempts = ((f or b"").decode() for f in fields)
            out.append((job, state, worker, fence or "0", attempts or "0", "1" if state else life))
        return tuple(out)

    def _judge(self, before: Node, after: Node) -> None:
        found = self.store.run(calls.check(self.keys, list(JOBS), now=float(after.clock)))
        self._must(not found, f"check: {found}", after)
        step = after.path[-1]
        for old, new in zip(before.seen, after.seen, strict=True):
            job, state, worker, fence, attempts, _ = old
            _, state_2, worker_2, fence_2, attempts_2, _ = new
            self._must(not state or bool(state_2), f"{job} is gone", after)
            self._must(int(fence_2) >= int(fence), f"{job}: fence went down", after)
            self._must(int(attempts_2) >= int(attempts), f"{job}: attempts went down", after)
            claimed = (state_2, worker_2, fence_2) != (
                state,
                worker,
                fence,
            ) and state_2 == "running"
            if claimed:
                self._must(int(fence_2) > int(fence), f"{job}: a fence was used again", after)
                self._must(worker_2 not in before.buried, f"{job}: claimed by the dead", after)
                self._must(state in ("queued", "retrying"), f"{job}: claimed from {state}", after)
            if state in ENDED and state_2 != state:
                self._must(
                    state == "failed" and step.startswith("retry"),
                    f"{job}: {state} -> {state_2}",
                    after,
                )
            if state == "running" and state_2 != "running":
                self._must(_may_move(step, job, worker, fence), f"{job}: moved by {step}", after)

    def _must(self, condition: bool, what: str, node: Node) -> None:
        if not condition:
            raise Violation(f"{what}\nafter: " + " | ".join(node.path))

    def _drain(self, node: Node) -> None:
        """No more faults: beats, reconciles, reports, janitor, claims, until both jobs have ended."""
        self._restore(node)
        self.drained += 1
        clock = node.clock
        workers = list(node.workers)
        for _ in range(12):
            clock += LEASE // 3
            now = replace(node, clock=clock, workers=tuple(workers))
            for i in range(len(workers)):
                for step in (self._beating(i), self._reconciling(i), self._claiming(i, heard=True)):
                    now = step(now)
                for run in sorted(now.workers[i].held):
                    now = self._reporting(i, "finish", run)(now)
            self.store.run(calls.reap(self.keys, lease_ms=LEASE, now=float(clock)))
            self.store.run(calls.promote(self.keys, now=float(clock)))
            workers = list(now.workers)
        left = [(job, state) for job, state, *_ in self._look(node) if state and state not in ENDED]
        self._must(not left, f"does not end: {left}", node)
        found = self.store.run(calls.check(self.keys, list(JOBS), now=float(clock)))
        self._must(not found, f"check after the drain: {found}", node)

    def close(self) -> None:
        self.store.close()


def _may_move(step: str, job: str, worker: str, fence: str) -> bool:
    """Whether a step may take a running job away from ``worker`` and ``fence``."""
    if step.startswith(("reap", "a lease passes")):
        return True
    if step.startswith((f"{worker} dies", "bury", f"{worker} reconciles")):
        return True
    if step.endswith("again"):
        return (worker in step and (fence in step or "reconcile" in step)) or "reap" in step
    return step.startswith(worker) and job in step


def _with(node: Node, i: int, worker: Worker) -> Node:
    workers = list(node.workers)
    workers[i] = worker
    return replace(node, workers=tuple(workers))
