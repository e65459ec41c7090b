"""The supervisor: what ``taskq worker`` starts. It runs no user code and so cannot be held up by it.

1. starts the children and gives each of their seats a worker id, beaten before it may claim;
2. renews their leases every third of one, tells them what to stop, and lets go of a child that shows no
   sign of life;
3. sees a child die, ends what is left of its process group, hands its jobs back at once, starts another;
4. ticks a janitor;
5. on SIGTERM or SIGINT lets the children end within the grace; a second signal ends them at once.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import taskq_worker
from taskq import calls
from taskq.aio import end_tasks
from taskq.calls import Call, Failure
from taskq.errors import ConfigError, OutOfMemory, TaskqError, Unavailable
from taskq.janitor import Janitor
from taskq.keys import Keys, QueueKeys
from taskq.registry import Registry, WorkerInfo, now_ms
from taskq.settings import Settings
from taskq.store import AsyncStore, retry_delay
from taskq_worker.failures import understand
from taskq_worker.memory import FULL_AT, Usage, container_share, usage_of
from taskq_worker.options import EXIT_CONFIG, EXIT_STUBBORN, ChildOptions
from taskq_worker.outcome import OUTGROWN
from taskq_worker.process import ChildProcess, become_subreaper, reap_orphans
from taskq_worker.throttle import Throttle

logger = logging.getLogger("taskq.supervisor")

T = TypeVar("T")
Counter = Literal["crashes", "lost", "none"]
SETTLED_SECONDS = 10.0
"""A child that lived this long is started anew without a pause when it dies."""
MAX_PAUSE_SECONDS = 5.0
KILL_MARGIN_SECONDS = 1.5
"""What a stopping child gets beyond the grace to hand back and report."""


@dataclass(slots=True)
class SeatRecord:
    """A child's seat as seen from here."""

    number: int
    queue: str
    worker: str
    off_beats: int = 0
    """Beats running on which the server's list and the child's count differed."""


@dataclass(slots=True, eq=False)
class Member:
    """One child with its seats; ``will`` is what to report when it is gone."""

    process: ChildProcess
    name: str
    seats: dict[int, SeatRecord] = field(default_factory=dict)
    will: list[list[Any]] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    schemas: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    leaving: bool = False
    """It is asked to end, or was replaced: its end is no crash, and starts no other."""
    verdict: tuple[Counter, str] | None = None
    """Why we killed it, where we did."""
    started_at: int = field(default_factory=now_ms)


