"""A child: the process that claims and runs jobs. Started by a supervisor, never by hand.

It learns its worker ids over the control channel, beats no lease itself, and when its supervisor is gone
it hands back what it holds and ends: nobody would renew its leases any more.
"""

import asyncio
import contextlib
import gc
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from taskq import calls
from taskq.app import TaskQ
from taskq.errors import TaskqError
from taskq.keys import Keys
from taskq.log import configure_logging
from taskq.settings import Settings
from taskq.store import AsyncStore
from taskq.verdict import error_json
from taskq_worker.control import Channel
from taskq_worker.executors import CoroutineExecutor, Executor, ProcessExecutor, ThreadExecutor
from taskq_worker.lane import MAX_SLOTS, Lane
from taskq_worker.loader import load_app, queues_of, schemas_of
from taskq_worker.options import EXIT_CONFIG, EXIT_STUBBORN, STUBBORN_SECONDS, ChildOptions
from taskq_worker.outcome import failed
from taskq_worker.reporter import Reporter
from taskq_worker.runner import Runner
from taskq_worker.runs import Run
from taskq_worker.seat import Seat
from taskq_worker.shared import SharedPage

logger = logging.getLogger("taskq.worker")

SWEEP_SECONDS = 0.1
TELL_SECONDS = 2.0


