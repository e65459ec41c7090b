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
import re
import secrets
import signal
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from taskq import calls
from taskq.aio import end_tasks
from taskq.calls import Call, Failure
from taskq.errors import ConfigError, OutOfMemory, TaskqError, Unavailable
from taskq.janitor import Janitor
from taskq.keys import Keys, QueueKeys
from taskq.liveness import show_life
from taskq.registry import Registry
from taskq.settings import Settings
from taskq.store import AsyncStore, retry_delay
from taskq_worker.beats import Beats
from taskq_worker.failures import understand
from taskq_worker.member import Counter, Member, SeatRecord
from taskq_worker.memory import MemoryWatch
from taskq_worker.options import EXIT_CONFIG, EXIT_STUBBORN, ChildOptions
from taskq_worker.process import ChildProcess, become_subreaper, reap_orphans
from taskq_worker.throttle import Throttle

logger = logging.getLogger("taskq.supervisor")

T = TypeVar("T")
SETTLED_SECONDS = 10.0
"""A child that lived this long is started anew without a pause when it dies."""
MAX_PAUSE_SECONDS = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NO_HURRY_SECONDS = 31_536_000.0
KILL_MARGIN_SECONDS = 1.5
"""What a stopping child gets beyond the grace to hand back and report."""


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
        self._options = ChildOptions(
            app,
            builtins,
            queues,
            slots,
            max_jobs,
            settings.model_dump(exclude={"api_keys", "health_file"}),
        )
        self._processes = processes
        self._keys = Keys(settings.namespace)
        self._store = AsyncStore.from_url(settings.redis_url, self._keys)
        self._blocking = AsyncStore.from_url(settings.redis_url, self._keys, socket_timeout=3.0)
        self._registry = Registry(self._store, ttl_seconds=max(30.0, 3 * settings.lease_seconds))
        self._janitor = Janitor(
            self._store,
            every_seconds=settings.janitor_period,
            lease_seconds=settings.lease_seconds,
        )
        self._members: list[Member] = []
        self._stopping = asyncio.Event()
        self._killed = False
        self._quiet = False
        """Nothing more is claimed, by no child, until the end."""
        self._starting = asyncio.Lock()
        """Held while a child is started: until it is a member it must not be taken for an orphan."""
        self._failure: str | None = None
        self._forgotten: list[str] = []
        """Children that ended in the stop, to leave the registry."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._keepers: set[asyncio.Task[None]] = set()
        """One per place of a child."""
        self._throttle = Throttle(logger)
        self._host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60]
        # A half-open connection must be noticed, and a fresh one tried, well within a lease.
        self._beat_store = AsyncStore.from_url(
            settings.redis_url,
            self._keys,
            socket_timeout=max(0.3, min(2.0, settings.lease_seconds / 6)),
            max_connections=4,
        )
        self._beats = Beats(
            self._members,
            self._keys,
            (self._beat_store, self._blocking),
            self._registry,
            host=self._host,
            slots=slots,
            lease_seconds=settings.lease_seconds,
            replace_id=self._replace_id,
            starting=self._starting,
            wished=self._wished,
        )
        self._memory = MemoryWatch(
            self._members,
            most=max_memory_mb * 1_048_576,
            grace_seconds=settings.grace_seconds,
            replace=self._replace,
        )

    # --- the life of the whole ------------------------------------------------------------------

    async def run(self) -> int:
        """Serves until a signal; answers the exit code. Raises ``ConfigError`` if the app cannot start."""
        become_subreaper()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        for _ in range(self._processes):
            self._keep_another()
        for service in (
            self._beats.run(),
            self._beats.listen_for_nudges(),
            self._janitor.run(),
            self._memory.run(),
            show_life(self._settings.health_file),
        ):
            self._spawn(service)
        await self._stopping.wait()
        await self._stop_children()
        await end_tasks(*self._tasks)
        with contextlib.suppress(TaskqError, TimeoutError):
            async with asyncio.timeout(0.3):
                await self._registry.forget(*self._forgotten)
        for store in (self._store, self._beat_store, self._blocking):
            with contextlib.suppress(Exception):
                await store.close()
        _hear_no_more_signals(loop)
        if self._failure is not None:
            raise ConfigError(self._failure)
        return 0

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a loop of the supervisor ended", exc_info=task.exception())

    def _signalled(self) -> None:
        if self._stopping.is_set():
            logger.warning("second signal: ending the children now")
            self._killed = True
            for member in self._members:
                member.process.kill_tree()
            return
        logger.info("stopping: running jobs get %g s", self._settings.grace_seconds)
        self._stopping.set()

    def _wished(self, wish: str) -> None:
        """What people ask of this worker over the API; asked again it changes nothing."""
        if wish == "stop" and not self._stopping.is_set():
            logger.info("asked to stop: running jobs get %g s", self._settings.grace_seconds)
            self._stopping.set()
        elif wish == "quiet" and not self._quiet:
            logger.info("asked to be quiet: nothing more is claimed")
            self._quiet = True
            for member in self._members:
                self._hush(member)
            self._beats.now()

    def _hush(self, member: Member) -> None:
        # From its "ready" on, before it has an id to claim under.
        if member.queues and not member.quiet:
            member.quiet = True
            member.process.channel.send("quiet")

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
        """Starts a child, and another whenever it dies, with a growing pause when that is quick.

        Ends when its child was replaced: the successor has a keeper of its own.
        """
        quick_deaths = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                member = await self._start_child()
            except Exception:
                # No file descriptors, no memory, no interpreter: it may come back.
                logger.exception("cannot start a child")
                quick_deaths += 1
            else:
                await self._see_it_end(member)
                if self._failure is not None or member.leaving:
                    return
                lived = time.monotonic() - started
                quick_deaths = 0 if lived > SETTLED_SECONDS else quick_deaths + 1
            if quick_deaths > 1 and not self._stopping.is_set():
                pause = min(MAX_PAUSE_SECONDS, 0.1 * 2.0 ** min(quick_deaths, 10))
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
        if self._stopping.is_set():
            # All at once at the end: a server that is away must not be waited for again and again.
            self._forgotten.append(member.name)
            return
        with contextlib.suppress(TaskqError):
            await self._registry.forget(member.name)

    async def _patiently(self, call: Call[T]) -> T | None:
        """Sends a call until it is done; at a stop only for a second: leases run out by themselves."""
        tries = 0
        since = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(0.6 if self._stopping.is_set() else None):
                    return await self._store.once(call)
            except Exception as error:
                failure = understand(error)
                self._throttle.warning("cannot hand jobs back, will try again: %s", failure)
                if not isinstance(failure, Unavailable) and tries > 5:
                    return None
            if self._stopping.is_set() and time.monotonic() - since > 0.4:
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
            case "counted":
                member.counted = {name: n for name, n in message.items() if name != "op"}
            case "will":
                member.will += message["jobs"]
                self._replace(member)
            case "recycle":
                self._replace(member)
                # Its successor works already, so its jobs may end in their own time.
                member.process.channel.send("stop", grace=NO_HURRY_SECONDS)

    def _replace(self, member: Member) -> None:
        """Starts the successor before this one is gone, so that its place is never empty."""
        if not member.leaving and not self._stopping.is_set():
            member.leaving = True
            self._keep_another()

    async def _seat(self, member: Member, message: dict[str, Any]) -> None:
        member.queues, member.types = message["queues"], message["types"]
        member.schemas = message["schemas"]
        if self._quiet:
            self._hush(member)
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
        self._beats.now()
        with contextlib.suppress(TaskqError):
            await self._beats.tell(member, member.schemas)

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
        # Dead for the server too: a claim still on its way under the old id must not take jobs.
        await self._patiently(
            calls.reap(
                self._keys.queue(seat.queue),
                lease_ms=self._lease_ms,
                targets=[(worker, "none", "id given up")],
            )
        )
        await self._give_id(member, fresh, worker)

    def _new_id(self, pid: int) -> str:
        return f"{self._host}:{pid}:{secrets.token_hex(4)}"


def _last_will(keys: QueueKeys, worker: str, fields: list[Any]) -> Call[list[str]]:
    ulid, fence, error, delay_ms, max_attempts = fields
    return calls.fail(keys, worker, [Failure(ulid, fence, error.encode(), delay_ms, max_attempts)])


def _hear_no_more_signals(loop: asyncio.AbstractEventLoop) -> None:
    """The work is done: a signal that meets the end of the interpreter must not look like a violent death.

    Held back meanwhile, since the loop puts the default handlers back when it lets go of its own. Only what
    is ignored stays so to the very end: Python puts all other handlers back before it has ended.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
