"""One reader of event streams a process, for all its clients.

It reads the queues that somebody wants, renews their listening, and hands each event to the clients whose
filter shows it: made once a filter, put into a buffer with a bound. A client that does not keep up loses its
buffer and is told so. Nobody waits for anybody.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from taskq.aio import end_tasks
from taskq.calls import LISTEN_MS
from taskq.errors import TaskqError, Unavailable
from taskq.events import MAX_SEQ, PAGE, Event, EventReader, Look, Position, StreamId
from taskq.store import retry_delay
from taskq_api.errors import Refused
from taskq_api.sse import Filter, Message, messages, reset

logger = logging.getLogger("taskq.api")

MAX_STREAMS = 2000
MAX_QUEUES = 1000
"""Queues that one process reads at most."""
MAX_PENDING = 1000
MAX_PENDING_BYTES = 1_048_576
LOOK_SECONDS = 1.0
"""Between looks for new queues, at the server's clock and at whether it is still the same server."""
RENEW_SECONDS = LISTEN_MS / 4000
LINGER_SECONDS = 10.0
PREPARE_SECONDS = 5.0
"""How long a new stream waits, also for those before it."""
BLOCK_MS = 200
GATHER_SECONDS = 0.02
"""Pause after each read: what happens meanwhile is read at once."""


class Client:
    """One stream's buffer. ``start`` is how far its queues were read when it came, as is ``position``."""

    def __init__(self, wanted: Filter, start: dict[str, StreamId], position: Position) -> None:
        self.wanted = wanted
        self.start = start
        self.position = position
        self.ended = False
        self.resets = 0
        self._pending: list[Message] = []
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, message: Message, position: str) -> None:
        if len(self._pending) >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES:
            self._pending.clear()
            self._bytes = 0
            self.resets += 1
            message = reset(None, "slow", position)
        self._pending.append(message)
        self._bytes += len(message.data)
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def take(self, timeout_seconds: float) -> list[Message]:
        """All that waits; nothing when none came in time, or when it is over."""
        if not (self._pending or self.ended):
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass  # something may have come at that moment
        taken, self._pending = self._pending, []
        self._bytes = 0
        return taken


