"""Leases over HTTP: claim, renew, report, hand back, each held to what it says."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from taskq import calls, leases
from taskq.doctor import examine_all
from taskq.ids import split_id
from taskq_api import schemas
from taskq_api.access import OPEN, Access
from taskq_api.claiming import Claiming, Given, Wanted
from taskq_api.leasing import Desk

Check = Callable[..., dict[str, Any]]


async def lease(api: Any, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/leases", json=fields, headers=headers or {})
    assert answer.status_code == 200, answer.text
    schemas.Lease.model_validate(answer.json(), extra="forbid")
    found: dict[str, Any] = answer.json()
    return found


async def leased(api: Any, n: int = 1, **fields: Any) -> dict[str, Any]:
    """A lease over ``n`` fresh jobs."""
    for _ in range(n):
        await api.submit(**fields)
    found = await lease(api, job_types=["echo"], max=n)
    assert len(found["jobs"]) == n
    return found


async def report(api: Any, held: dict[str, Any], *results: dict[str, Any]) -> dict[str, Any]:
    answer = await api.http.post(f"/leases/{held['id']}/results", json={"results": list(results)})
    assert answer.status_code == 200, answer.text
    schemas.ResultsAnswer.model_validate(answer.json(), extra="forbid")
    found: dict[str, Any] = answer.json()
    return found


def of(job: dict[str, Any], outcome: str, **more: Any) -> dict[str, Any]:
    return {"id": job["id"], "fence": job["fence"], "outcome": outcome, **more}


async def beat(api: Any, held: dict[str, Any]) -> Any:
    return await api.http.post(f"/leases/{held['id']}/heartbeat")


async def shown(api: Any, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get(f"/jobs/{job['id']}")).json()
    return found


async def run_out(api: Any, held: dict[str, Any]) -> None:
    """The lease runs out, and a janitor sees it."""
    keys = api.store.keys.queue(held["queue"])
    await api.store.redis.zadd(keys.leases, {held["worker"]: 0})
    await api.store.run(calls.reap(keys, lease_ms=15_000))


async def time_passes(api: Any, job: dict[str, Any], seconds: float, due: bool = False) -> None:
    """The run began so much earlier; where it is ``due``, janitors look at its lease now."""
    queue, ulid = split_id(job["id"])
    keys = api.store.keys.queue(queue)
    await api.store.redis.hincrby(keys.job(ulid), "started_at", -round(seconds * 1000))
    if due:
        worker = (await api.store.redis.hget(keys.job(ulid), "worker")).decode()
        await api.store.redis.zadd(keys.deadlines, {worker: 1})


# --- claim ----------------------------------------------------------------------------------------


async def test_a_job_with_all_that_a_worker_needs(api: Any) -> None:
    job = await api.submit(payload={"a": 1}, timeout=60, max_attempts=3, priority=7)
    before = time.time()
    found = await lease(api, job_types=["echo"], worker="gpu-1", lease_seconds=20)
    (got,) = found["jobs"]
    assert got["id"] == job["id"]
    assert got["payload"] == {"a": 1}
    assert (got["attempt"], got["failures"], got["max_attempts"], got["priority"]) == (1, 0, 3, 7)
    assert (got["timeout"], got["suspect"]) == (60, False)
    assert found["queue"] == "default"
    assert found["lease_seconds"] == 20
    now = await shown(api, job)
    assert (now["state"], now["fence"], now["worker"]) == ("running", got["fence"], found["worker"])
    assert found["worker"].startswith("gpu-1:http:")
    keys = api.store.keys.queue("default")
    until = await api.store.redis.zscore(keys.leases, found["worker"])
    assert 19 < until / 1000 - before < 25


async def test_a_lease_id_is_a_secret_that_nothing_else_shows(api: Any) -> None:
    found = await leased(api)
    queue, _, secret = found["id"].rpartition(":")
    assert queue == "default"
    assert len(bytes.fromhex(secret)) * 8 >= 128
    for path in ("/workers", f"/jobs/{found['jobs'][0]['id']}", "/queues", "/jobs"):
        assert secret not in (await api.http.get(path)).text
    others = {(await lease(api, max=1))["id"] for _ in range(2)}
    assert others == {None}  # there is no lease without a job


@pytest.mark.parametrize(
    "payload",
    [
        b'{"n":9223372036854775807,"m":-9223372036854775808,"big":123456789012345678901234567890}',
        b'{"e":[],"o":{},"text":"\xc3\xa4 \\u0000 \\"q\\"","t":1.5e300}',
        b"[]",
        b"null",
    ],
)
async def test_payloads_and_results_pass_untouched(api: Any, payload: bytes) -> None:
    await api.raw(b'{"job_type":"echo","payload":%s}' % payload)
    answer = await api.http.post("/leases", json={})
    stored = await api.store.redis.hget(
        api.store.keys.queue("default").job(split_id(answer.json()["jobs"][0]["id"])[1]), "payload"
    )
    assert b'"payload":' + stored + b"}" in answer.content
    job = answer.json()["jobs"][0]
    body = b'{"results":[{"id":"%s","fence":%d,"outcome":"succeeded","result":%s}]}' % (
        job["id"].encode(), job["fence"], payload,
    )  # fmt: skip
    lease_id = answer.json()["id"]
    done = await api.http.post(
        f"/leases/{lease_id}/results", content=body, headers={"content-type": "application/json"}
    )
    assert done.json()["recorded"] == 1
    result = await api.http.get(f"/jobs/{job['id']}/result")
    assert b'"result":' + stored in result.content


async def test_takes_the_types_that_are_known_and_no_others(api: Any) -> None:
    await api.submit(job_type="other")
    mine = await api.submit()
    assert [j["id"] for j in (await lease(api, job_types=["echo"], max=9))["jobs"]] == [mine["id"]]
    assert (await lease(api, job_types=["echo"]))["id"] is None


async def test_takes_whatever_waits_where_no_type_is_named(api: Any) -> None:
    await api.submit(job_type="other")
    await api.submit(delay=0.001)
    await asyncio.sleep(0.005)
    found = await lease(api, max=9)
    assert {job["job_type"] for job in found["jobs"]} == {"other", "echo"}


async def test_the_order_is_that_of_the_queue(api: Any) -> None:
    low, high = await api.submit(priority=-5), await api.submit(priority=5)
    found = await lease(api, max=2)
    assert [job["id"] for job in found["jobs"]] == [high["id"], low["id"]]


async def test_a_paused_queue_gives_nothing(api: Any) -> None:
    await api.submit()
    await api.http.patch("/queues/default", json={"paused": True})
    assert (await lease(api, wait=0.1))["jobs"] == []


async def test_a_suspect_comes_by_itself(api: Any) -> None:
    jobs = [await api.submit() for _ in range(4)]
    suspect = split_id(jobs[2]["id"])[1]
    await api.store.redis.hset(api.store.keys.queue("default").job(suspect), "crashes", 1)
    batches = [await lease(api, max=10) for _ in range(3)]
    ids = [[job["id"] for job in batch["jobs"]] for batch in batches]
    assert ids == [[jobs[0]["id"], jobs[1]["id"]], [jobs[2]["id"]], [jobs[3]["id"]]]
    assert batches[1]["jobs"][0]["suspect"] is True


async def test_payloads_of_more_than_a_mebibyte_are_shared_out(api: Any) -> None:
    for _ in range(3):
        await api.submit(payload="x" * 600_000)
    assert [len((await lease(api, max=10))["jobs"]) for _ in range(4)] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max": 0}, "max"),
        ({"max": 101}, "max"),
        ({"queue": "a b"}, "queue"),
        ({"job_types": []}, "job_types"),
        ({"job_types": ["a b"]}, "job_type"),
        ({"worker": "a b"}, "worker"),
        ({"lease_seconds": 0.5}, "lease_seconds"),
        ({"lease_seconds": 3601}, "lease_seconds"),
        ({"wait": -1}, "wait"),
        ({"wait": "1"}, "wait"),
        ({"types": ["echo"]}, "types"),
    ],
)
async def test_refuses_what_cannot_be_meant(
    api: Any, problem: Check, body: Any, field: str
) -> None:
    await api.submit()
    assert problem(await api.http.post("/leases", json=body), 422, "invalid")["field"] == field
    assert (await api.http.get("/queues/default")).json()["counts"]["queued"] == 1


# --- the long poll --------------------------------------------------------------------------------


async def until_polling(api: Any, n: int = 1) -> None:
    """Waits until ``n`` clients are known to poll."""
    async with asyncio.timeout(10):
        while await api.store.redis.zcard("taskq:workers") < n:
            await asyncio.sleep(0.01)


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


# --- whose lease it is ----------------------------------------------------------------------------


async def test_a_lease_of_another_key_is_not_found(run_api: Any, problem: Check) -> None:
    async with run_api(api_keys="one,two") as api:
        one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
        await api.http.post("/jobs", json={"job_type": "echo"}, headers=one)
        held = (await api.http.post("/leases", json={}, headers=one)).json()
        path = f"/leases/{held['id']}"
        run = of(held["jobs"][0], "succeeded")
        news = {"id": run["id"], "fence": run["fence"], "fraction": 0.5}
        for method, url, body in (
            ("POST", f"{path}/heartbeat", None),
            ("POST", f"{path}/results", {"results": [run]}),
            ("POST", f"{path}/progress", {"runs": [news]}),
            ("DELETE", path, None),
        ):
            answer = await api.http.request(method, url, json=body, headers=two)
            problem(answer, 404, "lease_not_found")
        assert (await api.http.post(f"{path}/heartbeat", headers=one)).status_code == 200
        assert (
            await api.http.post("/leases", json={}, headers={**two, "idempotency-key": "k"})
        ).json()["id"] is None


@pytest.mark.parametrize(
    "lease_id", ["x", "default:00", "a b:00", "default:" + "0" * 40, ":", "%00"]
)
async def test_a_lease_that_never_was_is_not_found(api: Any, problem: Check, lease_id: str) -> None:
    answer = await api.http.post(f"/leases/{lease_id}/heartbeat")
    assert "claim anew" in problem(answer, 404, "lease_not_found")["detail"]


async def test_a_lease_outlives_the_process_that_gave_it(run_api: Any) -> None:
    async with run_api() as one:
        held = await leased(one)
    async with run_api() as two:
        assert (await beat(two, held)).json()["held"] == [held["jobs"][0]["id"]]
        answer = await report(two, held, of(held["jobs"][0], "succeeded", result=1))
        assert answer["recorded"] == 1


# --- heartbeat ------------------------------------------------------------------------------------


async def test_a_heartbeat_renews(api: Any) -> None:
    held = await leased(api, 2)
    keys = api.store.keys.queue("default")
    await api.store.redis.zadd(keys.leases, {held["worker"]: time.time() * 1000 + 100})
    answer = await beat(api, held)
    schemas.Heartbeat.model_validate(answer.json(), extra="forbid")
    assert answer.json()["held"] == [job["id"] for job in held["jobs"]]
    assert answer.json()["cancel"] == answer.json()["timed_out"] == []
    until = await api.store.redis.zscore(keys.leases, held["worker"])
    assert until - time.time() * 1000 > 25_000


async def test_a_heartbeat_after_the_end_says_what_to_do(api: Any, problem: Check) -> None:
    held = await leased(api)
    await run_out(api, held)
    detail = problem(await beat(api, held), 410, "lease_lost")["detail"]
    assert "claim anew" in detail
    assert (await shown(api, held["jobs"][0]))["state"] == "queued"


async def test_a_lease_that_was_never_confirmed_is_lost_and_no_crash(api: Any) -> None:
    held = await leased(api)
    await run_out(api, held)
    job = await shown(api, held["jobs"][0])
    assert (job["lost"], job["crashes"], job["failures"]) == (1, 0, 0)


async def test_a_cancelled_job_is_told_with_the_next_heartbeat(api: Any) -> None:
    held = await leased(api, 2)
    job, other = held["jobs"]
    await api.http.post(f"/jobs/{job['id']}/cancel")
    assert (await beat(api, held)).json()["cancel"] == [job["id"]]
    answer = await report(api, held, of(job, "released"))
    assert answer["results"][0]["state"] == "cancelled"
    assert (await shown(api, job))["state"] == "cancelled"
    after = (await beat(api, held)).json()
    assert (after["cancel"], after["held"]) == ([], [other["id"]])


@pytest.mark.parametrize("outcome", ["failed", "crashed", "snoozed"])
async def test_a_cancelled_job_ends_so_however_its_run_ends(api: Any, outcome: str) -> None:
    held = await leased(api)
    await api.http.post(f"/jobs/{held['jobs'][0]['id']}/cancel")
    answer = await report(api, held, of(held["jobs"][0], outcome))
    assert answer["results"][0]["state"] == "cancelled"


async def test_a_cancelled_job_whose_worker_is_gone_ends_with_the_lease(api: Any) -> None:
    held = await leased(api)
    await api.http.post(f"/jobs/{held['jobs'][0]['id']}/cancel")
    await run_out(api, held)
    assert (await shown(api, held["jobs"][0]))["state"] == "cancelled"


# --- timeouts -------------------------------------------------------------------------------------


async def test_a_heartbeat_ends_a_run_that_is_past_its_time(api: Any) -> None:
    held = await leased(api, 2, timeout=5)
    job, other = held["jobs"]
    await time_passes(api, job, 6)
    answer = (await beat(api, held)).json()
    assert answer["timed_out"] == [job["id"]]
    assert answer["held"] == [other["id"]]
    now = await shown(api, job)
    assert (now["state"], now["failures"], now["error"]["type"]) == ("retrying", 1, "Timeout")


async def test_a_result_past_the_time_is_refused(api: Any) -> None:
    """Whoever sees it first, the server's clock decides."""
    held = await leased(api, timeout=5)
    (job,) = held["jobs"]
    await time_passes(api, job, 6)
    answer = await report(api, held, of(job, "succeeded", result=1))
    (outcome,) = answer["results"]
    assert (outcome["status"], outcome["problem"]["code"]) == (409, "stale_fence")
    assert (await shown(api, job))["error"]["type"] == "Timeout"


