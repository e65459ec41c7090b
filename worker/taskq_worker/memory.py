"""Memory of a supervisor's processes: what each child's tree uses, and how full the container is."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from taskq_worker.member import Member
from taskq_worker.outcome import OUTGROWN

logger = logging.getLogger("taskq.supervisor")

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc/self/cgroup")
FULL_AT = 0.9
"""Share of the container's limit at which the largest process is ended, before the kernel ends them all."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One process of a child's tree, in bytes of resident memory. ``child`` is the pid of the child."""

    pid: int
    child: int
    rss: int


def usage_of(child: int) -> list[Usage]:
    """The child and all below it; empty when it is gone."""
    out = []
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(child)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                out.append(Usage(process.pid, child, process.memory_info().rss))
    return out


def container_share(cgroup: Path = CGROUP, proc: Path = PROC) -> float | None:
    """How full the memory of our cgroup is, from 0 to 1; None where it has no limit (or there is none).

    Without the pages of files that were read or written: the kernel drops those before it ends a process.
    """
    for folder, current, limit in (
        (_own_folder(cgroup, proc, ""), "memory.current", "memory.max"),
        (
            _own_folder(cgroup / "memory", proc, "memory"),
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
        ),
    ):
        try:
            used, most = int((folder / current).read_text()), int((folder / limit).read_text())
        except (OSError, ValueError):  # "max" is no number: no limit
            continue
        # The first version of cgroups says "no limit" by a number larger than any machine's memory.
        if not 0 < most < 1 << 60:
            return None
        return max(0, used - _file_pages(folder / "memory.stat")) / most
    return None


def _own_folder(root: Path, proc: Path, controller: str) -> Path:
    """Where this process is accounted: below the root for a service of systemd, the root in a container."""
    with contextlib.suppress(OSError):
        for line in proc.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own = root / path.lstrip("/")
            if controller in controllers.split(",") and own.is_dir():
                return own
    return root


def _file_pages(stat: Path) -> int:
    """Bytes of file pages, as both versions of cgroups tell them; ``total_`` counts groups below, too."""
    with contextlib.suppress(OSError, ValueError):
        facts = dict(line.split() for line in stat.read_text().splitlines())
        return sum(
            int(facts.get(f"total_{name}", facts.get(name, 0)))
            for name in ("active_file", "inactive_file")
        )
    return 0


class MemoryWatch:
    """``most`` bytes for each child with all below it (0: no cap); ``replace`` starts a successor."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        most: int,
        grace_seconds: float,
        replace: Callable[[Member], None],
    ) -> None:
        self._members = members
        self._most = most
        self._grace_seconds = grace_seconds
        self._replace = replace

    async def run(self) -> None:
        """Ends the largest process before the kernel ends the container; replaces what outgrew its cap."""
        while True:
            usage = {m: usage_of(m.process.pid) for m in self._members if m.ready}
            share = container_share()
            if share is not None and share > FULL_AT:
                everything = [use for uses in usage.values() for use in uses]
                self._end_largest(everything, f"container memory at {share:.0%}")
            for member, uses in usage.items():
                used = member.memory_bytes = sum(use.rss for use in uses)
                if self._most and used > self._most and not member.leaving:
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
        member.process.channel.send("stop", grace=self._grace_seconds, reason="memory")

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
