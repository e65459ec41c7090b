"""A child as its supervisor sees it: the process, its seats and ids, and how it is meant to end."""

from dataclasses import dataclass, field
from typing import Any, Literal

from taskq.registry import now_ms
from taskq_worker.process import ChildProcess

Counter = Literal["crashes", "lost", "none"]
"""What the end of a process costs the jobs it held."""


@dataclass(slots=True)
class SeatRecord:
    """A child's seat as seen from here."""

    number: int
    queue: str
    worker: str
    off_beats: int = 0
    """Beats running on which the server's list and the child's count differed."""


@dataclass(slots=True, eq=False)
class Member:
    """One child with its seats; ``will`` is what to report when it is gone."""

    process: ChildProcess
    name: str
    seats: dict[int, SeatRecord] = field(default_factory=dict)
    will: list[list[Any]] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    schemas: dict[str, Any] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    """What the child last told of itself (``taskq.registry.COUNTED``)."""
    memory_bytes: int = 0
    """Of the process and of all below it, as last looked at (``MemoryWatch``)."""
    ready: bool = False
    quiet: bool = False
    """It was told to claim nothing more."""
    leaving: bool = False
    """It is asked to end, or was replaced: its end is no crash, and starts no other."""
    verdict: tuple[Counter, str] | None = None
    """Why we killed it, where we did."""
    started_at: int = field(default_factory=now_ms)