async def test_a_janitor_ends_a_run_whose_client_never_comes_back(run_api: Any) -> None:
    async with run_api(janitor_seconds=0.1) as api:
        await api.submit(timeout=5, max_attempts=1)
        held = await lease(api, lease_seconds=3600)
        (job,) = held["jobs"]
        await time_passes(api, job, 6, due=True)
        until = time.monotonic() + 10
        while (await shown(api, job))["state"] == "running":
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        now = await shown(api, job)
        assert (now["state"], now["error"]["type"], now["lost"]) == ("failed", "Timeout", 0)


async def test_a_run_ends_at_its_timeout_by_itself(run_api: Any) -> None:
    """Without any help of the test: its lease lasts an hour, its timeout a second."""
    async with run_api(janitor_seconds=0.1) as api:
        await api.submit(timeout=1, max_attempts=1)
        (job,) = (await lease(api, lease_seconds=3600))["jobs"]
        begun = time.monotonic()
        result = await api.http.get(f"/jobs/{job['id']}/result", params={"wait": 10})
        assert (result.status_code, result.json()["error"]["type"]) == (200, "Timeout")
        assert time.monotonic() - begun < 9


async def test_no_timeout_is_no_timeout(api: Any) -> None:
    held = await leased(api, timeout=0)
    assert (held["jobs"][0]["timeout"], held["jobs"][0]["deadline"]) == (0, None)
    await time_passes(api, held["jobs"][0], 100_000)
    assert (await beat(api, held)).json()["timed_out"] == []


