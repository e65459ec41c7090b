"""What became of all submissions, after the faults: the multisets of Jepsen's total-queue checker, and the
invariants V1 to V8. Nothing acknowledged is lost, and nothing runs twice without a reason.
"""

import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.ledger import Line
from support.reasons import Reasons, ended_by_supervisors
from support.workers import until
from taskq.calls import MAX_CRASHES, MAX_LOST
from taskq.model import Job
from taskq.states import TERMINAL, State

if TYPE_CHECKING:
    from support.place import Place


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
    reasons: "Counter[str]" = field(default_factory=Counter)
    """Why jobs started again without having failed."""

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


class Judge:
    """Compares ledger and server of one place."""

    def __init__(
        self,
        place: "Place",
        *,
        allowed: Callable[[Line, Line], bool] | None,
        unrun: frozenset[State],
        trimmed: bool,
    ) -> None:
        self._place = place
        self._allowed = allowed
        self._unrun = unrun
        self._trimmed = trimmed
        self._tried = place.tried()
        self._jobs = place.jobs(list(self._tried))
        ledger = place.ledger
        self._starts = ledger.starts()
        self._ends = {(line.job_id, line.fence): line for line in ledger.ends()}
        self._reasons = Reasons(
            disturbed=dict(place.disturbed),
            died={line.pid: line.at for line in ledger.lines("DIE")},
            ended=ended_by_supervisors([process.text() for process in place.processes]),
            supervisors={process.pid for process in place.processes},
            outages=list(place.outages),
            lease=place.lease,
        )

    def judge(self, *, drained: bool) -> Verdict:
        v = Verdict(attempted=len(self._tried))
        self._count(v)
        self._check_runs(v)
        if drained:
            self._check_rest(v)
        v.problems += [f"V1 lost: {i}: {self._jobs[i]}" for i in v.lost[:5]]
        v.problems += [f"V1 unexpected: {i}" for i in v.unexpected[:5]]
        return v

    def _count(self, v: Verdict) -> None:
        ended_ok = {job_id for (job_id, _), line in self._ends.items() if line.how == "ok"}
        for job_id, words in self._tried.items():
            job = self._jobs[job_id]
            acknowledged = "ACK" in words
            v.acknowledged += acknowledged
            if job is not None:
                v.states[job.state] += 1
            ok, good = self._ended_well(job, job_id, job_id in ended_ok)
            v.ok += ok
            if acknowledged and not good:
                v.lost.append(job_id)
            if not acknowledged and "UNKNOWN" in words and job is not None:
                v.recovered += 1
                if not good:
                    v.problems.append(f"V5 unknown submission is there and not ended: {job}")
            if not acknowledged and "UNKNOWN" not in words and job is not None:
                v.problems.append(f"V8 refused submission is there: {job}")
        started = {line.job_id for line in self._starts}
        v.unexpected = sorted((started | self._place.ended_ids()) - self._tried.keys())

    def _ended_well(self, job: Job | None, job_id: str, ran: bool) -> tuple[bool, bool]:
        """(it succeeded, it ended as it may)."""
        if job is None:
            dead_letter = job_id in self._place.dead_letters
            gone = self._trimmed and (ran or dead_letter)
            return gone and not dead_letter, gone
        if job.state is State.SUCCEEDED:
            return ran, ran
        return False, job.state in self._unrun

    def _check_runs(self, v: Verdict) -> None:
        by_job: dict[str, list[Line]] = defaultdict(list)
        for line in self._starts:
            by_job[line.job_id].append(line)
        for job_id, runs in by_job.items():
            runs.sort(key=lambda run: run.fence)
            if len({run.fence for run in runs}) != len(runs):
                v.problems.append(f"V2 two runs under one fence: {runs}")
            job = self._jobs.get(job_id)
            v.duplicated += (
                sum(
                    self._check_pair(v, first, second, job)
                    for first, second in itertools.pairwise(runs)
                )
                > 0
            )
            if job is not None:
                self._check_counters(v, job, runs)
                v.problems += [
                    f"V4 charged for nothing that was done to it: {job_id} {entry}"
                    for entry in self._reasons.unexplained(job)
                ]

    def _check_pair(self, v: Verdict, first: Line, second: Line, job: Job | None) -> bool:
        """Whether the second start is a duplicate, and if so that there is a reason for it."""
        end = self._ends.get((first.job_id, first.fence))
        if end is not None and end.how != "ok":
            return False
        since = self._reasons.since(first)
        if since is not None:
            v.recovery.append(max(0.0, second.at - self._since_last_outage(since, second.at)))
        reason = self._reasons.of(first, second, job)
        if reason is None and self._allowed is not None and self._allowed(first, second):
            reason = "as the scenario says"
        v.reasons[reason or "none"] += 1
        if reason is None:
            v.problems.append(f"V2 ran again without a reason: {first} -> {second}, ended {end}")
        return True

    def _since_last_outage(self, since: float, to: float) -> float:
        """Recovery counts from the later of the death and the end of the last outage."""
        return max([since, *(end for _, end in self._place.outages if since < end < to)])

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

    def _check_rest(self, v: Verdict) -> None:
        """V3, V5 and V6 once nothing is left to do."""
        jobs = self._jobs
        live = [i for i, job in jobs.items() if job is not None and job.state not in TERMINAL]
        v.problems += [f"V5 not ended: {jobs[i]}" for i in live[:5]]
        with contextlib.suppress(AssertionError):
            until(lambda: not self._left_over(), 5, "nothing is left over")
        v.problems += [f"V6 left over: {name}" for name in self._left_over()]
        v.problems += [f"V3 doctor: {finding}" for finding in self._place.findings()]
        counted = self._place.counts()
        for state in TERMINAL:
            have = sum(
                job is not None and job.state == state and not job.stub for job in jobs.values()
            )
            if counted[state] < have:
                v.problems.append(f"V3 {counted[state]} counted as {state}, {have} are")
        v.problems += self._moved_after_end()
        for job_id, job in self._place.jobs(list(jobs)).items():
            before = jobs[job_id]
            if job is not None and before is not None and job.state != before.state:
                v.problems.append(f"V5 left a terminal state: {before} -> {job}")

    def _left_over(self) -> list[str]:
        kinds = ("ready:", "processing:", "lines", "cancelling", "scheduled", "retrying", "unique:")
        names = [
            n.decode()
            for n in self._place.admin.scan_iter(self._place.queue.prefix + "*", count=5000)
        ]
        out = [n for n in names if n.removeprefix(self._place.queue.prefix).startswith(kinds)]
        lasting = ("wake:", "control:", "stats:", "stats10:")
        for name in names:
            kind = name.removeprefix(self._place.queue.prefix)
            if kind.startswith(lasting) and self._place.admin.ttl(name) == -1:
                out.append(f"{name} has no TTL")
        return out

    def _moved_after_end(self) -> list[str]:
        """Of the events that were written: a job of which one follows its end."""
        ended: dict[str, str] = {}
        problems = []
        for _, fields in self._place.admin.xrange(self._place.queue.events):
            event = fields[b"event"].decode()
            for ulid in fields[b"jobs"].decode().split():
                if ulid in ended and event not in ("crashed", "recovered"):
                    problems.append(f"V5 {ulid}: {event} after {ended[ulid]}")
                if event in ("succeeded", "cancelled"):
                    ended[ulid] = event
        return problems[:10]
