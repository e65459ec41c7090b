"""Text for people: aligned columns, ages, and job data that cannot drive the terminal."""

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import click

from taskq import log

_UNSEEN = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""What JSON leaves as it is although a terminal acts on it or hides it."""


def plain(text: object) -> str:
    """``text`` with everything that is not to be seen (control characters among it) as an escape."""
    return log.plain(str(text))


def dump(value: Any, *, indent: int | None = None) -> str:
    """JSON for a terminal as well as for a pipe: readable letters, no control characters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo_json(value: Any) -> None:
    """The one document of a command with ``--json``."""
    click.echo(dump(value, indent=2))


def note(text: str) -> None:
    """A line beside the output proper."""
    click.echo(plain(text), err=True)


def shorten(text: object, width: int) -> str:
    shown = plain(text)
    return shown if len(shown) <= width else shown[: width - 3] + "..."


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns two spaces apart, numbers to the right; None is shown as ``-``."""
    every = list(rows)
    numeric = [
        any(row[i] is not None for row in every)
        and all(isinstance(row[i], (int, float)) or row[i] is None for row in every)
        for i in range(len(headers))
    ]
    shown = [list(headers), *([_cell(value) for value in row] for row in every)]
    widths = [max(_width(row[i]) for row in shown) for i in range(len(headers))]
    lines = []
    for row in shown:
        cells = []
        for text, width, right in zip(row, widths, numeric, strict=True):
            pad = " " * (width - _width(text))
            cells.append(pad + text if right else text + pad)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return plain(value)


def size(n: int) -> str | None:
    """Bytes in MB; None for 0, which stands for what is not known."""
    return f"{n / 1e6:,.0f} MB" if n else None


def counted(n: int, one: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def place(worker: str | None) -> str | None:
    """``host:pid`` of a worker id: the process that `taskq workers` lists. Ids themselves are single use."""
    if worker is None:
        return None
    host, _, rest = worker.partition(":")
    pid = rest.partition(":")[0]
    return f"{host}:{pid}" if pid else host


def age(ms: float | None, now_ms: float) -> str:
    """``3m`` for three minutes ago, ``in 3m`` for the future, ``-`` for no time."""
    if ms is None:
        return "-"
    seconds = (now_ms - ms) / 1000
    shown = duration(abs(seconds))
    return shown if seconds >= 0 else f"in {shown}"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def milliseconds(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.1f} ms"
