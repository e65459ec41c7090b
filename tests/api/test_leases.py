"""Leases over HTTP: claim, renew, hand back, each held to what it says."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.lease import (
    beat,
    lease,
    leased,
    of,
    report,
    run_out,
    shown,
    time_passes,
    until_polling,
)
from taskq import leases
from taskq.doctor import examine_all
from taskq.ids import split_id
from taskq_api import schemas
from taskq_api.access import OPEN, Access
from taskq_api.claiming import Wanted

Check = Callable[..., dict[str, Any]]


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
