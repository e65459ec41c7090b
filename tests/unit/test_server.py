"""The verdict on a server: what stops a start, what is only said, what stays unknown."""

from typing import Any

import pytest
import redis.exceptions as rx

from taskq.embedded import EmbeddedServer
from taskq.errors import Unavailable, UnsafeServerError
from taskq.keys import Keys
from taskq.server import ServerReport, _config, _info, check_server, judge, raise_if_unsafe
from taskq.store import AsyncStore

GOOD = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": "1000000",
    "aof_enabled": "1",
}
LISTPACK = {"hash-max-listpack-value": "1024"}


def report(**facts: str) -> ServerReport:
    return judge({**GOOD, **facts}, LISTPACK)


def test_a_good_server_is_passed_in_silence() -> None:
    assert report() == ServerReport("redis", "7.2.4")
    raise_if_unsafe(report())


@pytest.mark.parametrize(
    ("facts", "flavour", "safe"),
    [
        ({"redis_version": "6.2.14"}, "redis", False),
        ({"redis_version": "7.0.0"}, "redis", True),
        ({"redis_version": "8.4.0"}, "redis", True),
        ({"redis_version": "10.0.1"}, "redis", True),
        ({"server_name": "valkey", "valkey_version": "7.2.0"}, "valkey", True),
        ({"server_name": "valkey", "valkey_version": "7.1.9"}, "valkey", False),
        ({"server_name": "valkey", "valkey_version": "9.1.0-rc1"}, "valkey", True),
    ],
)
def test_old_versions_are_refused(facts: dict[str, str], flavour: str, safe: bool) -> None:
    found = report(**facts)
    assert (found.flavour, found.safe) == (flavour, safe)
    if not safe:
        with pytest.raises(UnsafeServerError, match="too old"):
            raise_if_unsafe(found)


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"]
)
def test_an_evicting_policy_is_refused_with_and_without_a_limit(policy: str) -> None:
    """F44: by every process that starts, before it takes or stores a job."""
    for maxmemory in ("100000000", "0"):
        found = report(maxmemory_policy=policy, maxmemory=maxmemory)
        assert policy in found.problems[0]


@pytest.mark.parametrize(
    ("nodes", "slots", "safe"), [("1", "16384", True), ("3", "16384", False), ("1", "8001", False)]
)
def test_a_node_of_a_larger_cluster_is_refused(nodes: str, slots: str, safe: bool) -> None:
    """F53: at the start, in one line, and not by the first queue whose slot is elsewhere."""
    said = {"cluster_state": "ok", "cluster_size": nodes, "cluster_slots_assigned": slots}
    found = judge({**GOOD, "cluster_enabled": "1"}, LISTPACK, None, said)
    assert found.safe is safe
    assert all("cluster" in problem and "\n" not in problem for problem in found.problems)
    assert judge(GOOD, LISTPACK, None, said).safe, "a server that is no node"


async def test_a_node_that_lacks_slots_is_refused() -> None:
    """F53: as a real node says it."""
    with EmbeddedServer(config={"cluster-enabled": "yes"}) as server:
        assert "0 of 16384" in (await ask(server.url)).problems[0]


@pytest.mark.parametrize("mark", ["min_reader", "min_writer"])
def test_data_of_a_newer_version_is_refused(mark: str) -> None:
    """F88: what an older version would misread is marked, and it does not start."""
    facts = {"redis_version": "7.2.0", "maxmemory_policy": "noeviction"}
    assert judge(facts, {}, {mark: "1"}).safe
    found = judge(facts, {}, {mark: "2"})
    assert mark in found.problems[0]
    assert "upgrade" in found.problems[0]


@pytest.mark.parametrize(("read_only", "word"), [("1", "read-only"), ("0", "writable")])
def test_a_replica_is_refused(read_only: str, word: str) -> None:
    found = report(role="slave", slave_read_only=read_only)
    assert word in found.problems[0]


def test_what_an_operator_should_weigh_is_a_warning() -> None:
    assert "append-only" in report(aof_enabled="0").warnings[0]
    assert "failed" in report(aof_last_write_status="err").warnings[0]
    assert "95 %" in report(maxmemory="1000", used_memory="950").warnings[0]
    assert report(maxmemory="1000", used_memory="900").warnings == ()
    small = judge(GOOD, {"hash-max-listpack-value": "64"})
    assert "64" in small.warnings[0]


def test_several_problems_make_one_line() -> None:
    bad = report(redis_version="6.0.9", role="slave")
    with pytest.raises(UnsafeServerError) as caught:
        raise_if_unsafe(bad)
    assert "\n" not in str(caught.value)
    assert "too old" in str(caught.value)
    assert "replica" in str(caught.value)


def test_a_server_that_tells_nothing_is_not_guessed_at() -> None:
    found = judge(None, None)
    assert (found.flavour, found.version, found.problems, found.warnings) == (
        "unknown",
        "unknown",
        (),
        (),
    )
    assert "maxmemory-policy" in found.unknown
    assert judge(GOOD, None).unknown == ("hash-max-listpack-value",)


def test_info_is_read_in_every_shape() -> None:
    as_text = b"# Memory\r\nmaxmemory:10\r\nmaxmemory_policy:noeviction\r\n"
    assert _info(as_text) == {"maxmemory": "10", "maxmemory_policy": "noeviction"}
    assert _info({"maxmemory": 10, "aof_enabled": 0}) == {"maxmemory": "10", "aof_enabled": "0"}
    assert _config([b"a", b"1"]) == _config({b"a": b"1"}) == _config({"a": "1"}) == {"a": "1"}


@pytest.mark.parametrize(
    "refusal",
    [
        rx.NoPermissionError("User app has no permissions to run the 'config|get' command"),
        rx.ResponseError("unknown command 'CONFIG', with args beginning with: 'GET'"),
    ],
)
def test_a_forbidden_command_is_unknown(refusal: Exception) -> None:
    assert _config(refusal) is None


def test_any_other_error_is_a_failure() -> None:
    with pytest.raises(Unavailable):
        _info(rx.AuthenticationError("Authentication required."))


async def ask(url: str, **options: Any) -> ServerReport:
    store = AsyncStore.from_url(url, Keys(), retry_seconds=0, **options)
    try:
        return await check_server(store)
    finally:
        await store.close()


async def test_the_embedded_server_is_safe(redis_url: str) -> None:
    found = await ask(redis_url)
    assert found.flavour == "valkey"
    assert found.safe
    assert found.unknown == ()


async def test_a_user_who_may_not_ask_for_config(redis_url: str) -> None:
    store = AsyncStore.from_url(redis_url, Keys())
    await store.pipeline(
        [("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-config", "-info")]
    )
    try:
        found = await ask(redis_url, username="plain", password="secret")
    finally:
        await store.pipeline([("ACL", "DELUSER", "plain")])
        await store.close()
    assert found.flavour == "unknown"
    assert "hash-max-listpack-value" in found.unknown


async def test_no_server_is_a_failure_and_no_verdict() -> None:
    with pytest.raises(Unavailable):
        await ask("redis://127.0.0.1:1/0")
