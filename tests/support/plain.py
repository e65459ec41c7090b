"""The queue as plain Python: what the scripts must amount to, without Redis, pages or keys."""

from dataclasses import dataclass, field

from taskq.calls import MAX_CRASHES, MAX_LOST

AGING = 10_000
LEASE = 15_000.0
LIMITS = {"crashes": MAX_CRASHES, "lost": MAX_LOST}
WAITING = ("queued", "scheduled", "retrying")
ENDED = ("succeeded", "failed", "cancelled")


@dataclass
class PlainJob:
    id: str
    job_type: str
    priority: int
    state: str
    place: float
    """Score in its line, or when it is due."""
    unique: str | None = None
    expires_at: float | None = None
    worker: str | None = None
    fence: int = 0
    call: int = 0
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    lost: int = 0
    cancel: bool = False


@dataclass
class PlainQueue:
    jobs: dict[str, PlainJob] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    calls: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    paused: bool = False

    def held(self, worker: str) -> list[PlainJob]:
        return [j for j in self.jobs.values() if j.state == "running" and j.worker == worker]

    def live_holder(self, unique: str) -> PlainJob | None:
        for job in self.jobs.values():
            if job.unique == unique and job.state not in ENDED:
                return job
        return None

    def end(self, job: PlainJob, state: str) -> None:
        job.state = state
        job.cancel = False

    def requeue(self, job: PlainJob) -> None:
        if job.cancel:
            self.end(job, "cancelled")
        else:
            job.state, job.worker = "queued", None

    def promote(self, now: float) -> None:
        for job in self.jobs.values():
            if job.state in ("scheduled", "retrying") and job.place <= now:
                job.state, job.place = "queued", job.place - job.priority * AGING

    def claim(self, worker: str, call: int, most: int, now: float) -> list[str] | str:
        if worker in self.dead:
            return "LOST"
        last, ids = self.calls.get(worker, (0, []))
        if call < last:
            return "STALE"
        if call == last:
            return [
                i
                for i in ids
                if (j := self.jobs[i]).state == "running" and j.worker == worker and j.call == call
            ]
        self.promote(now)
        taken: list[str] = []
        if not self.paused:
            line = sorted(
                (j for j in self.jobs.values() if j.state == "queued"), key=lambda j: j.place
            )
            for job in line:
                if len(taken) == most:
                    break
                if job.expires_at is not None and job.expires_at <= now:
                    self.end(job, "failed")
                    continue
                job.state, job.worker, job.call = "running", worker, call
                job.fence = max(job.fence + 1, int(now))
                job.attempts += 1
                taken.append(job.id)
        if taken:
            self.leases[worker] = now + LEASE
        if taken or worker in self.calls:
            self.calls[worker] = (call, taken)
        return taken

    def owned(self, ulid: str, worker: str, fence: int) -> PlainJob | None:
        job = self.jobs.get(ulid)
        if job and job.state == "running" and job.worker == worker and job.fence == fence:
            return job
        return None

    def fail(self, job: PlainJob, due: float, max_attempts: int) -> None:
        job.failures += 1
        if job.cancel:
            self.end(job, "cancelled")
        elif job.failures >= max_attempts:
            self.end(job, "failed")
        else:
            job.state, job.place = "retrying", due

    def crash(self, job: PlainJob) -> None:
        job.crashes += 1
        if job.crashes >= MAX_CRASHES and not job.cancel:
            self.end(job, "failed")
        else:
            self.requeue(job)

    def reap(self, worker: str, counter: str) -> None:
        self.dead.add(worker)
        self.leases.pop(worker, None)
        self.calls.pop(worker, None)
        for job in self.held(worker):
            if counter != "none":
                charged = "lost" if job.crashes > 0 else counter
                n = getattr(job, charged) + 1
                setattr(job, charged, n)
                if n >= LIMITS[charged] and not job.cancel:
                    self.end(job, "failed")
                    continue
            self.requeue(job)

    def reap_expired(self, now: float) -> None:
        for worker, expiry in list(self.leases.items()):
            if expiry <= now:
                if self.held(worker):
                    self.reap(worker, "lost")
                else:
                    del self.leases[worker]
                    self.calls.pop(worker, None)

    def expire(self, now: float) -> None:
        for job in self.jobs.values():
            if job.state in WAITING and job.expires_at is not None and job.expires_at <= now:
                self.end(job, "failed")
