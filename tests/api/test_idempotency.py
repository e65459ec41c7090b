"""A repeat of a submission is the same job, however often it comes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from taskq import TaskQ

Check = Callable[..., dict[str, Any]]


async def post(api: Any, key: str, body: bytes = b'{"job_type":"echo"}', **headers: str) -> Any:
    return await api.raw(body, **{"idempotency-key": key, **headers})


async def test_a_repeat_answers_the_job_as_it_is_now(api: Any) -> None:
    first = await post(api, "k", b'{"job_type":"echo","payload":{"a":1}}')
    await api.claim(first.json()["id"])
    # White space is not another body.
    again = await post(api, "k", b'{ "payload": {"a": 1}, "job_type": "echo" }')
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["state"] == "running"
    assert again.headers["location"] == first.headers["location"]


async def test_two_hundred_at_once_make_one_job(api: Any) -> None:
    answers = await asyncio.gather(*(post(api, "k") for _ in range(200)))
    assert sorted(a.status_code for a in answers) == [200] * 199 + [201]
    assert len({a.json()["id"] for a in answers}) == 1
    assert await api.jobs_stored() == 1


async def test_other_keys_and_queues_make_other_jobs(api: Any) -> None:
    answers = [
        await post(api, "k"),
        await post(api, "K"),
        await post(api, "k", b'{"job_type":"echo","queue":"mail"}'),
    ]
    assert [a.status_code for a in answers] == [201] * 3
    assert len({a.json()["id"] for a in answers}) == 3


@pytest.mark.parametrize(
    "body",
    [
        b'{"job_type":"other"}',
        b'{"job_type":"echo","payload":1}',
        b'{"job_type":"echo","priority":1}',
        b'{"job_type":"echo","delay":1}',
    ],
)
async def test_another_body_is_refused(api: Any, problem: Check, body: bytes) -> None:
    await post(api, "k")
    problem(await post(api, "k", body), 409, "idempotency_conflict")
    assert await api.jobs_stored() == 1


async def test_a_repeat_after_the_end_is_still_the_same_job(api: Any) -> None:
    first = (await post(api, "k")).json()
    await api.finish(first["id"], b"1")
    again = await post(api, "k")
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")


@pytest.mark.parametrize("key", ["", "x" * 201, "a{b}", "a\tb"])
async def test_refuses_a_key_that_is_none(api: Any, problem: Check, key: str) -> None:
    assert problem(await post(api, key), 422, "invalid")["field"] == "idempotency_key"


async def test_two_api_keys_do_not_meet(run_api: Any) -> None:
    async with run_api(api_keys="one,two") as api:
        answers = [await post(api, "k", authorization=f"Bearer {key}") for key in ("one", "two")]
        assert [a.status_code for a in answers] == [201, 201]
        assert answers[0].json()["id"] != answers[1].json()["id"]


async def test_python_and_rest_name_the_same_job(api: Any, redis_url: str) -> None:
    first = await post(
        api, "k", b'{"job_type":"echo","payload":{"a":1},"delay":1.5,"priority":0,"timeout":null}'
    )
    app = TaskQ(redis_url)
    again = await app.submit("echo", {"a": 1}, idempotency_key="k", delay=1.5)
    await app.close()
    assert (again.id, again.created) == (first.json()["id"], False)
