"""One scenario of the fault tests: a server, the processes over it, and what was submitted.

Submitters write TRY, ACK and UNKNOWN into the ledger, runs START and END (see ``faultapp``); ``verdict``
compares it with the server.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from support.ledger import Ledger, Line
from support.processes import Api, Process
from support.relay import Loses, Relay
from support.verdict import Judge, Verdict
from support.workers import until
from taskq import TaskQ, calls
from taskq.app import SubmitOptions, make_spec
from taskq.client import SyncClient, refusal
from taskq.codec import dumps
from taskq.doctor import examine_all
from taskq.embedded import EmbeddedServer
from taskq.errors import OutOfMemory, TaskqError, Unavailable
from taskq.ids import UlidFactory, join_id, split_id
from taskq.keys import Keys
from taskq.model import Job, JobSpec
from taskq.settings import Settings, load_settings
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore

LEASE = 3.0
JANITOR = 1.0
GRACE = 2.0
RECOVERY = LEASE + 2 * JANITOR + 2
"""R: when the jobs of a worker that died run again at the latest."""
QUEUE = "default"
TESTS = Path(__file__).parent.parent


def last(seconds: float) -> None:
    """How long a fault lasts: the only waiting here that is not for a condition."""
    time.sleep(seconds)


class Place:
    """One server, the processes over it and what was submitted; all ended by ``close``."""

    def __init__(self, folder: Path, name: str = "place", **server: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.server = EmbeddedServer(**{"port": 0, **server})
        self.server.start()
        self.url = self.server.url
        self.port = int(self.url.rsplit(":", 1)[1].split("/")[0])
        self.ledger = Ledger(folder / "ledger")
        self.keys = Keys()
        self.queue = self.keys.queue(QUEUE)
        self.app = TaskQ(settings=self.settings())
        self.client = SyncClient.from_url(self.url, "taskq")
        self.admin: Any = redis.Redis.from_url(self.url, socket_timeout=30)
        self.processes: list[Process] = []
        self.relays: list[Relay] = []
        self.lease = LEASE
        self.disturbed: dict[int, float] = {}
        """Pids that were killed, stopped or cut off, and when."""
        self.outages: list[tuple[float, float]] = []
        """When the server was away: leases may have run out meanwhile."""
        self.notes: list[str] = []
        self.kinds: dict[str, str] = {}
        """Job types by job id."""
        self.dead_letters: set[str] = set()
        """Jobs that were seen to be ``failed``: full memory may have dropped them since."""
        self._ulid = UlidFactory()
        self._lock = threading.Lock()

    def settings(self, url: str | None = None) -> Settings:
        return load_settings(
            redis_url=url or self.url,
            lease_seconds=LEASE,
            janitor_seconds=JANITOR,
            grace_seconds=GRACE,
        )

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for relay in self.relays:
            relay.close()
        self.client.close()
        self.admin.close()
        self.server.stop()
        self.ledger.close()

    def note(self, text: str) -> None:
        """A figure for the report."""
        self.notes.append(text)

    # --- processes ------------------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TASKQ_")}
        return {
            **kept,
            "TASKQ_REDIS_URL": self.url,
            "TASKQ_LEASE_SECONDS": str(LEASE),
            "TASKQ_JANITOR_SECONDS": str(JANITOR),
            "TASKQ_GRACE_SECONDS": str(GRACE),
            "FAULT_LEDGER": str(self.ledger.path),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")])
            ),
            **more,
        }

    def process(self, *arguments: str, prefix: Sequence[str] = (), **environment: str) -> Process:
        with self._lock:
            log = self.folder / f"process-{len(self.processes)}.log"
            process = Process(arguments, self.environment(**environment), log, prefix)
            self.processes.append(process)
        return process

    def worker(
        self,
        *arguments: str,
        ready: bool = True,
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> Process:
        """Starts a worker; with ``ready`` waits until it is registered."""
        words = ("worker", "-A", "support.faultapp:app", *arguments)
        process = self.process(*words, prefix=prefix, **environment)
        if ready:
            self.wait_ready(process)
        return process

    def workers(self, n: int, *arguments: str, **environment: str) -> list[Process]:
        """Starts several at once."""
        started = [self.worker(*arguments, ready=False, **environment) for _ in range(n)]
        for worker in started:
            self.wait_ready(worker)
        return started

    def wait_ready(self, worker: Process, seconds: float = 60) -> None:
        until(lambda: self.is_ready(worker), seconds, f"worker is ready: {worker.text()}")

    def is_ready(self, worker: Process) -> bool:
        assert worker.alive, worker.text()
        ids: Any = self.admin.zrange(self.keys.workers, 0, -1)
        owners = [self.admin.hget(self.keys.worker(i.decode()), "supervisor_pid") for i in ids]
        return str(worker.pid).encode() in owners

    def api(self, *, prefix: Sequence[str] = (), **environment: str) -> "Api":
        process = self.process("api", "--port", "0", prefix=prefix, **environment)
        return Api(process, until(process.url, 60, "the API listens"))

    def relay(self, loses: Loses | None = None) -> Relay:
        relay = Relay(self.port, loses)
        self.relays.append(relay)
        return relay

    def disturb(self, *pids: int) -> None:
        for pid in pids:
            self.disturbed.setdefault(pid, time.time())

    def kill(self, worker: Process) -> list[int]:
        """kill -9 of a worker's supervisor and children; answers their pids."""
        pids = worker.tree()
        self.disturb(*pids)
        worker.kill()
        return pids

    def freeze(self, worker: Process) -> None:
        """SIGSTOP of the whole tree."""
        pids = worker.tree()
        self.disturb(*pids)
        worker.signal(signal.SIGSTOP, *pids)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Around a fault of the server."""
        began = time.time()
        try:
            yield
        finally:
            self.outages.append((began, time.time()))

    # --- submission -----------------------------------------------------------------------------

    def submit(
        self,
        job_type: str,
        payloads: "int | Sequence[Any]" = 1,
        *,
        client: SyncClient | None = None,
        tries: int = 1,
        **options: Any,
    ) -> list[str]:
        """Submits jobs under idempotency keys and records TRY, ACK or UNKNOWN of each; answers the ids.

        An unknown outcome is tried again, with the same keys, ``tries`` times in all.
        """
        bodies = [{}] * payloads if isinstance(payloads, int) else list(payloads)
        jobs: list[tuple[str, JobSpec]] = []
        for body in bodies:
            key = options.get("idempotency_key") or self._ulid()
            wanted = SubmitOptions(**{**options, "queue": QUEUE, "idempotency_key": key})
            _, spec = make_spec(self._ulid, job_type, dumps(body), wanted)
            jobs.append((key, spec))
            self.kinds[join_id(QUEUE, spec.id)] = job_type
        for at in range(0, len(jobs), 500):
            self._send(client or self.client, jobs[at : at + 500], tries)
        return [join_id(QUEUE, spec.id) for _, spec in jobs]

    def _send(self, client: SyncClient, jobs: list[tuple[str, JobSpec]], tries: int) -> None:
        def record(word: str) -> None:
            self.ledger.write((word, key, join_id(QUEUE, spec.id)) for key, spec in jobs)

        record("TRY")
        for left in range(tries - 1, -1, -1):
            try:
                outcomes = client.submit_many(QUEUE, [spec for _, spec in jobs])
            except OutOfMemory:
                if not left:
                    record("REFUSED")
                    return
                time.sleep(0.2)
            except TaskqError as error:
                if not left:
                    record("UNKNOWN" if isinstance(error, Unavailable) else "REFUSED")
                    return
            else:
                for (key, spec), outcome in zip(jobs, outcomes, strict=True):
                    refused = refusal(QUEUE, spec, outcome)
                    word = "ACK" if refused is None else "REFUSED"
                    self.ledger.write([(word, key, join_id(QUEUE, spec.id), f"{time.time():.3f}")])
                return

    # --- looking --------------------------------------------------------------------------------

    def jobs(self, job_ids: Sequence[str]) -> dict[str, Job | None]:
        out: dict[str, Job | None] = {}
        for at in range(0, len(job_ids), 100):
            page = job_ids[at : at + 100]
            shown = self.client.store.run(calls.show(self.queue, [split_id(i)[1] for i in page]))
            out.update(zip(page, shown, strict=True))
        return out

    def job(self, job_id: str) -> Job:
        job = self.jobs([job_id])[job_id]
        assert job is not None, f"{job_id} is not there"
        return job

    def state(self, job_id: str) -> str:
        return str(self.job(job_id).state)

    def counts(self) -> dict[str, int]:
        return self.client.store.run(calls.counts(self.queue)).counts

    def listen(self) -> None:
        """Has the scripts write events, so that the verdict sees every move."""
        self.client.store.run(calls.listen(self.queue, 3_600_000))

    def tried(self) -> dict[str, set[str]]:
        """What the submitter wrote: words by job id."""
        out: dict[str, set[str]] = defaultdict(set)
        for words in self.ledger.words():
            if words[0] in ("TRY", "ACK", "UNKNOWN", "REFUSED"):
                out[words[2]].add(words[0])
        return out

    def acknowledged_at(self) -> dict[str, float]:
        """When a submission was answered, by job id."""
        return {w[2]: float(w[3]) for w in self.ledger.words() if w[0] == "ACK" and len(w) > 3}

    def note_dead_letters(self) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            ids = self.admin.zrange(self.queue.state(State.FAILED), 0, -1)
            self.dead_letters |= {join_id(QUEUE, i.decode()) for i in ids}

    def ended_ids(self) -> set[str]:
        """Ids of all ended jobs, whoever submitted them."""
        return {
            join_id(QUEUE, ulid.decode())
            for state in TERMINAL
            for ulid in self.admin.zrange(self.queue.state(state), 0, -1)
        }

    def wait_started(self, n: int, seconds: float = 20) -> list[Line]:
        until(lambda: len(self.ledger.starts()) >= n, seconds, f"{n} runs have started")
        return self.ledger.starts()

    def wait_ended(self, job_ids: Sequence[str], seconds: float = 30) -> dict[str, Job | None]:
        """Waits until these jobs are terminal or gone."""
        left = list(job_ids)

        def over() -> bool:
            nonlocal left
            shown = self.jobs(left)
            left = [i for i in left if (job := shown[i]) is not None and job.state not in TERMINAL]
            return not left

        try:
            until(over, seconds, "all jobs have ended")
        except AssertionError:
            stuck = [self.job(i) for i in left[:5]]
            raise AssertionError(
                f"{len(left)} of {len(job_ids)} not ended within {seconds} s: {stuck}"
            ) from None
        return self.jobs(list(job_ids))

    def findings(self) -> list[str]:
        """Errors that doctor finds."""

        async def look() -> list[str]:
            store = AsyncStore.from_url(self.url, self.keys)
            try:
                found = await examine_all(store)
            finally:
                await store.close()
            return [f"{f.subject}: {f.message}" for f in found if f.severity == "error"]

        return asyncio.run(look())

    def verdict(
        self,
        seconds: float = 30,
        *,
        drained: bool = True,
        rerun_allowed: Callable[[Line, Line], bool] | None = None,
        unrun: frozenset[State] = frozenset({State.CANCELLED, State.FAILED}),
        trimmed: bool = False,
        raises: bool = True,
    ) -> Verdict:
        """Waits for the end of all that was submitted and judges it; raises on any problem.

        ``rerun_allowed(first, second)``: further reasons of the scenario for a second START. ``unrun``:
        states in which a job may end without having run to its end. ``trimmed``: what ran to its end may be
        gone already.
        """
        if drained:
            there = [i for i, job in self.jobs(list(self.tried())).items() if job is not None]
            with contextlib.suppress(AssertionError) if not raises else contextlib.nullcontext():
                self.wait_ended(there, seconds)
        judge = Judge(self, allowed=rerun_allowed, unrun=unrun, trimmed=trimmed)
        v = judge.judge(drained=drained)
        if raises:
            assert not v.problems, f"{v.figures()}\n" + "\n".join(v.problems[:20])
        return v