# --- results --------------------------------------------------------------------------------------


async def test_every_outcome_and_what_becomes_of_the_job(api: Any) -> None:
    held = await leased(api, 7)
    jobs = held["jobs"]
    error = {"type": "NotFound", "message": "no such", "traceback": "at x", "code": "E1"}
    answer = await report(
        api,
        held,
        of(jobs[0], "succeeded", result={"n": 2**63 - 1}),
        of(jobs[1], "failed", error=error),
        of(jobs[2], "failed", error=error, retry=False),
        of(jobs[3], "released"),
        of(jobs[4], "snoozed", delay=60),
        of(jobs[5], "crashed", reason="signal 9"),
    )
    states = [outcome["state"] for outcome in answer["results"]]
    assert states == ["succeeded", "retrying", "failed", "queued", "scheduled", "queued"]
    assert {o["status"] for o in answer["results"]} == {200}
    assert (answer["recorded"], answer["refused"], answer["held"]) == (6, 0, 1)
    now = [await shown(api, job) for job in jobs]
    assert [job["state"] for job in now] == [*states, "running"]
    assert now[0]["result"] == {"n": 2**63 - 1}
    assert now[1]["error"] == now[2]["error"] == error
    assert (now[1]["failures"], now[2]["failures"]) == (1, 1)
    assert (now[3]["failures"], now[3]["crashes"], now[3]["lost"]) == (0, 0, 0)
    assert (now[5]["crashes"], now[5]["history"][-1]["reason"]) == (1, "signal 9")


