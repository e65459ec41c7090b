"""Is this server one that keeps jobs? Version, eviction, durability and headroom, asked in one round trip.

A *problem* would lose jobs or cannot work: processes refuse to start with it. A *warning* is the
operator's to weigh. What a managed server does not tell is listed as unknown and never guessed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from taskq.errors import UnsafeServerError
from taskq.store import AsyncStore, translate

MIN_VERSION: Mapping[str, tuple[int, int]] = {"redis": (7, 0), "valkey": (7, 2)}
SCHEMA_READER = SCHEMA_WRITER = 1
"""What this version understands; data may be marked as needing more (see ``mark_schema``)."""
MIN_LISTPACK_VALUE = 1024
"""Hashes with longer values are stored as tables, at about twice the memory for a small job."""
ALL_SLOTS = "16384"
HEADROOM = 0.9
"""Share of maxmemory from which the janitor drops ended jobs early."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What was found. ``problems`` are fatal; ``unknown`` names what the server would not tell."""

    flavour: Literal["redis", "valkey", "unknown"]
    version: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server tells about itself; None for what it would not tell. Sizes are bytes."""

    role: str | None
    uptime_seconds: int | None
    clients: int | None
    replicas: int | None
    memory_used: int | None
    memory_peak: int | None
    memory_max: int | None
    """0: no limit."""
    maxmemory_policy: str | None
    append_only: bool | None
    append_fsync: str | None
    """``always``, ``everysec`` or ``no``: how often what is written reaches the disk."""
    append_only_ok: bool | None
    """Whether its last write to the append-only file went well."""
    append_only_size: int | None


async def look_at_server(store: AsyncStore) -> tuple[ServerReport, ServerFacts]:
    """``check_server``, and what there is to show. Raises ``Unavailable`` when it cannot be asked."""
    info, listpack, fsync, marks, cluster = await store.pipeline(
        [
            ("INFO",),
            ("CONFIG", "GET", "hash-max-listpack-value"),
            ("CONFIG", "GET", "appendfsync"),
            ("HGETALL", store.keys.schema),
            ("CLUSTER", "INFO"),
        ]
    )
    told = _info(info)
    # A marker that is no hash is doctor's to report; an error about the cluster says that it is none.
    report = judge(
        told,
        _config(listpack),
        None if isinstance(marks, Exception) else _config(marks),
        None if isinstance(cluster, Exception) else _info(cluster),
    )
    return report, _facts(told or {}, _config(fsync) or {})


def _facts(info: Mapping[str, str], config: Mapping[str, str]) -> ServerFacts:
    def number(name: str) -> int | None:
        text = info.get(name, "")
        return int(text) if text.isdecimal() else None

    append_only = number("aof_enabled")
    written = info.get("aof_last_write_status")
    return ServerFacts(
        role=info.get("role"),
        uptime_seconds=number("uptime_in_seconds"),
        clients=number("connected_clients"),
        replicas=number("connected_slaves"),
        memory_used=number("used_memory"),
        memory_peak=number("used_memory_peak"),
        memory_max=number("maxmemory"),
        maxmemory_policy=info.get("maxmemory_policy"),
        append_only=None if append_only is None else append_only == 1,
        append_fsync=config.get("appendfsync"),
        append_only_ok=None if written is None else written == "ok",
        append_only_size=number("aof_current_size"),
    )


async def check_server(store: AsyncStore) -> ServerReport:
    """Looks at the server. Raises ``Unavailable`` when it cannot be asked."""
    report, _ = await look_at_server(store)
    return report


def raise_if_unsafe(report: ServerReport) -> None:
    """Raises ``UnsafeServerError``, one line, when the report holds a problem."""
    if report.problems:
        raise UnsafeServerError(
            f"this {report.flavour} {report.version} server is not safe for jobs: "
            + "; ".join(report.problems)
        )


async def mark_schema(store: AsyncStore) -> None:
    """Notes what it takes to read and write this data, where nobody has; never lowers it.

    A feature that an older version would misread raises the marks when it is first used. Best effort: a
    server that takes no writes now is asked again by the next process that starts.
    """
    key = store.keys.schema
    await store.pipeline(
        [
            ("HSETNX", key, "min_reader", SCHEMA_READER),
            ("HSETNX", key, "min_writer", SCHEMA_WRITER),
        ]
    )


def judge(
    info: Mapping[str, str] | None,
    config: Mapping[str, str] | None,
    schema: Mapping[str, str] | None = None,
    cluster: Mapping[str, str] | None = None,
) -> ServerReport:
    """The verdict on what INFO, CONFIG, the schema's marks and CLUSTER INFO said; None where one is not to
    be had."""
    facts = info or {}
    flavour: Literal["redis", "valkey", "unknown"] = "unknown"
    if info is not None:
        flavour = "valkey" if facts.get("server_name") == "valkey" else "redis"
    version = facts.get(f"{flavour}_version", "") or "unknown"
    listpack = (config or {}).get("hash-max-listpack-value")
    warnings = [*_durability(facts), *_headroom(facts)]
    if listpack is not None and int(listpack) < MIN_LISTPACK_VALUE:
        warnings.append(
            f"hash-max-listpack-value is {listpack}: jobs take about twice the memory; "
            f"set it to {MIN_LISTPACK_VALUE}"
        )
    return ServerReport(
        flavour,
        version,
        problems=(
            *_too_old(flavour, version),
            *_replica(facts),
            *_cluster(facts, cluster or {}),
            *_eviction(facts),
            *_schema(schema or {}),
        ),
        warnings=tuple(warnings),
        unknown=tuple(_unknown(facts, listpack)),
    )


def _too_old(flavour: str, version: str) -> Iterator[str]:
    found = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    least = MIN_VERSION.get(flavour)
    if least and found and found < least:
        yield (
            f"{flavour} {version} is too old: taskq needs Redis 7.0 or Valkey 7.2, or newer "
            "(its scripts carry flags that older servers refuse)"
        )


def _replica(facts: Mapping[str, str]) -> Iterator[str]:
    if facts.get("role") == "slave":
        kind = "writable" if facts.get("slave_read_only") == "0" else "read-only"
        yield f"it is a {kind} replica: point taskq at the primary"


def _cluster(facts: Mapping[str, str], cluster: Mapping[str, str]) -> Iterator[str]:
    """One node may hold all slots. With more, queues whose slots are elsewhere would be refused later."""
    if facts.get("cluster_enabled") != "1" or not cluster:
        return
    nodes, slots = cluster.get("cluster_size", "1"), cluster.get("cluster_slots_assigned", "")
    if nodes not in ("0", "1") or slots != ALL_SLOTS:
        yield (
            f"it is a node of a cluster ({nodes} with slots, {slots} of {ALL_SLOTS} slots assigned), and "
            "taskq talks to one node: use a server of its own, or a cluster whose one node holds all slots"
        )


def _eviction(facts: Mapping[str, str]) -> Iterator[str]:
    """Refused also while there is no limit: the day somebody sets one, jobs would vanish silently."""
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f"maxmemory-policy {policy} would evict jobs: set maxmemory-policy noeviction"


def _schema(schema: Mapping[str, str]) -> Iterator[str]:
    """Data that a newer taskq has marked as beyond this one's understanding."""
    for name, ours in (("min_reader", SCHEMA_READER), ("min_writer", SCHEMA_WRITER)):
        needed = schema.get(name, "")
        if needed.isdecimal() and int(needed) > ours:
            yield (
                f"its data asks for {name} {needed} and this taskq is {ours}: upgrade taskq before "
                "it joins the others"
            )