class Hub:
    """``prepare`` before a stream begins, ``join`` when it does, ``leave`` at its end."""

    def __init__(self, reader: EventReader) -> None:
        self.reader = reader
        self.resets = 0
        self._groups: dict[Filter, set[Client]] = {}
        self._wide: set[Filter] = set()
        """Those that are not about one job: each event is held against these alone."""
        self._of_job: dict[tuple[str, str], set[Filter]] = defaultdict(set)
        self._after: dict[str, StreamId] = {}
        self._wanted_at: dict[str, float] = {}
        self._base = 0
        self._further: dict[str, StreamId] = {}
        self._known: frozenset[str] = frozenset()
        self._run_id = ""
        self._look_at = self._renew_at = self._linger_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(len(clients) for clients in self._groups.values())

    @property
    def position(self) -> Position:
        """How far all has been handed out."""
        return Position(self._base, dict(self._further))

    async def prepare(self, wanted: Filter) -> None:
        """Sees to it that what is wanted is read from now on.

        Raises ``Refused`` where there are too many streams or queues, ``Unavailable``.
        """
        if self._closed or self.streams >= MAX_STREAMS:
            raise Refused("too_many_streams", "this process has no room for another stream")
        try:
            async with asyncio.timeout(PREPARE_SECONDS), self._lock:
                await self._prepare(wanted)
        except TimeoutError:
            raise Unavailable("Redis did not answer in time", reason="timeout") from None

    async def _prepare(self, wanted: Filter) -> None:
        loop = asyncio.get_running_loop()
        self._linger_until = loop.time() + LINGER_SECONDS
        if not self._base:
            await self._begin()
        missing = [q for q in self._wanted_queues([wanted]) if q not in self._after]
        if len(self._after) + len(missing) > MAX_QUEUES:
            raise Refused("too_many_streams", f"more than {MAX_QUEUES} queues; name some")
        for queue, at in (await self.reader.listen(missing)).items():
            self._follow(queue, at)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def join(self, wanted: Filter) -> Client:
        start = {queue: at for queue, at in self._after.items() if wanted.reads(queue)}
        client = Client(wanted, start, wanted.position(self.position))
        self._groups.setdefault(wanted, set()).add(client)
        if wanted.job is not None:
            for queue in wanted.queues or ():
                self._of_job[queue, wanted.job].add(wanted)
        else:
            self._wide.add(wanted)
        if self._closed:
            client.end()
        return client

    def leave(self, client: Client) -> None:
        group = self._groups.get(client.wanted, set())
        group.discard(client)
        self.resets += client.resets
        client.resets = 0
        if not group:
            self._groups.pop(client.wanted, None)
            self._wide.discard(client.wanted)
            for queue in client.wanted.queues or ():
                filters = self._of_job.get((queue, client.wanted.job or ""), set())
                filters.discard(client.wanted)
                if not filters:
                    self._of_job.pop((queue, client.wanted.job or ""), None)
        self._linger_until = asyncio.get_running_loop().time() + LINGER_SECONDS

    async def close(self) -> None:
        """Ends all streams, and the reader."""
        self._closed = True
        for clients in self._groups.values():
            for client in clients:
                client.end()
        await end_tasks(self._task)

    # --- reading --------------------------------------------------------------------------------

    async def _begin(self) -> None:
        look = await self.reader.look()
        self._run_id, self._known = look.run_id, look.queues
        self._renew_at = asyncio.get_running_loop().time() + RENEW_SECONDS
        self._base = look.now

    def _follow(self, queue: str, at: StreamId) -> None:
        if queue not in self._after:
            self._after[queue] = self._further[queue] = at
            self._wanted_at[queue] = asyncio.get_running_loop().time()

    def _wanted_queues(self, filters: Iterable[Filter]) -> set[str]:
        wanted: set[str] = set()
        for one in filters:
            if one.queues is None:
                wanted |= self._known
            else:
                wanted |= one.queues if one.named else one.queues & self._known
        return set(sorted(wanted)[:MAX_QUEUES])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tries = 0
        while self._groups or loop.time() < self._linger_until:
            try:
                await self._round(loop.time())
                tries = 0
            except Exception as error:
                if not isinstance(error, TaskqError):
                    logger.exception("events cannot be read")
                elif tries % 10 == 0:
                    logger.warning("events cannot be read now: %s", error)
                await asyncio.sleep(retry_delay(tries))
                tries += 1
        self._after, self._further, self._wanted_at, self._base = {}, {}, {}, 0

    async def _round(self, now: float) -> None:
        look = None
        if now >= self._look_at:
            look = await self.reader.look()
            await self._follow_up(look, now)
            self._look_at = now + LOOK_SECONDS
        after = dict(self._after)
        events = await self.reader.read(after, BLOCK_MS) if after else []
        counts: dict[str, int] = defaultdict(int)
        for event in events:
            counts[event.queue] += 1
            self._after[event.queue] = self._further[event.queue] = event.id
            self._hand_out(event)
        if look is not None:
            # All that was written before that look is handed out, but where there was more than a page.
            self._base = look.now
            self._further = {
                queue: at
                for queue, at in self._further.items()
                if at[0] >= look.now or counts[queue] >= PAGE or queue not in after
            }
        await asyncio.sleep(GATHER_SECONDS if events or not after else 0)

    async def _follow_up(self, look: Look, now: float) -> None:
        """Another server process, new queues, queues that nobody wants any more, and the renewal."""
        self._known = look.queues
        if look.run_id != self._run_id:
            self._run_id, self._renew_at = look.run_id, 0.0
            self._reset_all("restarted")
        wanted = self._wanted_queues(self._groups)
        for queue in wanted:
            self._wanted_at[queue] = now
        for queue in [q for q in self._after if now - self._wanted_at[q] > LINGER_SECONDS]:
            del self._after[queue], self._wanted_at[queue]
            self._further.pop(queue, None)
        new = wanted - self._after.keys()
        renewed = set(self._after) if now >= self._renew_at else set()
        if renewed:
            self._renew_at = now + RENEW_SECONDS
        heard = await self.reader.listen(sorted(new | renewed))
        for queue in new & heard.keys():
            # It was not there at the last look: all that its stream has since is news.
            self._follow(queue, (self._base - 1, MAX_SEQ))

    # --- handing out ----------------------------------------------------------------------------

    def _hand_out(self, event: Event) -> None:
        position = self.position
        for wanted in self._concerned(event):
            clients = self._groups.get(wanted)
            if clients:
                for message in messages(wanted, event, position):
                    self._put(wanted, clients, message, position)

    def _concerned(self, event: Event) -> Iterable[Filter]:
        if event.jobs and not event.hidden:
            for ulid, _ in event.jobs:
                yield from tuple(self._of_job.get((event.queue, ulid), ()))
            yield from [w for w in self._wide if w.reads(event.queue)]
        else:
            yield from [w for w in self._groups if w.reads(event.queue)]

    def _reset_all(self, reason: str) -> None:
        position = self.position
        for wanted, clients in self._groups.items():
            message = reset(None, reason, str(wanted.position(position)))
            self._put(wanted, clients, message, position)

    def _put(
        self, wanted: Filter, clients: set[Client], message: Message, position: Position
    ) -> None:
        if message.event == "reset":
            self.resets += len(clients)
        at = str(wanted.position(position))
        for client in clients:
            client.put(message, at)
