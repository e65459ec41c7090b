"""What a measurement says, and how it is shown: on the terminal, as Markdown and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. ``quick`` trades precision for time; ``full`` adds 10,000,000 jobs."""

    quick: bool = False
    full: bool = False

    def pick(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. With a ``budget`` it passes up to it, or from it on where ``at_least``."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def passed(self) -> bool | None:
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    @property
    def verdict(self) -> str:
        if self.budget is None:
            return ""
        return "ok" if self.passed else "MISS"

    @property
    def budget_text(self) -> str:
        if self.budget is None:
            return ""
        return f"{'>=' if self.at_least else '<='} {_number(self.budget)}"


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one measurement. ``skipped`` says why there are none."""

    name: str
    title: str
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    skipped: str = ""


@dataclass(slots=True)
class Report:
    """All sections of one run and where it ran."""

    command: str
    server: str
    sections: list[Section] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    machine: str = field(default_factory=lambda: _machine())
    python: str = field(default_factory=platform.python_version)

    @property
    def missed(self) -> list[Figure]:
        return [f for s in self.sections for f in s.figures if f.passed is False]

    def as_json(self) -> str:
        return json.dumps(_with_verdicts(asdict(self), self), indent=2) + "\n"

    def as_markdown(self) -> str:
        lines = [
            "# Results",
            "",
            "Written by `make bench`. Budgets are ratios within one run; figures in other units",
            "are information about this machine and not to be compared with others.",
            "",
            f"- Command: `{self.command}`",
            f"- Date: {self.date}",
            f"- Machine: {self.machine}",
            f"- Server: {self.server}",
            f"- Python: {self.python}",
        ]
        for section in self.sections:
            lines += ["", f"## {section.name}: {section.title}", ""]
            if section.skipped:
                lines += [f"Not measured: {section.skipped}."]
                continue
            lines += ["| figure | value | unit | budget | |", "| --- | ---: | --- | ---: | --- |"]
            lines += [
                f"| {f.name} | {_number(f.value)} | {f.unit} | {f.budget_text} | "
                f"{'; '.join(filter(None, [f.verdict, f.note]))} |"
                for f in section.figures
            ]
            lines += ["", *section.notes] if section.notes else []
        return "\n".join(lines) + "\n"


def show(section: Section) -> None:
    """Prints one section as a plain table."""
    print(f"\n{section.name}: {section.title}")
    if section.skipped:
        print(f"  not measured: {section.skipped}")
        return
    width = max(len(f.name) for f in section.figures)
    for f in section.figures:
        line = f"  {f.name:<{width}}  {_number(f.value):>10} {f.unit:<16} {f.budget_text:>9}"
        print(f"{line} {f.verdict:<4} {f.note}".rstrip())
    for note in section.notes:
        print(f"  {note}")


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before"
    )


def _with_verdicts(data: dict[str, Any], report: Report) -> dict[str, Any]:
    for shown, section in zip(data["sections"], report.sections, strict=True):
        for figure, f in zip(shown["figures"], section.figures, strict=True):
            figure["passed"] = f.passed
    return data
