"""``python -m bench [NAME ...]``: measures, and prints the ratios against their budgets.

A complete run (no names, not ``--quick``) writes ``bench/RESULTS.md``. Exit code 1 if a budget is
missed.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import depth, drain, events, latency, memory, rest_scale, screens, server, submit
from bench.report import Plan, Report, Section, show
from bench.rig import rig

MEASUREMENTS: dict[str, Callable[[Plan], Section]] = {
    "server": server.measure,
    "memory": memory.measure,
    "depth": depth.measure,
    "drain": drain.measure,
    "latency": latency.measure,
    "events": events.measure,
    "submit": submit.measure,
    "rest-scale": rest_scale.measure,
    "screens": screens.measure,
}
RESULTS = Path(__file__).with_name("RESULTS.md")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="less precise, in about half a minute")
    parser.add_argument("--full", action="store_true", help="depth with 10,000,000 jobs too (5 GB)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - MEASUREMENTS.keys()
    if unknown:
        parser.error(
            f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}"
        )
    plan = Plan(quick=given.quick, full=given.full)
    with rig() as probe:
        version = probe.version
    report = Report(command=" ".join(["python -m bench", *_shown(given)]), server=version)
    print(f"{report.machine}; {report.server}; Python {report.python}")
    for name in given.names or MEASUREMENTS:
        section = MEASUREMENTS[name](plan)
        show(section)
        report.sections.append(section)
    if given.json:
        given.json.write_text(report.as_json())
    if not given.names and not given.quick:
        RESULTS.write_text(report.as_markdown())
    for figure in report.missed:
        shown = f"{figure.value:.2f} {figure.unit} ({figure.budget_text})"
        print(f"\nbudget missed: {figure.name} is {shown}")
    return 1 if report.missed else 0


def _shown(given: argparse.Namespace) -> list[str]:
    """What was asked for, without the name of a file on this machine."""
    return [*given.names, *(f"--{flag}" for flag in ("quick", "full") if getattr(given, flag))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
