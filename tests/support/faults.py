"""Faults, and the verdict after them: nothing acknowledged is lost, nothing runs twice without a reason.

A ``Place`` is one server with the workers and the submitter of one scenario. Its ledger is a file that
is only appended to and that no fault touches: submitters write TRY, ACK and UNKNOWN there, runs START
and END (see ``faultapp``). ``Place.verdict`` waits until all has ended and compares ledger and server:
the multisets of Jepsen's total-queue checker, and the invariants V1 to V8.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import redis

from support.relay import Loses, Relay
from support.workers import until
from taskq import TaskQ, calls, lua
from taskq.app import SubmitOptions, make_spec
from taskq.calls import MAX_CRASHES, MAX_LOST
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
COMMAND = "from taskq.cli import main; main()"
TESTS = Path(__file__).parent.parent


# --- the ledger -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """START, END or DIE of a run."""

    job_id: str
    attempt: int
    fence: int
    pid: int
    at: float
    how: str = ""
    parent: int = 0
    """Of a START. A run in a process of its own is reported by its parent, and lost with it."""


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, lines: Iterable[Sequence[object]]) -> None:
        text = "".join(" ".join(str(word) for word in line) + "\n" for line in lines)
        os.write(self._fd, text.encode())

    def words(self) -> Iterator[list[str]]:
        with self.path.open() as file:
            for line in file:
                if line.endswith("\n"):
                    yield line.split()

    def lines(self, event: str) -> list[Line]:
        return [_line(w) for w in self.words() if w[0] == event]

    def starts(self, *job_ids: str) -> list[Line]:
        lines = self.lines("START")
        return [line for line in lines if line.job_id in job_ids] if job_ids else lines

    def ends(self) -> list[Line]:
        return self.lines("END")

    def close(self) -> None:
        os.close(self._fd)


def _line(w: list[str]) -> Line:
    line = Line(w[1], int(w[2]), int(w[3]), int(w[4]), float(w[5]))
    if w[0] == "START":
        return replace(line, parent=int(w[6]))
    return replace(line, how=w[6]) if len(w) > 6 else line


# --- processes --------------------------------------------------------------------------------------


class Process:
    """A ``taskq`` command in a session of its own; ``prefix`` says on which host."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        log: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [*prefix, sys.executable, "-c", COMMAND, *arguments],
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def tree(self) -> list[int]:
        """Pids of all below it, and its own last."""
        try:
            below = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            below = []
        return [*(p.pid for p in below), self.pid]

    def children(self) -> list[int]:
        """Pids of the children that run jobs."""
        try:
            return [p.pid for p in psutil.Process(self.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: int, *pids: int) -> None:
        for pid in pids or self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """kill -9 of the whole tree, as a host that dies."""
        self.signal(signal.SIGKILL)
        self.popen.wait(10)

    def stop(self, timeout: float = 15) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


# --- one scenario's place ---------------------------------------------------------------------------


@dataclass
class Verdict:
    """What became of the submissions, in the words of Jepsen's total-queue checker."""

    attempted: int = 0
    acknowledged: int = 0
    ok: int = 0
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    duplicated: int = 0
    """Jobs with more than one START, retries of failed runs left out."""
    recovered: int = 0
    """Submissions of unknown outcome that are there."""
    recovery: list[float] = field(default_factory=list)
    """Seconds from the death of a run's process to the job's next START."""
    problems: list[str] = field(default_factory=list)
    states: "Counter[str]" = field(default_factory=Counter)

    def figures(self) -> str:
        times = sorted(self.recovery)
        shown = "-"
        if times:
            p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
            shown = f"{times[len(times) // 2]:.1f}/{p99:.1f}"
        return (
            f"attempted={self.attempted} acknowledged={self.acknowledged} ok={self.ok} "
            f"lost={len(self.lost)} unexpected={len(self.unexpected)} "
            f"duplicated={self.duplicated} recovered={self.recovered} recovery_p50/p99={shown}"
        )


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
        until(lambda: self._registered(worker), seconds, f"worker is ready: {worker.text()}")

    def _registered(self, worker: Process) -> bool:
        assert worker.alive, worker.text()
        ids: Any = self.admin.zrange(self.keys.workers, 0, -1)
        owners = [self.admin.hget(self.keys.worker(i.decode()), "supervisor_pid") for i in ids]
        return str(worker.pid).encode() in owners

    def api(self, *, prefix: Sequence[str] = (), **environment: str) -> "Api":
        process = self.process("api", "--port", "0", prefix=prefix, **environment)
        until(lambda: "listening on" in process.text(), 60, "the API listens")
        line = next(line for line in process.text().splitlines() if "listening on" in line)
        return Api(process, "http://" + line.split("http://")[1].split()[0])

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
                    self.ledger.write([(word, key, join_id(QUEUE, spec.id))])
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
        self.client.store.run(calls.listen(self.queue, int(time.time() * 1000) + 3_600_000))

    def tried(self) -> dict[str, set[str]]:
        """What the submitter wrote: words by job id."""
        out: dict[str, set[str]] = defaultdict(set)
        for words in self.ledger.words():
            if words[0] in ("TRY", "ACK", "UNKNOWN", "REFUSED"):
                out[words[2]].add(words[0])
        return out

    def note_dead_letters(self) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            ids = self.admin.zrange(self.queue.state(State.FAILED), 0, -1)
            self.dead_letters |= {join_id(QUEUE, i.decode()) for i in ids}

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

    # --- the verdict ----------------------------------------------------------------------------

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
        tried = self.tried()
        ids = list(tried)
        if drained:
            there = [i for i, job in self.jobs(ids).items() if job is not None]
            with contextlib.suppress(AssertionError) if not raises else contextlib.nullcontext():
                self.wait_ended(there, seconds)
        jobs = self.jobs(ids)
        v = self._multisets(tried, jobs, unrun, trimmed)
        self._check_runs(v, jobs, rerun_allowed)
        if drained:
            self._check_rest(v, jobs)
        v.problems += [f"V1 lost: {i}: {jobs[i]}" for i in v.lost[:5]]
        v.problems += [f"V1 unexpected: {i}" for i in v.unexpected[:5]]
        if raises:
            assert not v.problems, f"{v.figures()}\n" + "\n".join(v.problems[:20])
        return v

    def _multisets(
        self,
        tried: dict[str, set[str]],
        jobs: dict[str, Job | None],
        unrun: frozenset[State],
        trimmed: bool,
    ) -> Verdict:
        v = Verdict(attempted=len(tried))
        ended_ok = {line.job_id for line in self.ledger.ends() if line.how == "ok"}
        for job_id, words in tried.items():
            job = jobs[job_id]
            acknowledged = "ACK" in words
            v.acknowledged += acknowledged
            if job is not None:
                v.states[job.state] += 1
            good = job is not None and (
                (job.state is State.SUCCEEDED and job_id in ended_ok)
                or (job.state in unrun and job.state is not State.SUCCEEDED)
            )
            hopeless = job_id in self.dead_letters
            gone = job is None and trimmed and (job_id in ended_ok or hopeless)
            good = good or gone
            v.ok += (gone and not hopeless) or (
                job is not None and good and job.state is State.SUCCEEDED
            )
            if acknowledged and not good:
                v.lost.append(job_id)
            if not acknowledged and "UNKNOWN" in words and job is not None:
                v.recovered += 1
                if not good:
                    v.problems.append(f"V5 unknown submission is there and not ended: {job}")
            if not acknowledged and "UNKNOWN" not in words and job is not None:
                v.problems.append(f"V8 refused submission is there: {job}")
        started = {line.job_id for line in self.ledger.starts()}
        v.unexpected = sorted(started - tried.keys())
        return v

    def _check_runs(
        self,
        v: Verdict,
        jobs: dict[str, Job | None],
        allowed: Callable[[Line, Line], bool] | None,
    ) -> None:
        by_job: dict[str, list[Line]] = defaultdict(list)
        for line in self.ledger.starts():
            by_job[line.job_id].append(line)
        ends = {(line.job_id, line.fence): line for line in self.ledger.ends()}
        died = {line.pid: line.at for line in self.ledger.lines("DIE")}
        gone = {**died, **self.disturbed}
        for job_id, runs in by_job.items():
            runs.sort(key=lambda run: run.fence)
            if len({run.fence for run in runs}) != len(runs):
                v.problems.append(f"V2 two runs under one fence: {runs}")
            again = False
            for first, second in itertools.pairwise(runs):
                end = ends.get((job_id, first.fence))
                failed = end is not None and end.how != "ok"
                again = again or not failed
                since = gone.get(first.pid, gone.get(first.parent))
                if since is not None and not failed:
                    v.recovery.append(max(0.0, second.at - since))
                if failed or since is not None or self._outage_between(first.at, second.at):
                    continue
                if allowed is not None and allowed(first, second):
                    continue
                v.problems.append(f"V2 ran again without a reason: {first} -> {second}, ends {end}")
            v.duplicated += again
            job = jobs.get(job_id)
            if job is not None:
                self._check_counters(v, job, runs)

    def _outage_between(self, since: float, to: float) -> bool:
        return any(began <= to and ended + RECOVERY >= since for began, ended in self.outages)

    def _check_counters(self, v: Verdict, job: Job, runs: list[Line]) -> None:
        if not job.stub and job.attempts < len(runs):
            v.problems.append(f"V4 {job.attempts} attempts, {len(runs)} starts: {job.id}")
        if job.crashes > MAX_CRASHES or job.lost > MAX_LOST:
            v.problems.append(f"V4 above the caps: {job}")
        if job.max_attempts is not None and job.failures > job.max_attempts:
            v.problems.append(f"V4 failures above max_attempts: {job}")
        if job.state is State.SUCCEEDED and job.result:
            recorded = json.loads(job.result)
            if isinstance(recorded, dict) and recorded.get("fence") != str(job.fence):
                v.problems.append(f"V2 result of another run than the last: {recorded} {job}")

    def _check_rest(self, v: Verdict, jobs: dict[str, Job | None]) -> None:
        """V3, V5 and V6 once nothing is left to do."""
        live = [i for i, job in jobs.items() if job is not None and job.state not in TERMINAL]
        v.problems += [f"V5 not ended: {jobs[i]}" for i in live[:5]]
        with contextlib.suppress(AssertionError):
            until(lambda: not self._left_over(), 5, "nothing is left over")
        v.problems += [f"V6 left over: {name}" for name in self._left_over()]
        v.problems += [f"V3 doctor: {finding}" for finding in self.findings()]
        counted = self.counts()
        for state in TERMINAL:
            have = sum(
                job is not None and job.state == state and not job.stub for job in jobs.values()
            )
            if counted[state] < have:
                v.problems.append(f"V3 {counted[state]} counted as {state}, {have} are")
        v.problems += self._moved_after_end()
        for job_id, job in self.jobs(list(jobs)).items():
            before = jobs[job_id]
            if job is not None and before is not None and job.state != before.state:
                v.problems.append(f"V5 left a terminal state: {before} -> {job}")

    def _left_over(self) -> list[str]:
        kinds = ("ready:", "processing:", "lines", "cancelling", "scheduled", "retrying", "unique:")
        names = [n.decode() for n in self.admin.scan_iter(self.queue.prefix + "*", count=5000)]
        out = [n for n in names if n.removeprefix(self.queue.prefix).startswith(kinds)]
        lasting = ("wake:", "control:", "stats:", "stats10:")
        for name in names:
            kind = name.removeprefix(self.queue.prefix)
            if kind.startswith(lasting) and self.admin.ttl(name) == -1:
                out.append(f"{name} has no TTL")
        return out

    def _moved_after_end(self) -> list[str]:
        """Of the events that were written: a job of which one follows its end."""
        ended: dict[str, str] = {}
        problems = []
        for _, fields in self.admin.xrange(self.queue.events):
            event = fields[b"event"].decode()
            for ulid in fields[b"jobs"].decode().split():
                if ulid in ended and event not in ("crashed", "recovered"):
                    problems.append(f"V5 {ulid}: {event} after {ended[ulid]}")
                if event in ("succeeded", "cancelled"):
                    ended[ulid] = event
        return problems[:10]


@dataclass
class Api:
    """``taskq api`` as a client sees it."""

    process: Process
    url: str

    def send(
        self, method: str, path: str, body: Any = None, timeout: float = 30, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """(status, body, headers); status 0 when the connection broke."""
        data = None if body is None else json.dumps(body).encode()
        sent = {
            "content-type": "application/json",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null"), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null"), dict(error.headers)
        except OSError:
            return 0, None, {}

    def post(
        self, job_type: str, payload: Any = None, **options: Any
    ) -> tuple[int, Any, dict[str, str]]:
        return self.send(
            "POST", "/jobs", {"job_type": job_type, "payload": payload or {}, **options}
        )

    def ready(self) -> int:
        return self.send("GET", "/ready")[0]


def last(seconds: float) -> None:
    """How long a fault lasts: the only waiting here that is not for a condition."""
    time.sleep(seconds)


# --- faults of the server ---------------------------------------------------------------------------
# Each raises AssertionError when it did not really happen.


def _admin(place: Place, **options: Any) -> Any:
    return redis.Redis.from_url(place.url, **{"socket_timeout": 30, **options})


def _refused(place: Place, word: str) -> bool:
    """Whether a write is refused with this word now."""
    with _admin(place, socket_timeout=2) as client:
        try:
            client.set("fault:probe", "x" * 5000, px=1000)
        except (redis.RedisError, OSError) as error:
            return word in str(error) or word in type(error).__name__
    return False


@contextmanager
def readonly(place: Place) -> Iterator[None]:
    """A failover: the server is somebody's replica."""
    with place.outage(), _admin(place) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert _refused(place, "READONLY") or _refused(place, "read only")
            yield
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    assert not _refused(place, "READONLY")


@contextmanager
def noreplicas(place: Place) -> Iterator[None]:
    with place.outage(), _admin(place) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            assert _refused(place, "NOREPLICAS")
            yield
        finally:
            client.config_set("min-replicas-to-write", 0)


@contextmanager
def busy(place: Place) -> Iterator[None]:
    """Somebody's script does not end; also PING is refused."""

    def spin() -> None:
        with contextlib.suppress(redis.RedisError), _admin(place, socket_timeout=120) as client:
            client.eval("while true do end", 0)

    with place.outage(), _admin(place) as client:
        client.config_set("lua-time-limit", 50)
        spinner = threading.Thread(target=spin, daemon=True)
        spinner.start()
        try:
            until(lambda: _answers(client, "BUSY"), 10, "the server is busy")
            yield
        finally:
            client.script_kill()
            spinner.join(10)


def _answers(client: Any, word: str) -> bool:
    try:
        client.ping()
    except redis.RedisError as error:
        return word in str(error).upper() or word in type(error).__name__.upper()
    return False


def fill(place: Place, n: int = 1000) -> None:
    """Keys that make a load take time; none of taskq's."""
    with _admin(place) as client:
        pipe = client.pipeline(transaction=False)
        for i in range(n):
            pipe.set(f"fill:{i}", "x" * 1500)
        pipe.execute()


@contextmanager
def loading(place: Place) -> Iterator[None]:
    """The server loads its data for as long as the block lasts; needs ``fill``."""

    def reload() -> None:
        with contextlib.suppress(redis.RedisError), _admin(place, socket_timeout=120) as client:
            client.execute_command("DEBUG", "RELOAD")

    with place.outage(), _admin(place) as client:
        # Longer than any block: the delay is taken away at its end, which the server obeys while it loads.
        client.config_set("key-load-delay", 60_000)
        client.config_set("loading-process-events-interval-bytes", 1024)
        reloader = threading.Thread(target=reload, daemon=True)
        reloader.start()
        try:
            until(lambda: _answers(client, "LOADING"), 10, "the server is loading")
            yield
            assert _answers(client, "LOADING"), "the server was loading until the end"
        finally:
            client.config_set("key-load-delay", 0)
            reloader.join(30)
            until(lambda: not _answers(client, "LOADING"), 30, "it is loaded")


@contextmanager
def paused(place: Place, seconds: float, what: str = "ALL") -> Iterator[None]:
    """CLIENT PAUSE; the pause ends by itself."""
    with place.outage(), _admin(place) as client, _admin(place, socket_timeout=0.1) as other:
        client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), what)
        began = time.monotonic()
        with contextlib.suppress(redis.RedisError):
            other.set("fault:probe", 1, px=1000)
            raise AssertionError("the server was not paused")
        yield
        rest = seconds - (time.monotonic() - began)
        if rest > 0:
            time.sleep(rest)


