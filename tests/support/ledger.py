"""The ledger of a fault test: a file that is only appended to and that no fault touches."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


def whole_lines(path: Path) -> list[str]:
    """The lines that had ended when the file was read, while others write to it.

    A line that crosses a page of the file can be seen in two pieces while it is written. Read piece by piece,
    the second would stand as a line of its own; so the file is read once and cut after its last end of line.
    """
    whole, end, _ = path.read_bytes().rpartition(b"\n")
    return whole.decode(errors="replace").split("\n") if end else []


@dataclass(frozen=True)
class Line:
    """START, END or DIE of a run."""

    job_id: str
    attempt: int
    fence: int
    pid: int
    at: float
    how: str = ""
    above: tuple[int, ...] = ()
    """Of a START: the processes above. A run in a process of its own is reported by one, and lost with it."""

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid, *self.above)


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, lines: Iterable[Sequence[object]]) -> None:
        text = "".join(" ".join(str(word) for word in line) + "\n" for line in lines)
        os.write(self._fd, text.encode())

    def words(self) -> Iterator[list[str]]:
        return (line.split() for line in whole_lines(self.path))

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
        return replace(line, above=tuple(int(pid) for pid in w[6:]))
    return replace(line, how=w[6]) if len(w) > 6 else line
