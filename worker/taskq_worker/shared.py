"""A page of memory shared by a supervisor and one child: signs of life that need no cooperation.

A child whose interpreter is held by one long C call can answer no message; what it wrote here before
still tells the supervisor how many jobs it holds and when the first of them must be over.
"""

import mmap
import os
import struct
import tempfile

_HEADER = struct.Struct("<Qd")  # ticks, earliest deadline (monotonic seconds, 0: none)
_SEAT = struct.Struct("<III")  # jobs running, claims and reports under way, jobs ended so far
MAX_SEATS = 4096
SIZE = _HEADER.size + MAX_SEATS * _SEAT.size


def create() -> int:
    """A file descriptor of zeroed shared memory, to be inherited by the child."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("taskq", 0)
    else:
        file, path = tempfile.mkstemp(prefix="taskq-")
        os.unlink(path)
        fd = file
    os.ftruncate(fd, SIZE)
    return fd


class SharedPage:
    """Written by the child alone, read by the supervisor alone. A seat is one worker id's place."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._ticks = 0
        self._earliest = 0.0

    def tick(self, earliest_deadline: float) -> None:
        """The loop is alive; ``earliest_deadline`` in monotonic seconds, 0 for none."""
        self._ticks += 1
        self._earliest = earliest_deadline
        _HEADER.pack_into(self._map, 0, self._ticks, earliest_deadline)

    def bring_forward(self, deadline: float) -> None:
        """Notes a deadline before its job starts: its first step may be one call that never ends."""
        if self._earliest == 0 or deadline < self._earliest:
            self._earliest = deadline
            _HEADER.pack_into(self._map, 0, self._ticks, deadline)

    def set_seat(self, seat: int, running: int, under_way: int, ended: int) -> None:
        at = _HEADER.size + seat * _SEAT.size
        _SEAT.pack_into(self._map, at, running, under_way, ended & 0xFFFFFFFF)

    @property
    def ticks(self) -> int:
        return int(_HEADER.unpack_from(self._map, 0)[0])

    @property
    def earliest_deadline(self) -> float:
        return float(_HEADER.unpack_from(self._map, 0)[1])

    def seat(self, seat: int) -> tuple[int, int, int]:
        """(jobs running, jobs held or claims under way besides, jobs ended so far)."""
        at = _HEADER.size + seat * _SEAT.size
        running, under_way, ended = _SEAT.unpack_from(self._map, at)
        return int(running), int(under_way), int(ended)

    def close(self) -> None:
        self._map.close()