class Supervisor:
    def __init__(
        self,
        settings: Settings,
        *,
        app: str | None,
        builtins: bool = False,
        queues: list[str],
        slots: int,
        processes: int,
        max_jobs: int = 0,
        max_memory_mb: int = 0,
    ) -> None:
        self._settings = settings
        self._lease_ms = round(settings.lease_seconds * 1000)
        self._beat_seconds = settings.lease_seconds / 3
        self._options = ChildOptions(
            app,
            builtins,
            queues,
            slots,
            max_jobs,
            {**settings.model_dump(exclude={"api_keys"}), "redis_url": settings.redis_url},
        )
        self._processes = processes
        self._max_memory = max_memory_mb * 1_048_576
        self._keys = Keys(settings.namespace)
        self._store = AsyncStore.from_url(settings.redis_url, self._keys)
        self._blocking = AsyncStore.from_url(settings.redis_url, self._keys)
        self._registry = Registry(self._store, ttl_seconds=max(30.0, 3 * settings.lease_seconds))
        self._janitor = Janitor(
            self._store,
            every_seconds=settings.janitor_seconds,
            lease_seconds=settings.lease_seconds,
        )
        self._members: list[Member] = []
        self._nudge = asyncio.Event()
        self._stopping = asyncio.Event()
        self._killed = False
        self._starting = asyncio.Lock()
        """Held while a child is started: until it is a member it must not be taken for an orphan."""
        self._failure: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keepers: set[asyncio.Task[None]] = set()
        """One per place of a child."""
        self._throttle = Throttle(logger)
        self.host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60]

    # --- the life of the whole ------------------------------------------------------------------

    async def run(self) -> int:
        """Serves until a signal; answers the exit code. Raises ``ConfigError`` if the app cannot start."""
        become_subreaper()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        for _ in range(self._processes):
            self._keep_another()
        services = [
            self._spawn(self._beat_forever()),
            self._spawn(self._listen_for_nudges()),
            self._spawn(self._janitor.run()),
            self._spawn(self._watch_memory()),
        ]
        await self._stopping.wait()
        await self._stop_children()
        await end_tasks(*services)
        with contextlib.suppress(TaskqError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._registry.forget(*(m.name for m in self._members))
        for store in (self._store, self._blocking):
            with contextlib.suppress(Exception):
                await store.close()
        if self._failure is not None:
            raise ConfigError(self._failure)
        return 0

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _signalled(self) -> None:
        if self._stopping.is_set():
            logger.warning("second signal: ending the children now")
            self._killed = True
            for member in self._members:
                member.process.kill_tree()
            return
        logger.info("stopping: running jobs get %g s", self._settings.grace_seconds)
        self._stopping.set()

    async def _stop_children(self) -> None:
        grace = self._settings.grace_seconds
        for member in self._members:
            member.leaving = True
            member.process.channel.send("stop", grace=grace)
        ends = list(self._keepers)
        if not ends:
            return
        await asyncio.wait(ends, timeout=grace + KILL_MARGIN_SECONDS)
        for member in self._members:
            if member.process.process.returncode is None:
                member.verdict = ("none", "stop")
                member.process.kill_tree()
        await asyncio.wait(ends, timeout=2.0)

    # --- one place for a child ------------------------------------------------------------------

    def _keep_another(self) -> None:
        keeper = self._spawn(self._keep_child())
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

    async def _keep_child(self) -> None:
        """Starts a child, and another whenever it dies, with a growing pause when that is quick."""
        quick_deaths = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            member = await self._start_child()
            await self._see_it_end(member)
            if self._stopping.is_set() or self._failure is not None:
                return
            lived = time.monotonic() - started
            quick_deaths = 0 if lived > SETTLED_SECONDS or member.leaving else quick_deaths + 1
            if quick_deaths > 1:
                pause = min(MAX_PAUSE_SECONDS, 0.1 * 2.0**quick_deaths)
                logger.warning("children die quickly: next start in %.1f s", pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()

    async def _start_child(self) -> Member:
        async with self._starting:
            process = await ChildProcess.start(self._options)
            member = Member(process, self._new_id(process.pid))
            self._members.append(member)
        self._spawn(self._listen(member))
        if self._stopping.is_set():
            member.leaving = True
            process.channel.send("stop", grace=self._settings.grace_seconds)
        return member

    async def _see_it_end(self, member: Member) -> None:
        reason = await member.process.ended()
        code = member.process.process.returncode
        if code == EXIT_CONFIG and not member.ready:
            self._failure = self._failure or "the application could not be loaded"
            self._stopping.set()
        elif not member.leaving or code != 0:
            logger.warning("child %d ended: %s", member.process.pid, reason)
        async with self._starting:
            orphans = reap_orphans(self._pids(), kill=True)
        if orphans:
            logger.warning("child %d left %d processes running: ended", member.process.pid, orphans)
        await asyncio.shield(self._bury(member, reason))
        self._members.remove(member)
        member.process.close()

    def _pids(self) -> set[int]:
        return {member.process.pid for member in self._members}

    async def _bury(self, member: Member, reason: str) -> None:
        """Reports its will, marks its ids dead everywhere and puts its jobs back in line."""
        counter: Counter = "crashes"
        if member.verdict is not None:
            counter, reason = member.verdict
        elif self._killed or (
            member.leaving and member.process.process.returncode in (0, EXIT_STUBBORN)
        ):
            counter, reason = "none", "stop"
        for queue, worker, *fields in member.will:
            await self._patiently(_last_will(self._keys.queue(queue), worker, fields))
        by_queue: dict[str, list[str]] = {}
        for seat in member.seats.values():
            by_queue.setdefault(seat.queue, []).append(seat.worker)
        for queue, workers in by_queue.items():
            call = calls.reap(
                self._keys.queue(queue),
                lease_ms=self._lease_ms,
                targets=[(worker, counter, reason) for worker in workers],
            )
            reaped = await self._patiently(call)
            while reaped is not None and reaped.more:
                reaped = await self._patiently(call)
            if reaped is not None and reaped.jobs:
                logger.warning(
                    "queue %s: %d jobs of child %d back in line",
                    queue,
                    reaped.jobs,
                    member.process.pid,
                )
        with contextlib.suppress(TaskqError):
            await self._registry.forget(member.name)

    async def _patiently(self, call: Call[T]) -> T | None:
        """Sends a call until it is done; at a stop only for a second: leases run out by themselves."""
        tries = 0
        since = time.monotonic()
        while True:
            try:
                return await self._store.once(call)
            except Exception as error:
                failure = understand(error)
                self._throttle.warning("cannot hand jobs back, will try again: %s", failure)
                if not isinstance(failure, Unavailable) and tries > 5:
                    return None
            if self._stopping.is_set() and time.monotonic() - since > 1.0:
                return None
            await asyncio.sleep(retry_delay(tries))
            tries += 1

    # --- what the children say ------------------------------------------------------------------

    async def _listen(self, member: Member) -> None:
        async for message in member.process.channel.messages():
            try:
                await self._hear(member, message)
            except Exception:
                # A child that cannot be heard would sit there without an id: it is replaced.
                logger.exception("message of child %d", member.process.pid)
                member.verdict = ("none", "supervisor failed")
                member.process.kill_tree()

    async def _hear(self, member: Member, message: dict[str, Any]) -> None:
        match message["op"]:
            case "ready":
                await self._seat(member, message)
            case "failed":
                if not any(m.ready for m in self._members):
                    # Told once, by the command, when all is over.
                    self._failure = message["message"]
                else:
                    logger.error("child %d: %s", member.process.pid, message["message"])
            case "lost":
                await self._replace_id(member, message["seat"], message["worker"])
            case "will":
                member.will += message["jobs"]
                self._replace(member)
            case "recycle":
                self._replace(member)
                member.process.channel.send("stop", grace=self._settings.grace_seconds)

    def _replace(self, member: Member) -> None:
        """Starts the successor before this one is gone, so that its place is never empty."""
        if not member.leaving and not self._stopping.is_set():
            member.leaving = True
            self._keep_another()

    async def _seat(self, member: Member, message: dict[str, Any]) -> None:
        member.queues, member.types = message["queues"], message["types"]
        member.schemas = message["schemas"]
        self._janitor.serve(*member.queues)
        for queue in member.queues:
            await self._know(queue)
        for number, queue in message["seats"]:
            await self._give_id(member, SeatRecord(number, queue, self._new_id(member.process.pid)))
        member.ready = True
        logger.info(
            "child %d serves %s: %s",
            member.process.pid,
            ", ".join(member.queues),
            ", ".join(member.types),
        )
        self._nudge.set()
        with contextlib.suppress(TaskqError):
            await self._tell(member, member.schemas)

    async def _know(self, queue: str) -> None:
        """Enters the queue in the registry; where memory is full the janitor does it later."""
        tries = 0
        while True:
            try:
                await self._store.know_queue(queue)
            except OutOfMemory as error:
                self._throttle.warning(
                    "queue %s: not entered in the registry yet: %s", queue, error
                )
                return
            except Unavailable as error:
                self._throttle.warning("waiting for Redis: %s", error)
                await asyncio.sleep(retry_delay(tries))
                tries += 1
            except TaskqError as error:
                logger.error("queue %s: not entered in the registry: %s", queue, error)
                return
            else:
                return

    async def _give_id(self, member: Member, seat: SeatRecord, lost: str | None = None) -> None:
        """A new id is beaten before the child may claim under it."""
        keys = self._keys.queue(seat.queue)
        await self._patiently(calls.heartbeat(keys, [(seat.worker, self._lease_ms, 0)]))
        member.seats[seat.number] = seat
        member.process.channel.send("id", seat=seat.number, worker=seat.worker, lost=lost)

    async def _replace_id(self, member: Member, number: int, worker: str) -> None:
        seat = member.seats.get(number)
        if seat is None or seat.worker != worker:
            return
        logger.warning("queue %s: worker id %s is lost, taking a new one", seat.queue, worker)
        fresh = SeatRecord(number, seat.queue, self._new_id(member.process.pid))
        member.seats[number] = fresh
        await self._give_id(member, fresh, worker)

    def _new_id(self, pid: int) -> str:
        return f"{self.host}:{pid}:{secrets.token_hex(4)}"

    # --- leases ---------------------------------------------------------------------------------

    async def _beat_forever(self) -> None:
        last = time.monotonic()
        while True:
            now = time.monotonic()
            if now - last > 2 * self._beat_seconds:
                # We were stopped ourselves.
                for member in self._members:
                    member.process.forget_silence()
            last = now
            try:
                await self._beat()
            except Exception as error:
                failure = understand(error)
                self._throttle.warning("cannot renew leases: %s", failure)
                await asyncio.sleep(retry_delay(3))
                continue
            self._nudge.clear()
            with contextlib.suppress(TimeoutError):
                # Not wait_for: Python 3.11's loses a cancellation that meets the end of the wait.
                async with asyncio.timeout(self._beat_seconds):
                    await self._nudge.wait()

    async def _beat(self) -> None:
        by_queue: dict[str, list[tuple[Member, SeatRecord, int, int]]] = {}
        for member in self._members:
            if not self._shows_life(member):
                continue
            for seat in member.seats.values():
                running, under_way = member.process.page.seat(seat.number)
                if running or under_way:
                    by_queue.setdefault(seat.queue, []).append((member, seat, running, under_way))
        for queue, beats in by_queue.items():
            items = [(seat.worker, self._lease_ms, running) for _, seat, running, _ in beats]
            answers = await self._store.once(calls.heartbeat(self._keys.queue(queue), items))
            for (member, seat, running, under_way), beat in zip(beats, answers, strict=True):
                await self._answered(member, seat, running + under_way, beat)
        for member in self._members:
            if member.ready:
                await self._tell(member)

    async def _answered(self, member: Member, seat: SeatRecord, held: int, beat: Any) -> None:
        if member.seats.get(seat.number) is not seat:
            return
        if beat.status == "LOST":
            await self._replace_id(member, seat.number, seat.worker)
            return
        if beat.cancel:
            member.process.channel.send("cancel", seat=seat.number, ids=list(beat.cancel))
        seat.off_beats = seat.off_beats + 1 if beat.length != held else 0
        if seat.off_beats >= 2:
            seat.off_beats = 0
            member.process.channel.send("reconcile", seat=seat.number)

    def _shows_life(self, member: Member) -> bool:
        """False, and the child is killed, when it stands still; a busy one is waited for.

        A loop that does not tick while the process uses its core is in one long call: its neighbours keep
        their leases, until the earliest deadline among its jobs is past.
        """
        now = time.monotonic()
        if not member.ready:
            return True
        silent = member.process.silent_seconds(now)
        used_cpu = member.process.used_cpu()
        if silent < self._settings.lease_seconds:
            return True
        deadline = member.process.page.earliest_deadline
        if used_cpu and not (deadline and now > deadline):
            return True
        counter: Counter = "crashes"
        reason = "held its process past a timeout" if used_cpu else "process stood still"
        if member.process.stopped():
            counter, reason = "lost", "process stopped"
        member.verdict = (counter, reason)
        logger.error("child %d: no life for %.1f s: %s", member.process.pid, silent, reason)
        member.process.kill_tree()
        return False

    async def _watch_memory(self) -> None:
        """Ends the largest process before the kernel ends the container; replaces what outgrew its cap."""
        while True:
            usage = {m: usage_of(m.process.pid) for m in self._members if m.ready}
            share = container_share()
            if share is not None and share > FULL_AT:
                everything = [use for uses in usage.values() for use in uses]
                self._end_largest(everything, f"container memory at {share:.0%}")
            for member, uses in usage.items():
                used = sum(use.rss for use in uses)
                if self._max_memory and used > self._max_memory and not member.leaving:
                    self._shrink(member, uses, used)
            await asyncio.sleep(1.0)

    def _shrink(self, member: Member, uses: list[Usage], used: int) -> None:
        largest = max(uses, key=lambda use: use.rss)
        if largest.pid != member.process.pid:
            # The process of a single job: only that one is to blame.
            member.process.channel.send("kill", pid=largest.pid, reason=OUTGROWN)
            return
        logger.warning("child %d uses %d MiB: replaced", member.process.pid, used >> 20)
        self._replace(member)
        # What then still runs may be what grew: it counts as crashed, or it would come back for ever.
        member.verdict = ("crashes", OUTGROWN)
        member.process.channel.send("stop", grace=self._settings.grace_seconds, reason="memory")

    def _end_largest(self, processes: list[Usage], reason: str) -> None:
        if not processes:
            return
        largest = max(processes, key=lambda use: use.rss)
        logger.error("%s: ending process %d (%d MiB)", reason, largest.pid, largest.rss >> 20)
        member = next((m for m in self._members if m.process.pid == largest.child), None)
        if member is None:
            return
        if largest.pid == largest.child:
            member.verdict = ("crashes", reason)
            member.process.kill_tree()
        else:
            member.process.channel.send("kill", pid=largest.pid, reason=reason)

    async def _listen_for_nudges(self) -> None:
        """A cancel is heard at once instead of with the next beat."""
        tries = 0
        while True:
            names = [
                self._keys.queue(seat.queue).control(seat.worker)
                for member in self._members
                for seat in member.seats.values()
            ]
            if not self._starting.locked():
                reap_orphans(self._pids(), kill=False)
            if not names:
                await asyncio.sleep(0.2)
                continue
            try:
                nudge = await self._blocking.redis.blpop(names, 1.0)
                tries = 0
            except Exception as error:
                self._throttle.warning("cannot listen: %s", understand(error))
                await asyncio.sleep(retry_delay(tries))
                tries += 1
                continue
            if nudge is not None:
                self._nudge.set()

    async def _tell(self, member: Member, schemas: dict[str, Any] | None = None) -> None:
        seats = member.seats.values()
        await self._registry.tell(
            WorkerInfo(
                id=member.name,
                host=self.host,
                pid=member.process.pid,
                supervisor_pid=os.getpid(),
                version=taskq_worker.__version__,
                started_at=member.started_at,
                seen_at=now_ms(),
                state="stopping" if member.leaving else "running",
                queues=tuple(member.queues),
                types=tuple(member.types),
                slots=self._options.slots,
                busy=sum(member.process.page.seat(seat.number)[0] for seat in seats),
            ),
            schemas,
        )


def _last_will(keys: QueueKeys, worker: str, fields: list[Any]) -> Call[list[str]]:
    ulid, fence, error, delay_ms, max_attempts = fields
    return calls.fail(keys, worker, [Failure(ulid, fence, error.encode(), delay_ms, max_attempts)])
