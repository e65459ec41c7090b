"""``taskq stats`` and ``doctor``: how it goes, and whether all is well."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from taskq.cli.jobs import FIRST_JOB
from taskq.cli.options import acting, connection_options, json_option, run
from taskq.cli.tables import counted, echo_json, milliseconds, plain, table
from taskq.doctor import (
    Finding,
    drop_quarantine,
    examine,
    examine_all,
    fix,
    fix_all,
    rebuild_registry,
    server_findings,
)
from taskq.inspector import Inspector
from taskq.present import statistics_to_dict
from taskq.server import check_server
from taskq.settings import load_settings
from taskq.stats import MINUTES_MAX, Latency, Statistics
from taskq.store import AsyncStore


@click.command()
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option(
    "--minutes",
    type=click.IntRange(1, MINUTES_MAX),
    default=60,
    show_default=True,
    help="How far back.",
)
@json_option
@connection_options
def stats(
    queue: str | None, minutes: int, as_json: bool, redis_url: str | None, namespace: str | None
) -> None:
    """Show counts, rates and latencies by job type."""

    async def action(store: AsyncStore) -> list[Statistics]:
        look = Inspector(store)
        names = await look.queue_names() if queue is None else [(await look.queue(queue)).name]
        return [await look.statistics(name, minutes) for name in names]

    found = run(redis_url, namespace, action)
    if as_json:
        echo_json({"queues": [statistics_to_dict(statistics) for statistics in found]})
    elif not found:
        click.echo(f"no queues yet; {FIRST_JOB}")
    else:
        click.echo("\n\n".join(_statistics(statistics, minutes) for statistics in found))


def _statistics(statistics: Statistics, minutes: int) -> str:
    title = f"queue {plain(statistics.queue)}, the last {counted(minutes, 'minute')}"
    if not statistics.counts:
        return f"{title}: nothing happened"
    enqueued = statistics.counts.get("enqueued", 0)
    rate = statistics.per_minute.get("enqueued", 0.0)
    words = ("succeeded", "failed", "cancelled", "raised", "crashes", "lost")
    totals = (statistics.counts, statistics.wait, statistics.run)
    rows = [_row("all types", words, *totals)]
    rows += [_row(t.job_type, words, t.counts, t.wait, t.run) for t in statistics.types]
    headers = ("TYPE", *(word.upper() for word in words), "WAIT p50/p95/p99", "RUN p50/p95/p99")
    return f"{title}: {enqueued} submitted, {rate:,.1f} a minute\n{table(headers, rows)}"


def _row(
    name: str,
    words: Sequence[str],
    counts: dict[str, int],
    wait: Latency | None,
    runs: Latency | None,
) -> tuple[object, ...]:
    return (name, *(counts.get(word, 0) for word in words), _latency(wait), _latency(runs))


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return " / ".join(milliseconds(ms) for ms in (latency.p50, latency.p95, latency.p99))


@click.command()
@click.option("--queue", metavar="NAME", help="Only this queue (and the server).")
@click.option(
    "--rebuild-registry",
    is_flag=True,
    help="First enter every queue that has keys in the registry.",
)
@click.option("--fix", is_flag=True, help="Put right what can be; without it, only say so.")
@click.option(
    "--drop-quarantine",
    is_flag=True,
    help="First delete for good what was set aside as broken.",
)
@json_option
@connection_options
def doctor(
    queue: str | None,
    rebuild_registry: bool,
    fix: bool,
    drop_quarantine: bool,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Check the server, and that every job is where it should be.

    Reads in bounded pages, so it may run against a system under load; so may --fix, which looks at each
    item again before it touches it. Exits 1 when errors are left.
    """

    async def action(store: AsyncStore) -> _Visit:
        added: list[str] = []
        dropped: list[str] = []
        if rebuild_registry:
            async with acting(store, "doctor.rebuild-registry", "*") as note:
                added = note.parameters["registered"] = await _rebuild(store)
        if queue is not None:
            await Inspector(store).queue(queue)
        if drop_quarantine:
            async with acting(store, "quarantine.drop", queue or "*") as note:
                dropped = await _drop(store, queue)
                note.parameters["dropped"] = len(dropped)
        if not fix:
            return _Visit(added, dropped, await _look(store, queue, fix))
        async with acting(store, "doctor.fix", queue or "*") as note:
            found = await _look(store, queue, fix)
            note.parameters["fixed"] = sum(finding.fixed for finding in found)
        return _Visit(added, dropped, found)

    visit = run(redis_url, namespace, action)
    if as_json:
        echo_json(_report(visit))
    else:
        _print_visit(visit)
    if any(finding.severity == "error" and not finding.fixed for finding in visit.findings):
        raise click.exceptions.Exit(1)


_rebuild, _drop = rebuild_registry, drop_quarantine


@dataclass(frozen=True)
class _Visit:
    registered: list[str]
    dropped: list[str]
    findings: list[Finding]


async def _look(store: AsyncStore, queue: str | None, repair: bool) -> list[Finding]:
    lease = load_settings().lease_seconds
    if queue is None:
        return await (fix_all(store, lease_seconds=lease) if repair else examine_all(store))
    found = server_findings(await check_server(store))
    if repair:
        return found + await fix(store, queue, lease_seconds=lease)
    return found + await examine(store, queue)


def _report(visit: _Visit) -> dict[str, Any]:
    return {
        "findings": [asdict(finding) for finding in visit.findings],
        **_numbers(visit.findings),
        "registered": visit.registered,
        "dropped": visit.dropped,
    }


def _numbers(findings: list[Finding]) -> dict[str, int]:
    """What is left, by severity, and how much was fixed or could be."""
    left = [finding for finding in findings if not finding.fixed]
    return {
        "errors": sum(finding.severity == "error" for finding in left),
        "warnings": sum(finding.severity == "warning" for finding in left),
        "fixed": len(findings) - len(left),
        "fixable": sum(bool(finding.fix) for finding in left),
    }


def _print_visit(visit: _Visit) -> None:
    for name in visit.registered:
        click.echo(f"registry: entered {plain(name)}")
    for name in visit.dropped:
        click.echo(f"dropped: {plain(name)}")
    for word in ("fixed", "error", "warning", "info"):
        for finding in visit.findings:
            if word == ("fixed" if finding.fixed else finding.severity):
                _print_finding(word, finding)
    n = _numbers(visit.findings)
    fixed = f"{n['fixed']} fixed, " if n["fixed"] else ""
    click.echo(
        f"{fixed}{counted(n['errors'], 'error')}, {counted(n['warnings'], 'warning')}"
        if visit.findings
        else "all is well"
    )
    if n["fixable"]:
        click.echo(f"{n['fixable']} of them can be put right: taskq doctor --fix")


def _print_finding(word: str, finding: Finding) -> None:
    where = f"queue {finding.queue}: " if finding.queue else ""
    click.echo(plain(f"{word:<8} {where}{finding.subject}: {finding.message}"))
    if finding.advice and not finding.fixed:
        click.echo(plain(f"{'':<8} -> {finding.advice}"))
    if finding.fix:
        would = "" if finding.fixed else "--fix would "
        click.echo(plain(f"{'':<8} -> {would}{finding.fix}"))