def flush_scripts(place: Place) -> None:
    with _admin(place) as client, client.pipeline(transaction=True) as pipe:
        pipe.execute_command("SCRIPT", "FLUSH", "SYNC")
        pipe.execute_command("SCRIPT", "EXISTS", lua.load("claim").sha)
        flushed, exists = pipe.execute()
        assert flushed in (b"OK", "OK", True)
        assert not exists[0]


def kill_connections(place: Place) -> int:
    with _admin(place) as client:
        killed = int(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    assert killed > 0
    return killed


@contextmanager
def memory_full(place: Place) -> Iterator[None]:
    with _admin(place) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) // 2)
        try:
            assert _refused(place, "OutOfMemory")
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def server_stopped(place: Place) -> Iterator[None]:
    """SIGSTOP of the server: connections stay, nothing answers."""
    pid = place.server.pid
    with place.outage():
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 5, "stopped")
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def server_killed(place: Place, *, politely: bool = False) -> Iterator[None]:
    """kill -9 (or SIGTERM) of the server, and its start on the same data."""
    with place.outage():
        before = place.server.pid
        if politely:
            os.kill(before, signal.SIGTERM)
            until(lambda: not place.server.running, 10, "the server has ended")
        else:
            place.server.kill()
        assert not place.server.running
        try:
            yield
        finally:
            place.server.start()
        assert place.server.pid != before


@contextmanager
def half_open(place: Place, relay: Relay) -> Iterator[None]:
    """What goes through the relay gets nowhere, and no end of a connection is seen."""
    before = relay.held
    with place.outage():
        relay.freeze()
        try:
            yield
            until(lambda: relay.held > before, 10, "something was held back")
        finally:
            relay.thaw()


__all__ = [
    "GRACE",
    "JANITOR",
    "LEASE",
    "QUEUE",
    "RECOVERY",
    "Api",
    "Ledger",
    "Line",
    "Place",
    "Process",
    "Verdict",
    "busy",
    "fill",
    "flush_scripts",
    "half_open",
    "kill_connections",
    "last",
    "loading",
    "memory_full",
    "noreplicas",
    "paused",
    "readonly",
    "server_killed",
    "server_stopped",
    "until",
]