async def test_the_same_report_again_is_answered_the_same(api: Any) -> None:
    held = await leased(api, 6)
    outcomes = ["succeeded", "failed", "released", "snoozed", "crashed"]
    reports = [of(job, outcome) for job, outcome in zip(held["jobs"], outcomes, strict=False)]
    reports.append(of(held["jobs"][5], "failed", retry=False))
    reports[3]["delay"] = 60
    first = await report(api, held, *reports)
    before = await api.store.redis.hgetall(api.store.keys.queue("default").prefix + "ticks")
    again = await report(api, held, *reports)
    assert again == first
    assert before is not None
    for job in held["jobs"]:
        assert (await shown(api, job))["failures"] <= 1


async def test_after_recovery_results_are_refused_one_by_one(api: Any) -> None:
    held = await leased(api, 2)
    await report(api, held, of(held["jobs"][1], "succeeded", result=1))
    await run_out(api, held)
    again = await lease(api)
    assert again["jobs"][0]["id"] == held["jobs"][0]["id"]
    answer = await report(
        api, held, of(held["jobs"][0], "succeeded", result=2), of(held["jobs"][1], "succeeded")
    )
    late, kept = answer["results"]
    assert (late["status"], late["problem"]["code"], late["state"]) == (
        409,
        "stale_fence",
        "running",
    )
    assert (kept["status"], kept["state"]) == (200, "succeeded")
    assert (await report(api, again, of(again["jobs"][0], "succeeded", result=3)))["recorded"] == 1
    assert (await shown(api, held["jobs"][0]))["result"] == 3


