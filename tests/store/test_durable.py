"""``durable``: answered only when the job is on disk, refused where nobody can promise that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from taskq.client import AsyncClient, SyncClient
from taskq.embedded import EmbeddedServer
from taskq.errors import DurableUnsupported
from taskq.ids import UlidFactory, join_id
from taskq.model import JobSpec
from taskq.submission import SubmitOptions, make_spec

ulid = UlidFactory()


def job(**options: object) -> JobSpec:
    wanted = SubmitOptions(durable=True, **options)  # type: ignore[arg-type]
    return make_spec(ulid, "echo", b"{}", wanted)[1]


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path, persistent=True, appendfsync="always") as server:
        yield server


def stored(synced: EmbeddedServer) -> int:
    with redis.Redis.from_url(synced.url) as client:
        return len(list(client.scan_iter("taskq:{*}:job:*")))


def change(synced: EmbeddedServer, name: str, value: str) -> None:
    with redis.Redis.from_url(synced.url) as client:
        client.config_set(name, value)


def test_r10_what_was_answered_is_there_after_kill_9(synced: EmbeddedServer) -> None:
    """New jobs and repeats of stored ones; the kill follows the answer at once."""
    for n in range(5):
        client = SyncClient.from_url(synced.url, "taskq")
        specs = [job(), job(idempotency_key=f"k{n}"), job(idempotency_key=f"k{n}")]
        for spec in specs:
            client.submit("default", spec)
        synced.kill()
        synced.start()
        for spec in specs:
            assert client.job(join_id("default", spec.id)).state == "queued"
        client.close()


@pytest.mark.parametrize(
    "setting",
    [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes"), ("appendonly", "no")],
)
def test_r10_refused_from_the_moment_the_settings_do_not_hold(
    synced: EmbeddedServer, setting: tuple[str, str]
) -> None:
    client = SyncClient.from_url(synced.url, "taskq")
    client.submit("default", job())
    change(synced, *setting)
    with pytest.raises(DurableUnsupported, match=setting[0]):
        client.submit("default", job())
    with pytest.raises(DurableUnsupported):
        client.submit_many("default", [make_spec(ulid, "echo", b"{}", SubmitOptions())[1], job()])
    assert stored(synced) == 1
    client.close()


async def test_the_async_client_refuses_as_well(redis_url: str) -> None:
    """In memory only: nothing can be durable; what does not ask for it is taken."""
    client = AsyncClient.from_url(redis_url, "taskq")
    plain = make_spec(ulid, "echo", b"{}", SubmitOptions())[1]
    with pytest.raises(DurableUnsupported):
        await client.submit("default", job())
    with pytest.raises(DurableUnsupported):
        await client.submit_many("default", [plain, job()])
    assert (await client.submit("default", plain)).created
    await client.close()


def test_r10_refused_where_the_server_tells_no_settings(synced: EmbeddedServer) -> None:
    """As managed servers do."""
    with redis.Redis.from_url(synced.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    client = SyncClient.from_url(synced.url, "taskq", username="app", password="pw")
    with pytest.raises(DurableUnsupported, match="does not tell"):
        client.submit("default", job())
    assert stored(synced) == 0
    client.close()