class Child:
    def __init__(
        self, options: ChildOptions, settings: Settings, channel: Channel, page: SharedPage
    ):
        self._options = options
        self._settings = settings
        self._channel = channel
        self._page = page
        self._lanes: list[Lane] = []
        self._seats: list[Seat] = []
        self._stop = asyncio.Event()
        self._stop_at = float("inf")
        """When runs that still go on are handed back; a later wish may only bring it forward."""
        self._stop_reason = "stop"
        self._orphaned = False
        self._stubborn = False
        self._finished = 0
        self._background: set[asyncio.Task[None]] = set()
        self._resources = contextlib.AsyncExitStack()

    async def run(self, app: TaskQ) -> int:
        """Serves until asked to stop; answers the exit code."""
        listener = asyncio.create_task(self._listen())
        try:
            await self._start(app)
        except Exception as error:
            logger.exception("cannot start")
            self._channel.send("failed", message=f"the application cannot start: {error!r}")
            await self._channel.drain()
            return EXIT_CONFIG
        services = [
            asyncio.create_task(self._sweep()),
            asyncio.create_task(self._tell()),
            asyncio.create_task(self._reporter.run()),
            *(asyncio.create_task(lane.committer.run()) for lane in self._lanes),
        ]
        fetchers = [asyncio.create_task(lane.fetcher.run()) for lane in self._lanes]
        watch = asyncio.create_task(_first_failure([*services, *fetchers]))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([watch, stopped], return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not watch.cancelled():
            logger.critical("a loop of this worker ended: %r", watch.result())
            self._stop_within(self._settings.grace_seconds)
        await self._wind_down()
        for task in (*fetchers, *services, watch, stopped, listener):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._close()
        return EXIT_STUBBORN if self._stubborn else 0

    async def _start(self, app: TaskQ) -> None:
        self._app_tasks = app.tasks
        state = None
        for lifespan in app.lifespans:
            yielded = await self._resources.enter_async_context(lifespan())
            state = state if yielded is None else yielded
        queues = self._options.queues or queues_of(app)
        keys = Keys(self._settings.namespace)
        slots = self._options.slots
        lanes = -(-slots // MAX_SLOTS)
        self._stores: list[AsyncStore] = []
        self._reporter = Reporter(self._store(keys))
        self._processes = ProcessExecutor(
            {
                "app": self._options.app,
                "builtins": self._options.builtins,
                "settings": self._options.settings,
            }
        )
        self._executors: dict[str, Executor] = {
            "async": CoroutineExecutor(),
            "thread": ThreadExecutor(slots),
            "process": self._processes,
        }
        runner = Runner(app.tasks, app.middlewares, self._executors)
        for index in range(lanes):
            seats = [
                Seat(index * len(queues) + i, keys.queue(queue), self._page)
                for i, queue in enumerate(queues)
            ]
            self._seats += seats
            self._lanes.append(
                Lane(
                    slots=slots // lanes + (1 if index < slots % lanes else 0),
                    seats=seats,
                    tasks=app.tasks,
                    runner=runner,
                    stores=(self._store(keys), self._store(keys), self._store(keys)),
                    lease_ms=round(self._settings.lease_seconds * 1000),
                    state=state,
                    reporter=self._reporter,
                    lost_id=self._lost_id,
                    ended=self._ended,
                )
            )
        # What is there by now stays: a collection need not walk it for every few jobs.
        gc.collect()
        gc.freeze()
        self._channel.send(
            "ready",
            queues=queues,
            types=sorted(app.tasks),
            schemas=schemas_of(app),
            seats=[[seat.number, seat.queue] for seat in self._seats],
        )

    def _store(self, keys: Keys) -> AsyncStore:
        # A connection that has gone silent must be noticed, and a fresh one tried, within a lease.
        patience = max(2.0, min(10.0, self._settings.lease_seconds / 3))
        store = AsyncStore.from_url(self._settings.redis_url, keys, socket_timeout=patience)
        self._stores.append(store)
        return store

    # --- what the supervisor says ---------------------------------------------------------------

    async def _listen(self) -> None:
        async for message in self._channel.messages():
            try:
                self._hear(message)
            except Exception:
                logger.exception("message of the supervisor: %r", message)
        if not self._stop.is_set():
            logger.warning("the supervisor is gone: handing back and ending")
        self._orphaned = True
        self._stop_within(0)

    def _hear(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "id":
                self._take_id(self._seats[message["seat"]], message["worker"], message.get("lost"))
            case "cancel":
                self._cancel(self._seats[message["seat"]], message["ids"])
            case "reconcile":
                seat = self._seats[message["seat"]]
                self._in_background(self._reconcile(seat))
            case "quiet":
                for lane in self._lanes:
                    lane.fetcher.quiet = True
            case "kill":
                self._processes.kill(message["pid"], message["reason"])
            case "stop":
                self._stop_within(message["grace"])
                self._stop_reason = message.get("reason", "stop")

    def _stop_within(self, grace_seconds: float) -> None:
        self._stop_at = min(self._stop_at, time.monotonic() + grace_seconds)
        self._stop.set()

    def _take_id(self, seat: Seat, worker: str, lost: str | None) -> None:
        if seat.worker is not None and seat.worker != lost:
            return
        if seat.worker is not None:
            self._lose(seat)
        seat.take_id(worker)

    def _lost_id(self, seat: Seat, worker: str) -> None:
        """A claim was refused: this id is dead, the supervisor gives a new one."""
        if seat.worker == worker:
            self._lose(seat)
        self._channel.send("lost", seat=seat.number, worker=worker)

    def _lose(self, seat: Seat) -> None:
        lost = seat.lose_id()
        if lost:
            logger.warning("queue %s: lease lost, %d runs are dropped", seat.queue, len(lost))
        now = time.monotonic()
        for run in lost:
            run.ask_to_stop("lease_lost", now)

    def _cancel(self, seat: Seat, ulids: list[str]) -> None:
        now = time.monotonic()
        for ulid in ulids:
            run = seat.running.get(ulid)
            if run is not None and run.stop_asked_at is None:
                run.ask_to_stop("cancelled", now)

    async def _reconcile(self, seat: Seat) -> None:
        worker, held = seat.worker, seat.held()
        if worker is None:
            return
        with contextlib.suppress(TaskqError):
            reply = await self._stores[0].run(
                calls.reconcile(seat.keys, worker, seat.answered, held), retry_seconds=2.0
            )
            if reply.status == "LOST":
                self._lost_id(seat, worker)
                return
            if reply.released:
                logger.warning("queue %s: %d unheld jobs handed back", seat.queue, reply.released)
            now = time.monotonic()
            for ulid in reply.not_mine:
                run = seat.running.get(ulid)
                if run is not None and (ulid, run.claimed.fence) in held:
                    run.ask_to_stop("lease_lost", now)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        # The loop keeps only a weak reference to a task.
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- runs -----------------------------------------------------------------------------------

    def _runs(self) -> list[Run]:
        return [run for lane in self._lanes for run in lane.runs.values()]

    def _ended(self, run: Run) -> None:
        self._finished += 1
        if self._options.max_jobs and self._finished == self._options.max_jobs:
            logger.info("%d jobs done: this process is replaced", self._finished)
            self._channel.send("recycle")

    async def _sweep(self) -> None:
        """Ticks, enforces timeouts, and gives the process up for runs that cannot be stopped."""
        while True:
            now = time.monotonic()
            earliest = 0.0
            for run in self._runs():
                if run.deadline is not None:
                    if now >= run.deadline and run.stop_asked_at is None:
                        run.ask_to_stop("timeout", now)
                    due = run.deadline + STUBBORN_SECONDS
                    earliest = due if earliest == 0 else min(earliest, due)
                if run.stop_asked_at is not None and not self._stop.is_set():
                    if now - run.stop_asked_at > STUBBORN_SECONDS:
                        self._give_up()
                        break
                    run.insist(now)
            self._page.tick(earliest)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _tell(self) -> None:
        """What was done so far, for the record that the supervisor keeps (``taskq.registry.COUNTED``)."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            self._channel.send(
                "counted",
                claims=sum(lane.fetcher.claims for lane in self._lanes),
                claimed_jobs=sum(lane.fetcher.claimed for lane in self._lanes),
                reports=sum(lane.committer.reports for lane in self._lanes),
                reported_jobs=sum(lane.committer.sent for lane in self._lanes),
                redis_errors=sum(store.errors.total() for store in self._stores),
                abandoned_slots=sum(run.written_off for run in self._runs()),
            )

    def _give_up(self) -> None:
        """Some run does not end: the process must. The others get their grace, then it is ended.

        What cannot be stopped is told to the supervisor, which reports it when this process is gone: so a
        second run never begins beside the first.
        """
        now = time.monotonic()
        will = []
        for run in self._runs():
            if run.stop_asked_at is None or now - run.stop_asked_at <= STUBBORN_SECONDS:
                continue
            run.written_off = True
            if run.context.stop_reason in ("timeout", "cancelled"):
                kind = "Timeout" if run.context.stop_reason == "timeout" else "Cancelled"
                text = error_json(kind, "did not end when asked to; its process was ended", None)
                outcome = failed(run, self._task_of(run), text)
                will.append(
                    [
                        run.seat.queue,
                        run.worker,
                        run.claimed.ulid,
                        run.claimed.fence,
                        outcome.error.decode(),
                        outcome.delay_ms,
                        outcome.max_attempts,
                    ]
                )
        logger.error("%d runs cannot be stopped: this process will be ended for it", len(will))
        self._stubborn = True
        self._channel.send("will", jobs=will)
        self._stop_within(self._settings.grace_seconds)

    def _task_of(self, run: Run) -> Any:
        return self._app_tasks.get(run.claimed.job_type)

    # --- the end --------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Stops claiming at once, lets runs end within the grace, hands the rest back."""
        for lane in self._lanes:
            lane.fetcher.stopping = True
            lane.fetcher.slot_freed.set()
        await self._until(
            lambda: (
                (not self._awaited() and self._claims_answered())
                or time.monotonic() >= self._stop_at
            ),
            float("inf"),
        )
        now = time.monotonic()
        for run in self._runs():
            run.ask_to_stop(self._stop_reason, now)
        await self._until(lambda: not self._awaited() and self._claims_answered(), now + 1.0)
        flush = asyncio.gather(
            self._reporter.flush(), *(lane.committer.flushed() for lane in self._lanes)
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await flush

    def _awaited(self) -> list[Run]:
        return [run for run in self._runs() if not run.written_off]

    def _claims_answered(self) -> bool:
        return all(lane.fetcher.idle for lane in self._lanes)

    async def _until(self, condition: Callable[[], bool], until: float) -> None:
        while not condition() and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _close(self) -> None:
        try:
            await self._resources.aclose()
        except Exception:
            logger.exception("a lifespan failed while closing")
        for store in self._stores:
            with contextlib.suppress(Exception):
                await store.close()


async def _first_failure(tasks: "list[asyncio.Task[None]]") -> BaseException | None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        return task.exception()
    return None


async def _serve(options: ChildOptions, settings: Settings, control_fd: int, page_fd: int) -> int:
    channel = await Channel.open(socket.socket(fileno=control_fd))
    page = SharedPage(page_fd)
    try:
        app = load_app(options.app, settings, builtins=options.builtins)
    except TaskqError as error:
        channel.send("failed", message=str(error))
        await channel.drain()
        return EXIT_CONFIG
    return await Child(options, settings, channel, page).run(app)


async def _serve_and_exit(
    options: ChildOptions, settings: Settings, control_fd: int, page_fd: int, folder: str
) -> None:
    code = await _serve(options, settings, control_fd, page_fd)
    with contextlib.suppress(ValueError, OSError):  # a job may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    shutil.rmtree(folder, ignore_errors=True)
    # At once: runs and threads that cannot be stopped would hold the loop's and the interpreter's end.
    os._exit(code)


def _answer_signals_again() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # forked from another thread than the main one
            signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Entry point of the process."""
    # Stopping is the supervisor's to order: a Ctrl-C in the terminal must not end runs half way.
    # A handler and not SIG_IGN, which what a job starts would inherit and then could not be stopped by.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_answer_signals_again)
    raw = json.loads(os.environ.pop(ChildOptions.ENVIRONMENT))
    control_fd, page_fd = raw.pop("fds")
    # Where multiprocessing keeps its sockets: the supervisor clears it away, however we end.
    folder = raw.pop("folder")
    multiprocessing.current_process()._config["tempdir"] = folder  # type: ignore[attr-defined]
    options = ChildOptions(**raw)
    settings = Settings(**options.settings)
    configure_logging(settings)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve_and_exit(options, settings, control_fd, page_fd, folder))
    else:
        uvloop.run(_serve_and_exit(options, settings, control_fd, page_fd, folder))


if __name__ == "__main__":
    main()