async def test_one_bad_report_does_not_keep_the_others_out(api: Any) -> None:
    held = await leased(api, 2)
    good = of(held["jobs"][0], "succeeded", result=1)
    wrong = {**of(held["jobs"][1], "succeeded"), "fence": 7}
    other = await api.submit()
    answer = await report(
        api,
        held,
        good,
        wrong,
        {"id": other["id"], "fence": 1, "outcome": "succeeded"},
        {"id": "mail:" + split_id(other["id"])[1], "fence": 1, "outcome": "succeeded"},
        {"id": "default:" + "0" * 26, "fence": 1, "outcome": "succeeded"},
        {"id": "what", "fence": 1, "outcome": "succeeded"},
        {"id": other["id"], "fence": 1, "outcome": "done"},
        of(held["jobs"][1], "released", result=1),
        of(held["jobs"][1], "failed", delay=1),
        7,  # type: ignore[arg-type]
    )
    found = [(o["status"], o.get("problem", {}).get("code")) for o in answer["results"]]
    assert found == [
        (200, None), (409, "stale_fence"), (409, "stale_fence"), (404, "job_not_found"),
        (404, "job_not_found"), (404, "job_not_found"), (422, "invalid"), (422, "invalid"),
        (422, "invalid"), (422, "invalid"),
    ]  # fmt: skip
    assert (answer["recorded"], answer["held"]) == (1, 1)


async def test_a_fence_from_another_run_is_refused(api: Any) -> None:
    held = await leased(api)
    await report(api, held, of(held["jobs"][0], "released"))
    again = await lease(api)
    answer = await report(api, again, of(held["jobs"][0], "succeeded"))
    assert answer["results"][0]["problem"]["code"] == "stale_fence"
    assert (await shown(api, held["jobs"][0]))["state"] == "running"


async def test_a_retry_follows_the_job_or_the_report(api: Any) -> None:
    held = await leased(api, 2, max_attempts=2)
    await report(api, held, *(of(job, "failed", retry_after=0) for job in held["jobs"]))
    held = await lease(api, max=2)
    assert [job["failures"] for job in held["jobs"]] == [1, 1]
    answer = await report(api, held, *(of(job, "failed", retry_after=500) for job in held["jobs"]))
    assert [o["state"] for o in answer["results"]] == ["failed", "failed"]