def _durability(facts: Mapping[str, str]) -> Iterator[str]:
    if facts.get("aof_enabled") == "0":
        yield "the append-only file is off: a restart of the server loses jobs; set appendonly yes"
    elif facts.get("aof_last_write_status", "ok") != "ok":
        yield "the last write to the append-only file failed: look at the disk and the server's log"


def _headroom(facts: Mapping[str, str]) -> Iterator[str]:
    limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    if limit and used > HEADROOM * limit:
        yield (
            f"memory is at {100 * used // limit} % of maxmemory: at 100 % new jobs are refused; "
            "raise maxmemory or keep ended jobs for less long"
        )


def _unknown(facts: Mapping[str, str], listpack: str | None) -> Iterator[str]:
    for name, field in (
        ("version", "redis_version"),
        ("role", "role"),
        ("maxmemory-policy", "maxmemory_policy"),
        ("maxmemory", "maxmemory"),
        ("appendonly", "aof_enabled"),
    ):
        if field not in facts:
            yield name
    if listpack is None:
        yield "hash-max-listpack-value"


def _info(reply: Any) -> dict[str, str] | None:
    """INFO as text. redis-py answers a dict with numbers parsed, a bare connection the text itself."""
    if isinstance(reply, Exception):
        _raise_unless_refused(reply)
        return None
    if isinstance(reply, dict):
        return {_text(key): _text(value) for key, value in reply.items()}
    lines = (line.partition(":") for line in _text(reply).splitlines() if ":" in line)
    return {key: value for key, _, value in lines}


def _config(reply: Any) -> dict[str, str] | None:
    if isinstance(reply, Exception):
        _raise_unless_refused(reply)
        return None
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(key): _text(value) for key, value in items}


def _raise_unless_refused(error: Exception) -> None:
    """Managed servers forbid or rename commands: that is an answer. Anything else is a failure."""
    text = str(error).lower()
    if not any(sign in text for sign in ("no permissions", "noperm", "unknown", "unsupported")):
        raise translate(error) from error


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
