"""Replies get lost on the way back: whoever asks again under the same key has one job, not two."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from support.relay import Relay
from taskq.embedded import EmbeddedServer

SUBMISSIONS = 500
SENDERS = 8


@pytest.fixture(scope="module")
def tcp() -> Iterator[EmbeddedServer]:
    """A server on a port, so that a relay fits in front of it."""
    with EmbeddedServer(port=0) as server:
        yield server


@pytest.fixture
def tcp_url(tcp: EmbeddedServer) -> str:
    with redis.Redis.from_url(tcp.url) as client:
        client.flushall()
    return tcp.url


async def persist(http: httpx.AsyncClient, number: int, answered: dict[int, list[str]]) -> int:
    """Submits one job, again and again until it is answered for; says how often it asked."""
    for tries in range(1, 50):
        try:
            answer = await http.post(
                "/jobs",
                json={"job_type": "echo", "payload": {"n": number}},
                headers={"idempotency-key": f"key-{number:04}"},
            )
        except httpx.TransportError:
            continue
        if answer.status_code == 503:
            await asyncio.sleep(0.05)
            continue
        assert answer.status_code in (200, 201), answer.text
        answered[number].append(answer.json()["id"])
        return tries
    raise AssertionError(f"submission {number} was never answered")


async def submit_all(url: str) -> tuple[dict[int, list[str]], int]:
    """Ids by submission, and how often was asked in all."""
    left = iter(range(SUBMISSIONS))
    answered: dict[int, list[str]] = {n: [] for n in range(SUBMISSIONS)}
    tries = 0

    async def sender(http: httpx.AsyncClient) -> None:
        nonlocal tries
        for number in left:
            asked = await persist(http, number, answered)
            tries += asked

    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        await asyncio.gather(*(sender(http) for _ in range(SENDERS)))
    return answered, tries


def check_one_job_each(redis_url: str, answered: dict[int, list[str]]) -> None:
    """Every submission has a job of its own with its own payload, and no other job is there."""
    ids = [job_id for found in answered.values() for job_id in found]
    assert len(ids) == len(set(ids)) == SUBMISSIONS
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        stored = {key.rpartition(":")[2] for key in client.scan_iter("taskq:{*}:job:*", 1000)}
        assert stored == {job_id.rpartition(":")[2] for job_id in ids}
        for number, (job_id,) in answered.items():
            payload = client.hget(f"taskq:{{default}}:job:{job_id.rpartition(':')[2]}", "payload")
            assert payload == f'{{"n":{number}}}'


async def test_replies_to_the_client(tcp_url: str, start_api: Callable[..., Any]) -> None:
    process = start_api("--redis-url", tcp_url)
    chance, seen = random.Random(4), Counter[bytes]()

    def loses(request: bytes) -> bool:
        """The first answer to each submission, and a third of the later ones."""
        keys = re.findall(rb"(?i)idempotency-key: (\S+)", request)
        seen.update(keys)
        return any(seen[key] == 1 or chance.random() < 1 / 3 for key in keys)

    relay = Relay(process.port, loses)
    try:
        answered, tries = await submit_all(f"http://127.0.0.1:{relay.port}")
        lost = relay.lost
    finally:
        relay.close()
    assert lost >= SUBMISSIONS
    assert tries >= SUBMISSIONS + lost
    check_one_job_each(tcp_url, answered)


async def test_replies_of_redis(
    tcp: EmbeddedServer, tcp_url: str, start_api: Callable[..., Any]
) -> None:
    chance = random.Random(4)

    def loses(request: bytes) -> bool:
        return b"EVALSHA" in request and chance.random() < 1 / 3

    relay = Relay(int(tcp.url.rpartition(":")[2].partition("/")[0]), loses)
    process = start_api("--redis-url", relay.url)
    try:
        answered, _ = await submit_all(process.url)
        lost = relay.lost
        assert process.stop() == 0
    finally:
        relay.close()
    assert lost >= 20
    check_one_job_each(tcp_url, answered)