async def test_a_crash_makes_a_suspect_and_three_fail(api: Any) -> None:
    await api.submit()
    for n in range(3):
        held = await lease(api, max=5)
        assert held["jobs"][0]["suspect"] is (n > 0)
        answer = await report(api, held, of(held["jobs"][0], "crashed"))
    assert answer["results"][0]["state"] == "failed"


async def test_a_result_that_is_too_deep_is_refused_and_its_run_goes_on(api: Any) -> None:
    held = await leased(api)
    deep: Any = 1
    for _ in range(198):
        deep = [deep]
    body = of(held["jobs"][0], "succeeded", result=deep)
    answer = await api.http.post(f"/leases/{held['id']}/results", json={"results": [body]})
    assert answer.status_code == 422
    assert (await shown(api, held["jobs"][0]))["state"] == "running"


async def test_a_huge_error_is_cut(api: Any) -> None:
    held = await leased(api)
    error = {"message": "m" * 9000, "traceback": "t" * 20_000 + "end"}
    await report(api, held, of(held["jobs"][0], "failed", error=error, retry=False))
    kept = (await shown(api, held["jobs"][0]))["error"]
    assert kept["type"] == "Error"
    assert len(kept["message"]) == 2000
    assert len(kept["traceback"]) < 8100
    assert kept["traceback"].endswith("end")


# --- progress and log -----------------------------------------------------------------------------


