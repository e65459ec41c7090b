"""Claims that wait, that are sent again, and whose client is gone."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.lease import (
    beat,
    lease,
    of,
    report,
    run_out,
    shown,
    until_polling,
)
from taskq import calls, leases
from taskq_api import schemas
from taskq_api.access import OPEN
from taskq_api.claiming import Claiming, Given, Wanted
from taskq_api.leasing import Desk

Check = Callable[..., dict[str, Any]]


# --- the long poll --------------------------------------------------------------------------------


async def test_a_poll_wakes_on_new_work(api: Any) -> None:
    poll = asyncio.create_task(lease(api, job_types=["echo"], wait=20))
    await until_polling(api)
    begun = time.monotonic()
    job = await api.submit()
    assert [j["id"] for j in (await poll)["jobs"]] == [job["id"]]
    assert time.monotonic() - begun < 8


async def test_a_poll_for_any_type_wakes_too(api: Any) -> None:
    poll = asyncio.create_task(lease(api, wait=20))
    await until_polling(api)
    job = await api.submit(job_type="unheard.of")
    assert [j["id"] for j in (await asyncio.wait_for(poll, 5))["jobs"]] == [job["id"]]


async def test_a_poll_wakes_when_a_delayed_job_is_due(run_api: Any) -> None:
    """No janitor is needed for it."""
    async with run_api(janitor_seconds=60) as api:
        job = await api.submit(delay=0.5)
        begun = time.monotonic()
        found = await lease(api, job_types=["echo"], wait=20)
        assert [j["id"] for j in found["jobs"]] == [job["id"]]
        assert time.monotonic() - begun < 10


async def test_many_polls_share_the_work(api: Any) -> None:
    polls = [asyncio.create_task(lease(api, job_types=["echo"], wait=15)) for _ in range(30)]
    await until_polling(api, 30)
    jobs = {(await api.submit())["id"] for _ in range(30)}
    taken = [job["id"] for poll in polls for job in (await poll)["jobs"]]
    assert sorted(taken) == sorted(jobs)


async def test_idle_polls_cost_one_look_a_second_however_many(run_api: Any) -> None:
    async with run_api(janitor_seconds=60) as api:
        polls = [asyncio.create_task(lease(api, job_types=["echo"], wait=20)) for _ in range(50)]
        await until_polling(api, 50)
        async with asyncio.timeout(10):
            while (await api.store.redis.info("clients"))["blocked_clients"] != 1:
                await asyncio.sleep(0.01)
        await api.store.redis.config_resetstat()
        begun = time.monotonic()
        await asyncio.sleep(2)
        stats = await api.store.redis.info("commandstats")
        looks = time.monotonic() - begun + 2
        assert stats["cmdstat_blpop"]["calls"] <= looks
        assert stats["cmdstat_evalsha"]["calls"] <= looks
        api.app.state.stopping.set()
        await asyncio.gather(*polls)


async def test_nothing_stays_of_a_poll_that_found_nothing(api: Any) -> None:
    assert await lease(api, wait=0.3) == {
        "id": None, "queue": "default", "worker": None, "lease_seconds": 30, "expires_at": None, "jobs": [],
    }  # fmt: skip
    assert await api.store.redis.keys("*lease*") == []
    assert (await api.http.get("/workers")).json()["workers"] == []


# --- the same claim again -------------------------------------------------------------------------


async def test_twenty_claims_with_one_key_make_one_lease(api: Any) -> None:
    for _ in range(60):
        await api.submit()
    key = {"idempotency-key": "k"}
    found = await asyncio.gather(*(lease(api, key, job_types=["echo"], max=3) for _ in range(20)))
    assert len({f["id"] for f in found}) == 1
    assert {tuple(j["id"] for j in f["jobs"]) for f in found} == {
        tuple(j["id"] for j in found[0]["jobs"])
    }
    assert len({j["fence"] for f in found for j in f["jobs"]}) <= 3
    assert (await api.http.get("/queues/default")).json()["counts"] | {"queued": 57} == (
        (await api.http.get("/queues/default")).json()["counts"]
    )


async def test_polls_with_one_key_wake_to_one_lease(api: Any) -> None:
    key = {"idempotency-key": "k"}
    polls = [asyncio.create_task(lease(api, key, job_types=["echo"], wait=5)) for _ in range(5)]
    await until_polling(api)
    await api.submit()
    found = await asyncio.gather(*polls)
    assert len({f["id"] for f in found}) == 1
    assert found[0]["id"] is not None


async def test_a_repeat_at_another_process_answers_the_same(run_api: Any) -> None:
    async with run_api() as one, run_api() as two:
        await one.submit()
        await one.submit()
        key = {"idempotency-key": "k"}
        first = await lease(one, key, max=1)
        again = await lease(two, key, max=1, wait=5)
        assert again["id"] == first["id"]
        assert again["jobs"] == first["jobs"]


async def test_a_repeat_after_the_process_died_in_the_middle(api: Any, run_api: Any) -> None:
    """Jobs were claimed, and nobody was told: the record stands, the claim is not settled."""
    await api.submit()
    await api.submit()
    fresh = leases.make("default", "", "", 30_000)
    wanted = {"idempotency-key": "k"}
    asked = Wanted.of(schemas.LeaseRequest(max=1), OPEN, "k")
    keys = api.store.keys.queue("default")
    await api.store.run(
        calls.lease(keys, fresh, key=asked.key, request=asked.digest, keep_ms=60_000)
    )
    reply = await api.store.run(calls.claim(keys, fresh.worker, 1, 1, ["echo"], lease_ms=30_000))
    found = await lease(api, wanted, max=1)
    assert found["id"] == fresh.lease
    assert [j["fence"] for j in found["jobs"]] == [int(reply.jobs[0].fence)]


async def test_a_repeat_tells_of_what_is_still_held(api: Any) -> None:
    for _ in range(2):
        await api.submit()
    key = {"idempotency-key": "k"}
    first = await lease(api, key, max=2)
    await report(api, first, of(first["jobs"][0], "succeeded"))
    assert [j["id"] for j in (await lease(api, key, max=2))["jobs"]] == [first["jobs"][1]["id"]]


async def test_another_claim_with_the_key_is_refused(api: Any, problem: Check) -> None:
    await api.submit()
    key = {"idempotency-key": "k"}
    await lease(api, key, max=1)
    problem(
        await api.http.post("/leases", json={"max": 2}, headers=key), 409, "idempotency_conflict"
    )
    assert (await lease(api, key, queue="mail"))["id"] is None  # another queue is another claim


async def test_a_repeat_of_a_lease_that_is_over_says_so(api: Any, problem: Check) -> None:
    await api.submit()
    key = {"idempotency-key": "k"}
    found = await lease(api, key)
    await run_out(api, found)
    problem(await api.http.post("/leases", json={}, headers=key), 410, "lease_lost")


@pytest.mark.parametrize("key", ["", "x" * 201, "a{b}"])
async def test_refuses_a_key_that_is_none(api: Any, problem: Check, key: str) -> None:
    answer = await api.http.post("/leases", json={}, headers={"idempotency-key": key})
    assert problem(answer, 422, "invalid")["field"] == "idempotency_key"


# --- a client that is gone ------------------------------------------------------------------------


class Leaving:
    """A client that is there when it is asked for the first time, and gone at the second."""

    def __init__(self, meanwhile: Callable[[], Any] | None = None) -> None:
        self.gone = asyncio.Event()
        self._meanwhile = meanwhile
        self._asked = 0

    async def is_gone(self) -> bool:
        self._asked += 1
        if self._asked == 2 and self._meanwhile is not None:
            await self._meanwhile()
        return self._asked > 1


async def claim_and_leave(api: Any, client: Leaving, key: str | None = None) -> Given:
    desk = Desk(api.app.state.services, OPEN)
    wanted = Wanted.of(schemas.LeaseRequest(max=5), OPEN, key)
    return await Claiming(desk).jobs(wanted, client, asyncio.Event())  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, "k"])
async def test_jobs_of_a_client_that_is_gone_go_back_and_burn_nothing(
    api: Any, key: str | None
) -> None:
    jobs = [await api.submit() for _ in range(3)]
    assert (await claim_and_leave(api, Leaving(), key)).lease is None
    for job in jobs:
        now = await shown(api, job)
        assert (now["state"], now["attempts"]) == ("queued", 1)
        assert (now["failures"], now["crashes"], now["lost"]) == (0, 0, 0)
        assert now["history"][-1]["event"] == "released"
    found = await lease(api, {"idempotency-key": "k"}, max=5)
    assert [j["id"] for j in found["jobs"]] == [job["id"] for job in jobs]


async def test_a_client_that_is_gone_takes_nothing_from_one_that_was_answered(api: Any) -> None:
    """Two requests with one key: the second was answered while the first lost its client."""
    for _ in range(3):
        await api.submit()
    answered: list[dict[str, Any]] = []

    async def second() -> None:
        answered.append(await lease(api, {"idempotency-key": "k"}, max=5))

    given = await claim_and_leave(api, Leaving(second), "k")
    (found,) = answered
    assert given.lease is not None
    assert (given.lease.lease, len(found["jobs"])) == (found["id"], 3)
    assert (await beat(api, found)).json()["held"] == [job["id"] for job in found["jobs"]]
