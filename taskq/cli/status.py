"""``taskq workers``, ``stats`` and ``doctor``: how it goes, and whether all is well."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from taskq.cli.jobs import FIRST_JOB
from taskq.cli.options import connection_options, json_option, run
from taskq.cli.tables import age, echo_json, milliseconds, plain, table
from taskq.doctor import Finding, examine, examine_all, rebuild_registry, server_findings
from taskq.inspector import MINUTES_MAX, Inspector, Latency, Statistics
from taskq.present import statistics_to_dict, worker_to_dict
from taskq.registry import now_ms
from taskq.server import check_server
from taskq.store import AsyncStore


@click.command()
@json_option
@connection_options
def workers(as_json: bool, redis_url: str | None, namespace: str | None) -> None:
    """List the workers that were seen lately."""
    found = run(redis_url, namespace, lambda store: Inspector(store).workers())
    if as_json:
        echo_json({"workers": [worker_to_dict(worker) for worker in found]})
        return
    if not found:
        click.echo("no live workers; start one with: taskq worker")
        return
    now = now_ms()
    rows = [
        (
            w.id,
            w.state,
            f"{w.busy}/{w.slots}",
            ",".join(w.queues),
            f"{len(w.types)} types",
            age(w.started_at, now),
            age(w.seen_at, now),
            w.version,
        )
        for w in found
    ]
    headers = ("WORKER", "STATE", "BUSY", "QUEUES", "RUNS", "UP", "SEEN", "VERSION")
    click.echo(table(headers, rows))


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
    title = f"queue {plain(statistics.queue)}, the last {minutes} minutes"
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
@json_option
@connection_options
def doctor(
    queue: str | None,
    rebuild_registry: bool,
    as_json: bool,
    redis_url: str | None,
    namespace: str | None,
) -> None:
    """Check the server, and that every job is where it should be.

    Reads in bounded pages, so it may run against a system under load. Exits 1 when there are errors.
    """

    async def action(store: AsyncStore) -> tuple[list[str], list[Finding]]:
        added = await _rebuild(store) if rebuild_registry else []
        if queue is None:
            return added, await examine_all(store)
        await Inspector(store).queue(queue)
        return added, server_findings(await check_server(store)) + await examine(store, queue)

    added, findings = run(redis_url, namespace, action)
    if as_json:
        echo_json(_report(added, findings))
    else:
        for name in added:
            click.echo(f"registry: entered {plain(name)}")
        _print_findings(findings)
    if any(finding.severity == "error" for finding in findings):
        raise click.exceptions.Exit(1)


_rebuild = rebuild_registry


def _report(added: list[str], findings: list[Finding]) -> dict[str, Any]:
    return {
        "findings": [asdict(finding) for finding in findings],
        **_numbers(findings),
        "registered": added,
    }


def _numbers(findings: list[Finding]) -> dict[str, int]:
    return {
        f"{severity}s": sum(finding.severity == severity for finding in findings)
        for severity in ("error", "warning")
    }


def _print_findings(findings: list[Finding]) -> None:
    for severity in ("error", "warning", "info"):
        for finding in findings:
            if finding.severity == severity:
                where = f"queue {finding.queue}: " if finding.queue else ""
                click.echo(plain(f"{severity:<8} {where}{finding.subject}: {finding.message}"))
                if finding.advice:
                    click.echo(plain(f"{'':<8} -> {finding.advice}"))
    n = _numbers(findings)
    click.echo("all is well" if not findings else f"{n['errors']} errors, {n['warnings']} warnings")