async def news(api: Any, held: dict[str, Any], *runs: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.http.post(f"/leases/{held['id']}/progress", json={"runs": list(runs)})
    assert answer.status_code == 200, answer.text
    schemas.ProgressAnswer.model_validate(answer.json(), extra="forbid")
    found: list[dict[str, Any]] = answer.json()["runs"]
    return found


async def test_progress_and_lines_are_shown_with_the_job(api: Any) -> None:
    held = await leased(api)
    run = {"id": held["jobs"][0]["id"], "fence": held["jobs"][0]["fence"]}
    lines = [{"seq": 1, "line": "one"}, {"seq": 2, "line": "two"}]
    (outcome,) = await news(api, held, {**run, "fraction": 0.5, "message": "half", "log": lines})
    assert outcome["status"] == 200
    # Sent again after a lost answer, with one more.
    await news(api, held, {**run, "fraction": 1, "log": [*lines, {"seq": 5, "line": "three"}]})
    answer = await api.http.get(f"/jobs/{run['id']}")
    schemas.Job.model_validate(answer.json(), extra="forbid")
    assert [line["line"] for line in answer.json()["log"]] == ["one", "two", "three"]
    assert answer.json()["progress"]["fraction"] == 1


async def test_news_of_a_run_that_is_over_are_refused(api: Any) -> None:
    held = await leased(api, 2)
    await report(api, held, of(held["jobs"][0], "succeeded"))
    runs = [{"id": j["id"], "fence": j["fence"], "fraction": 0.5} for j in held["jobs"]]
    lines = [{"id": r["id"], "fence": r["fence"], "log": [{"seq": 1, "line": "x"}]} for r in runs]
    found = await news(api, held, *runs, *lines, {"id": runs[0]["id"], "fence": 1})
    assert [o["status"] for o in found] == [409, 200, 409, 200, 422]
    assert found[0]["problem"]["code"] == "stale_fence"
    assert (await shown(api, held["jobs"][0]))["log"] == []


# --- handing back ---------------------------------------------------------------------------------


async def test_a_lease_that_is_handed_back_burns_nothing(api: Any, problem: Check) -> None:
    held = await leased(api, 3)
    await report(api, held, of(held["jobs"][0], "succeeded"))
    answer = await api.http.delete(f"/leases/{held['id']}")
    schemas.HandBack.model_validate(answer.json(), extra="forbid")
    assert answer.json() == {"released": 2}
    for job in held["jobs"][1:]:
        now = await shown(api, job)
        assert (now["state"], now["failures"], now["crashes"], now["lost"]) == ("queued", 0, 0, 0)
    problem(await beat(api, held), 410, "lease_lost")
    assert (await api.http.delete(f"/leases/{held['id']}")).json() == {"released": 0}
    late = await report(api, held, of(held["jobs"][1], "succeeded"))
    assert late["results"][0]["problem"]["code"] == "stale_fence"
    assert [j["id"] for j in (await lease(api, max=5))["jobs"]] == [
        j["id"] for j in held["jobs"][1:]
    ]


# --- who is there ---------------------------------------------------------------------------------


async def test_a_worker_over_http_is_shown_while_its_lease_lives(api: Any) -> None:
    await api.submit()
    await api.submit(job_type="other")
    held = await lease(api, job_types=["echo"], worker="node-7", lease_seconds=30)
    await api.submit()
    answer = await api.http.get("/workers")
    schemas.WorkerList.model_validate(answer.json(), extra="forbid")
    (worker,) = answer.json()["workers"]
    assert (worker["kind"], worker["label"], worker["id"]) == ("http", "node-7", held["worker"])
    assert (worker["queues"], worker["job_types"], worker["busy"]) == (["default"], ["echo"], 1)
    assert worker["pid"] is worker["supervisor_pid"] is None
    queue = (await api.http.get("/queues/default")).json()
    assert queue["workers"] == 1
    assert {line["job_type"]: line["served"] for line in queue["types"]} == {
        "echo": True,
        "other": False,
    }
    ttl = await api.store.redis.pttl(api.store.keys.worker(held["worker"]))
    assert 30_000 < ttl <= 40_000
    await beat(api, held)
    assert (await api.http.get("/workers")).json()["workers"][0]["job_types"] == ["echo"]
    await report(api, held, of(held["jobs"][0], "succeeded"))
    assert (await api.http.get("/workers")).json()["workers"] == []


async def test_a_poll_counts_as_a_worker_that_knows_its_types(api: Any) -> None:
    await api.http.patch("/queues/default", json={"paused": True})
    await api.submit()
    for types, served in ((["echo"], True), (None, True), (["other"], False)):
        poll = asyncio.create_task(lease(api, job_types=types, wait=1))
        await until_polling(api)
        (line,) = (await api.http.get("/queues/default")).json()["types"]
        assert line["served"] is served
        await poll


async def test_doctor_has_nothing_to_say_about_leases(api: Any) -> None:
    held = await leased(api, 3)
    await report(api, held, of(held["jobs"][0], "succeeded"))
    await api.submit()
    other = await lease(api, {"idempotency-key": "k"}, max=1)
    await api.http.delete(f"/leases/{other['id']}")
    await lease(api, {"idempotency-key": "l"}, max=1)
    await lease(api, {"idempotency-key": "m"}, queue="empty")
    found = await examine_all(api.store, pause=0)
    assert [f for f in found if f.queue and f.severity != "info"] == []


async def test_nothing_of_leases_stays_for_ever(api: Any) -> None:
    """What is not deleted at the end has a time to live."""
    held = await leased(api, 2)
    await report(api, held, *(of(job, "succeeded") for job in held["jobs"]))
    keys = api.store.keys.queue("default")
    assert await api.store.redis.zcard(keys.deadlines) == 0
    assert 0 < await api.store.redis.pttl(keys.lease(leases.name_of(held["id"]))) <= 630_000


# --- what a claim asks for ------------------------------------------------------------------------


def test_a_claim_without_a_body_member_has_the_defaults() -> None:
    wanted = Wanted.of(schemas.LeaseRequest(), OPEN, None)
    assert (wanted.queue, wanted.job_types, wanted.most) == ("default", None, 1)
    assert (wanted.lease_ms, wanted.wait, wanted.key) == (30_000, 0, "")


def test_more_patience_than_there_may_be_is_cut() -> None:
    assert Wanted.of(schemas.LeaseRequest(wait=600), OPEN, None).wait == 30


def test_a_repeat_may_wait_for_another_time() -> None:
    one, two = (Wanted.of(schemas.LeaseRequest(wait=wait), OPEN, "k") for wait in (20.0, 3.0))
    assert (one.key, one.digest) == (two.key, two.digest)
    assert Wanted.of(schemas.LeaseRequest(), Access("key:o", owner="o"), "k").key != one.key
