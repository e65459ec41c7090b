"""Why a job ran again, as the ledger, the faults that were thrown and the job's own history tell it.

A second start is right only where the first run's process was killed, stopped or cut off, where it died by
itself, where its supervisor ended it, or where an outage of the server kept its lease from being renewed.
Everything else is a bug of ours.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.ledger import Line
from taskq.model import Job

SHORTEST_OUTAGE = 0.3
"""Seconds of outage, in the lease before, that may cost one: beats go out three times a lease, and a try that
failed is repeated after up to 2 s."""


@dataclass
class Reasons:
    """What may have ended a process or a lease."""

    disturbed: dict[int, float]
    """Pids that the scenario killed, stopped or cut off, and when."""
    died: dict[int, float]
    """Pids that a run took down by itself."""
    ended: dict[int, str]
    """Pids that a supervisor says to have ended or seen end, and its words."""
    supervisors: set[int]
    outages: Sequence[tuple[float, float]]
    lease: float
    counted: "Counter[str]" = field(default_factory=Counter)

    def since(self, run: Line) -> float | None:
        """When the process of a run was disturbed or died; None when it was not."""
        for pid in run.pids:
            for known in (self.died, self.disturbed):
                if pid in known:
                    return known[pid]
        return None

    def of(self, first: Line, second: Line, job: Job | None) -> str | None:
        """The reason for the start of ``second`` after ``first``; None where there is none."""
        if self.since(first) is not None:
            return "killed, stopped or cut off"
        for pid in first.pids:
            if pid in self.ended:
                return f"ended by its supervisor: {self.ended[pid]}"
        if first.above[1:] and first.above[1] in self.supervisors:
            # Its fork server was left to the supervisor, which then ended both.
            return "began as its worker process died"
        if job is None or job.stub or not job.history:
            # Dropped by full memory: only the outages can tell.
            return "outage" if self._outage(first.at, second.at) else None
        for entry in self._between(job, first, second):
            if entry["event"] == "lost" and self._outage_before(entry["at"] / 1000):
                return "lease ran out in an outage"
        return None

    def _between(self, job: Job, first: Line, second: Line) -> list[dict[str, Any]]:
        """A fence is the time of its claim in ms, unless one claim follows another at once."""
        return [e for e in job.history if first.fence - 1000 <= e["at"] <= second.fence + 1000]

    def _outage(self, since: float, to: float) -> bool:
        away = sum(max(0.0, min(to, end) - max(since, began)) for began, end in self.outages)
        return away >= SHORTEST_OUTAGE

    def _outage_before(self, at: float) -> bool:
        """In the time in which a lease that ran out then was to be renewed, and a janitor's round."""
        return self._outage(at - self.lease - 3, at)

    def unexplained(self, job: Job) -> list[str]:
        """Crashes and losses in a job's history that nothing here explains."""
        out = []
        for entry in job.history:
            if entry["event"] not in ("crashed", "lost"):
                continue
            worker = re.fullmatch(r"[^:]+:(\d+):[0-9a-f]{8}", entry["worker"])
            if worker is None:
                continue  # no process: a name that the scenario gave
            pid = int(worker[1])
            at = entry["at"] / 1000
            known = pid in self.disturbed or pid in self.died or pid in self.ended
            run_died = any(abs(at - when) < 60 for when in self.died.values())
            if known or (entry["event"] == "crashed" and run_died):
                continue
            if entry["event"] == "lost" and self._outage_before(at):
                continue
            out.append(f"{entry}")
        return out


def ended_by_supervisors(texts: Sequence[str]) -> dict[int, str]:
    """Pids of children that the logs of supervisors name as ended, and why."""
    out: dict[int, str] = {}
    for text in texts:
        for match in re.finditer(r"child (\d+)(?: ended)?: ([^\n]*)", text):
            pid, words = int(match[1]), match[2]
            if "serves" not in words:
                out.setdefault(pid, re.sub(r"[\d.]+", "N", words)[:60])
    return out
