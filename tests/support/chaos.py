"""Everything at once: ``python -m support.chaos --seed N --seconds S --jobs J``.

While submitters store jobs under idempotency keys, every 250 ms a die is thrown: workers are killed,
stopped and replaced, the server restarts, fails over, is busy, pauses, forgets scripts and connections,
falls silent and runs out of memory; a twentieth of the jobs is toxic. Then all heals, the queue drains,
and the ledger is compared with it. The seed is printed; the same one throws the same dice. Exits with 1
when something was lost or ran twice without a reason.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psutil

from support.faults import (
    LEASE,
    QUEUE,
    RECOVERY,
    Api,
    Place,
    Process,
    Verdict,
    busy,
    flush_scripts,
    kill_connections,
    last,
    memory_full,
    paused,
    readonly,
    server_killed,
)
from support.place import TESTS
from taskq import calls
from taskq.calls import MAX_CRASHES, MAX_LOST
from taskq.client import SyncClient
from taskq.ids import deterministic_ulid, join_id
from taskq.states import TERMINAL

TICK = 0.25
SUBMITTERS = 4
"""The last of them is impatient: it goes through the relay, tries once, and often learns nothing."""
CLOCKS = (0, 300, -240, 3600, -3600)
"""Seconds by which the clocks of supervisors and their children are wrong, in turn."""
KILL, STOP, TOXIC = 0.08, 0.03, 0.05
SERVER = {
    "restart": 0.02,
    "kill -9": 0.02,
    "readonly": 0.02,
    "busy": 0.02,
    "pause": 0.02,
    "script flush": 0.02,
    "client kill": 0.02,
    "half-open": 0.02,
    "oom": 0.01,
}
"""Chance of each fault of the server at each throw."""

CLOCK = TESTS / "support" / "clock"


class Chaos:
    def __init__(
        self,
        place: Place,
        *,
        seed: int,
        seconds: float,
        jobs: int,
        supervisors: int = 5,
        processes: int = 2,
        old: Path | None = None,
    ) -> None:
        self.place = place
        self.seconds = seconds
        self.jobs = jobs
        self.supervisors = supervisors
        self.processes = processes
        self.old = old
        self.seed = seed
        self.dice = random.Random(seed)
        self.relay = place.relay()
        self.fired: Counter[str] = Counter()
        self.fleet: list[Process] = []
        self.started = 0
        self.old_ones = 0
        self.healing = threading.Event()
        self.drained = threading.Event()
        self.asleep: list[threading.Timer] = []
        self.broken: list[str] = []
        self.api: Api | None = None
        self.looks: list[tuple[float, float, int]] = []
        """What /ready answered: asked at, answered at, status."""
        self.no_writes: list[tuple[float, float]] = []
        """When the server took no writes, or did not answer at all."""
        self._server = threading.Lock()
        """Held during a fault of the server: one at a time."""

    def run(self) -> Verdict:
        self.place.client.store.run(
            calls.configure(self.place.queue, {"succeeded_max": 1_000_000, "failed_max": 1_000_000})
        )
        for _ in range(self.supervisors):
            self._start()
        for worker in self.fleet:
            self.place.wait_ready(worker)
        self.api = self.place.api()
        submitters = [threading.Thread(target=self._submit, args=(n,)) for n in range(SUBMITTERS)]
        for thread in submitters:
            thread.start()
        submitters.append(threading.Thread(target=self._submit_over_http))
        submitters[-1].start()
        noting = threading.Thread(target=self._note_dead_letters)
        noting.start()
        looking = threading.Thread(target=self._look_ready)
        looking.start()
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            self._throw()
            last(TICK)
        self.healing.set()
        with self._server:
            pass
        for timer in self.asleep:
            timer.join()
        for thread in submitters:
            thread.join()
        self._refill()
        began = time.monotonic()
        self._drain()
        for process in self.place.processes:
            # Dropped again at once, where memory was full.
            said = re.findall(
                r"(default:\w+) \w+ (?:crashed: .*; failed|failure \d+, the last)", process.text()
            )
            self.place.dead_letters |= set(said)
        if self.fired["oom"]:
            self.place.dead_letters |= self._killers_that_are_gone()
        verdict = self.place.verdict(
            5,
            trimmed=self.fired["oom"] > 0,
            raises=False,
        )
        self.drained.set()
        noting.join()
        looking.join()
        verdict.problems += self.broken
        verdict.problems += self._judge_ready()
        verdict.problems += self._judge_innocents()
        self.place.note(f"why jobs ran again: {dict(verdict.reasons.most_common())}")
        self.place.note(f"drained in {time.monotonic() - began:.1f} s")
        return verdict

    def _note_dead_letters(self) -> None:
        while not self.drained.wait(0.1):
            self.place.note_dead_letters()

    def _killers_that_are_gone(self) -> set[str]:
        """Jobs that ended their process so often that they were dead letters, and were dropped before anybody
        looked, or wrote it down: memory was full."""
        deaths = Counter(words[1] for words in self.place.ledger.words() if words[0] == "DIE")
        often = [job_id for job_id, n in deaths.items() if n >= MAX_CRASHES]
        return {job_id for job_id, job in self.place.jobs(often).items() if job is None}

    def _drain(self) -> None:
        """Waits for as long as jobs go on ending: how quickly depends on the machine."""
        ids = list(self.place.tried())
        fewest, since = len(ids) + 1, time.monotonic()
        while time.monotonic() - since < 60 + 2 * RECOVERY:
            jobs = self.place.jobs(ids)
            ids = [i for i in ids if (job := jobs[i]) is not None and job.state not in TERMINAL]
            if not ids:
                return
            if len(ids) < fewest:
                fewest, since = len(ids), time.monotonic()
            self._refill()
            last(0.5)
        stuck = [self.place.job(i) for i in ids[:3]]
        self.broken.append(f"{len(ids)} jobs do not end: {stuck}")

    # --- workers --------------------------------------------------------------------------------

    def _start(self) -> None:
        self.started += 1
        environment = {"FAULT_CLOCK_OFFSET": str(CLOCKS[self.started % len(CLOCKS)])}
        if self.started % 2:
            environment["TASKQ_REDIS_URL"] = self.relay.url
        folders = [CLOCK, TESTS]
        if self.old is not None and self.started % 4 < 2:
            folders += [self.old, self.old / "api", self.old / "worker"]
            self.old_ones += 1
        environment["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in folders)
        self.fleet.append(
            self.place.worker(
                "-c", "10", "--processes", str(self.processes), ready=False, **environment
            )
        )

    def _refill(self) -> None:
        self.fleet = [worker for worker in self.fleet if worker.alive]
        while len(self.fleet) < self.supervisors:
            self._start()

    def _kill_one(self, which: float, whole: bool) -> None:
        worker = self.fleet[int(which * len(self.fleet))]
        if whole:
            self.place.kill(worker)
            self.fired["kill of a supervisor and its children"] += 1
            return
        children = worker.children()
        if children:
            victim = children[int(which * 1000) % len(children)]
            self.place.disturb(victim, *_below(victim))
            worker.signal(signal.SIGKILL, victim)
            self.fired["kill of a child"] += 1

    def _stop_one(self, which: float, how_long: float) -> None:
        worker = self.fleet[int(which * len(self.fleet))]
        self.place.freeze(worker)
        self.fired["SIGSTOP"] += 1
        timer = threading.Timer(how_long, worker.signal, (signal.SIGCONT,))
        timer.start()
        self.asleep.append(timer)

    def _judge_innocents(self) -> list[str]:
        """A job that does no harm may be a dead letter only if so many of its runs were taken from it."""
        innocent = [i for i in self.place.dead_letters if self.place.kinds[i] in ("work", "flaky")]
        kept = {i: job for i, job in self.place.jobs(innocent).items() if job and not job.stub}
        taken = {
            i: Counter(entry["event"] for entry in job.history if entry["event"] != "failed")
            for i, job in kept.items()
        }
        self.place.note(
            f"innocents among the dead letters: {len(innocent)}, of which {len(kept)} can be looked at"
        )
        return [
            f"V4 an innocent is a dead letter: {i} {events}"
            for i, events in taken.items()
            if events["crashed"] < MAX_CRASHES and events["lost"] < MAX_LOST
        ]

    # --- the server -----------------------------------------------------------------------------

    def _throw(self) -> None:
        """As many numbers each time, whatever comes of them: a seed is a schedule."""
        kill, stop, server, which, how_long = (self.dice.random() for _ in range(5))
        self._refill()
        if kill < KILL:
            self._kill_one(which, whole=how_long < 0.5)
            self._refill()
        if stop < STOP:
            self._stop_one(1 - which, LEASE * (1 + 2 * how_long))
        for name, chance in SERVER.items():
            if server < chance:
                if self._server.acquire(blocking=False):
                    threading.Thread(target=self._server_fault, args=(name, how_long)).start()
                return
            server -= chance

    def _server_fault(self, name: str, how_long: float) -> None:
        place, seconds = self.place, 0.3 + 1.7 * how_long
        lasting: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "restart": lambda: server_killed(place, politely=True),
            "kill -9": lambda: server_killed(place),
            "readonly": lambda: readonly(place),
            "busy": lambda: busy(place),
            "pause": lambda: paused(place, seconds),
            "oom": lambda: memory_full(place),
        }
        try:
            if name == "script flush":
                flush_scripts(place)
            elif name == "half-open":
                # Those that could have spoken may be stopped or dead: then it was none.
                held = self.relay.held
                with place.outage():
                    self.relay.freeze()
                    last(seconds)
                    self.relay.thaw()
                if self.relay.held == held:
                    return
            elif name == "client kill":
                with place.outage():
                    kill_connections(place)
            else:
                with lasting[name]():
                    began = time.time()
                    if name != "pause":
                        last(seconds)
                    self.no_writes.append((began, time.time()))
            self.fired[name] += 1
        except BaseException as error:
            self.broken.append(f"fault {name} did not work: {error!r}")
        finally:
            self._server.release()

    # --- the API ---------------------------------------------------------------------------------

    def _look_ready(self) -> None:
        assert self.api is not None
        while not self.drained.wait(0.2):
            asked = time.time()
            status = self.api.ready()
            self.looks.append((asked, time.time(), status))

    def _judge_ready(self) -> list[str]:
        """V7: not ready while nothing can be stored, and ready again after it."""
        wrong = [
            f"V7 ready at {asked:.1f}, while the server took no writes from {began:.1f} to {end:.1f}"
            for asked, answered, status in self.looks
            for began, end in self.no_writes
            if status == 200 and began < asked and answered < end
        ]
        seen = sum(status == 503 for _, _, status in self.looks)
        self.place.note(f"/ready: {len(self.looks)} looks, {seen} times 503")
        if self.looks[-1][2] != 200:
            wrong.append(f"V7 not ready at the end: {self.looks[-1]}")
        if any(status not in (200, 503) for _, _, status in self.looks):
            wrong.append(f"V7 {Counter(status for _, _, status in self.looks)}")
        return wrong

    def _submit_over_http(self) -> None:
        """A client that repeats under its key until it is answered; V8: what was answered is there."""
        assert self.api is not None
        n = 0
        while not self.healing.is_set():
            key, n = f"http-{n}", n + 1
            body = {"job_type": "work", "payload": {"seconds": 0.01}}
            job_id = join_id(QUEUE, deterministic_ulid("", QUEUE, key))
            self.place.kinds[job_id] = "work"
            self.place.ledger.write([("TRY", key, job_id)])
            for _ in range(100):
                status, job, _ = self.api.send("POST", "/jobs", body, Idempotency_Key=key)
                if status in (200, 201):
                    break
                last(0.1)
            if status not in (200, 201) or job["id"] != job_id:
                self.broken.append(f"V8 {key} was answered {status} {job}")
                continue
            self.place.ledger.write([("ACK", key, job_id)])
            status, job, _ = self.api.send("GET", f"/jobs/{job_id}")
            if status == 404 and not self.fired["oom"]:
                self.broken.append(f"V8 {job_id} is not there after 2xx")
            last(0.05)

    # --- submissions ----------------------------------------------------------------------------

    def _submit(self, number: int) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        impatient = number == SUBMITTERS - 1
        url = self.relay.url if impatient else self.place.url
        patience = (
            {"retry_seconds": 0, "socket_timeout": 0.2} if impatient else {"retry_seconds": 1.0}
        )
        client = SyncClient.from_url(url, "taskq", **patience)
        mine = self.jobs // SUBMITTERS
        began = time.monotonic()
        for n in range(mine):
            kind, payload = self._job(dice)
            self.place.submit(kind, [payload], client=client, tries=1 if impatient else 3)
            due = began + 0.9 * self.seconds * (n + 1) / mine
            if not self.healing.is_set() and due > time.monotonic() + 0.05:
                last(due - time.monotonic())
        client.close()

    def _job(self, dice: random.Random) -> tuple[str, dict[str, object]]:
        toxic, kind, seconds = dice.random(), dice.random(), dice.random()
        if toxic >= TOXIC:
            if kind < 0.05:
                return "flaky", {"times": 2}
            return "work", {"seconds": 0.2 * seconds**3}
        if kind < 0.25:
            return "dies", {"how": "kill" if seconds < 0.5 else "exit 0"}
        if kind < 0.625:
            return "hopeless", {}
        return "work", {}


def _below(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.chaos")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--supervisors", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--old", type=Path, help="checkout of another version for half the workers")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(
            Path(folder), "chaos", persistent=True, appendfsync="always", die_with_parent=False
        )
        try:
            chaos = Chaos(place, **vars(options))
            verdict = chaos.run()
        finally:
            place.close()
        print(verdict.figures(), *place.notes, sep="\n")
        print(", ".join(f"{name} {n}" for name, n in sorted(chaos.fired.items())))
        print(*verdict.problems, sep="\n")
        if verdict.problems and (kept := os.environ.get("CHAOS_LOGS")):
            with contextlib.suppress(OSError):
                os.rename(folder, kept)
                os.mkdir(folder)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
