"""Memory of a supervisor's processes: what each child's tree uses, and how full the container is."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
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


def container_share(cgroup: Path = CGROUP) -> float | None:
    """How full the container's memory is, from 0 to 1; None where there is no limit (or no cgroup)."""
    for current, limit in (
        (cgroup / "memory.current", cgroup / "memory.max"),
        (cgroup / "memory/memory.usage_in_bytes", cgroup / "memory/memory.limit_in_bytes"),
    ):
        try:
            used, most = int(current.read_text()), int(limit.read_text())
        except (OSError, ValueError):  # "max" is no number: no limit
            continue
        # The first version of cgroups says "no limit" by a number larger than any machine's memory.
        return used / most if 0 < most < 1 << 60 else None
    return None
