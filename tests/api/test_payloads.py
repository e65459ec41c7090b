"""Submissions held against what workers have published."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from taskq.registry import WorkerInfo, now_ms
from taskq_api import payloads

Check = Callable[..., dict[str, Any]]

MAIL = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "maxLength": 20},
        "tries": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"$ref": "#/$defs/who"},
    },
    "$defs": {"who": {"type": "object", "required": ["name"]}},
    "required": ["to"],
    "additionalProperties": False,
}


async def publish(api: Any, schema: Any, name: str = "mail") -> None:
    about = {"schema": schema, "queue": "default", "max_attempts": 5, "description": "Sends."}
    worker = WorkerInfo(
        "h-1-a", "h", 1, 0, "1", now_ms(), now_ms(), "running", ("default",), (name,), 10, 0
    )
    await api.app.state.services.registry.tell(worker, {name: about})


async def post(api: Any, payload: Any, **fields: Any) -> Any:
    return await api.http.post("/jobs", json={"job_type": "mail", "payload": payload, **fields})


@pytest.mark.parametrize(
    ("payload", "field", "words"),
    [
        ({}, "payload.to", "is missing"),
        ({"to": 3}, "payload.to", "must be a string"),
        ({"to": "x", "tries": "3"}, "payload.tries", "must be a whole number"),
        ({"to": "x", "tries": -1}, "payload.tries", "minimum: 0"),
        ({"to": "x", "tags": ["a", 1]}, "payload.tags.1", "must be a string"),
        ({"to": "x", "who": {}}, "payload.who.name", "is missing"),
        ({"to": "x", "subject": "hi"}, "payload.subject", "is not a field"),
        ({"to": "secret" * 10}, "payload.to", "maxLength: 20"),
        (["x"], "payload", "must be an object"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_by_its_field(
    api: Any, problem: Check, payload: Any, field: str, words: str
) -> None:
    await publish(api, MAIL)
    answer = await post(api, payload)
    shown = problem(answer, 422, "invalid_payload")
    assert shown["field"] == field
    assert words in shown["detail"]
    assert "secret" not in answer.text, "no value of the payload is told"
    assert await api.jobs_stored() == 0


async def test_a_payload_that_fits_is_stored(api: Any) -> None:
    await publish(api, MAIL)
    payload = {"to": "x", "tries": 9, "who": {"name": "Ada", "more": [2**70]}}
    answer = await post(api, payload)
    assert (answer.status_code, answer.json()["payload"]) == (201, payload)


async def test_a_batch_is_judged_item_by_item(api: Any) -> None:
    await publish(api, MAIL)
    items: list[dict[str, Any]] = [
        {"job_type": "mail", "payload": {"to": "x"}},
        {"job_type": "mail"},
        {"job_type": "free", "payload": [1]},
    ]
    done = (await api.http.post("/jobs/batch", json={"jobs": items})).json()
    assert [item["status"] for item in done["items"]] == [201, 422, 201]
    assert done["items"][1]["problem"]["field"] == "payload.to"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "nonsense"}, "is no JSON Schema"),
        ({"type": 3}, "is no JSON Schema"),
        ({"properties": {f"p{n}": {"const": "x" * 100} for n in range(1000)}}, "is larger than"),
        ([], "is no JSON Schema"),
    ],
)
async def test_a_schema_that_is_none_is_passed_over_with_a_finding(
    api: Any, schema: Any, why: str
) -> None:
    await publish(api, schema)
    assert (await post(api, {"anything": 1})).status_code == 201
    (finding,) = [
        finding
        for finding in (await api.http.get("/doctor")).json()["findings"]
        if finding["subject"] == "job type mail"
    ]
    assert why in finding["message"]
    (shown,) = (await api.http.get("/job-types")).json()["job_types"]
    assert why in shown["schema_problem"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://example.com/schema.json"},
        {"$ref": "#/$defs/not-there"},
        {"$ref": "#"},
        {"$ref": "file:///etc/passwd"},
    ],
)
async def test_a_reference_that_leads_nowhere_or_out_is_followed_by_nobody(
    api: Any, schema: Any
) -> None:
    await publish(api, schema)
    for _ in range(2):
        assert (await post(api, {"anything": 1})).status_code == 201
    (shown,) = (await api.http.get("/job-types")).json()["job_types"]
    assert "cannot be used" in shown["schema_problem"]


async def test_what_was_published_is_damaged(api: Any) -> None:
    await api.store.redis.hset("taskq:types", mapping={"mail": "{", "echo": "[1]"})
    assert (await post(api, {"anything": 1})).status_code == 201
    assert (await api.http.get("/job-types")).status_code == 200


async def test_a_strict_queue_takes_only_published_types(api: Any, problem: Check) -> None:
    assert (await post(api, {})).status_code == 201, "not by default"
    await api.http.patch("/queues/default", json={"strict_types": True})
    assert (await api.http.get("/queues/default")).json()["strict_types"] is True
    shown = problem(await post(api, {}), 422, "unknown_job_type")
    assert shown["field"] == "job_type"
    done = (await api.http.post("/jobs/batch", json={"jobs": [{"job_type": "mail"}]})).json()
    assert done["items"][0]["problem"]["code"] == "unknown_job_type"
    assert (await post(api, {}, queue="other")).status_code == 201
    await publish(api, True)
    await asyncio.sleep(payloads.AGAIN_SECONDS)
    assert (await post(api, {})).status_code == 201, "at once when a worker has come"
    await api.http.patch("/queues/default", json={"strict_types": None})
    body = {"job_type": "nobody_knows_it"}
    assert (await api.http.post("/jobs", json=body)).status_code == 201


@pytest.mark.parametrize("value", [1, "yes", []])
async def test_strict_is_on_or_off(api: Any, problem: Check, value: Any) -> None:
    shown = problem(
        await api.http.patch("/queues/default", json={"strict_types": value}), 422, "invalid"
    )
    assert shown["field"] == "strict_types"


async def test_hears_of_a_new_schema_in_time(api: Any) -> None:
    assert (await post(api, {})).status_code == 201
    await publish(api, MAIL)
    its = api.app.state.services.payloads
    its._looked_at -= payloads.FRESH_SECONDS
    await post(api, {})  # by what was known; it has the rest renewed
    await its._renewal
    assert (await post(api, {})).status_code == 422


async def test_submissions_make_no_look_of_their_own(api: Any) -> None:
    await publish(api, MAIL)
    await post(api, {"to": "x"})
    await api.store.redis.config_resetstat()
    for _ in range(20):
        assert (await post(api, {"to": "x"})).status_code == 201
    stats = await api.store.redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 20
    assert "cmdstat_hgetall" not in stats or stats["cmdstat_hgetall"]["calls"] <= 2


async def test_a_large_payload_is_left_to_its_worker(api: Any) -> None:
    await publish(api, MAIL)
    large = {"to": "x", "tags": list(range(20_000))}
    assert len(json.dumps(large)) > payloads.MAX_CHECKED_BYTES
    assert (await post(api, large)).status_code == 201


async def test_the_costliest_payload_that_is_checked_holds_nobody_up_for_long(api: Any) -> None:
    await publish(api, {"type": "array", "items": {"type": "integer", "minimum": 0}})
    await post(api, [1])
    its = api.app.state.services.payloads
    values = [1] * (payloads.MAX_CHECKED_BYTES // 2)
    began = time.process_time()
    its.judge("default", "mail", values, payloads.MAX_CHECKED_BYTES)
    assert time.process_time() - began < 0.5


async def test_shows_what_a_type_takes_and_who_runs_it(api: Any) -> None:
    await publish(api, MAIL)
    job = (await post(api, {"to": "x"})).json()
    (shown,) = (await api.http.get("/job-types")).json()["job_types"]
    assert shown["payload_schema"] == MAIL
    assert (shown["workers"], shown["queue"], shown["max_attempts"]) == (1, "default", 5)
    assert (shown["wait_ms"], shown["schema_problem"]) == (None, None)
    del job


async def test_sixty_four_posts_at_once_share_round_trips(api: Any) -> None:
    await api.submit()
    await api.store.redis.config_resetstat()
    answers = await asyncio.gather(*(post(api, {"n": n}) for n in range(64)))
    assert {answer.status_code for answer in answers} == {201}
    stats = await api.store.redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] <= 10, "of 64"
    assert len({answer.json()["id"] for answer in answers}) == 64


async def test_first_submissions_at_once_share_one_look(api: Any) -> None:
    await api.store.redis.config_resetstat()
    answers = await asyncio.gather(*(post(api, {"n": n}) for n in range(64)))
    assert {answer.status_code for answer in answers} == {201}
    stats = await api.store.redis.info("commandstats")
    assert stats["cmdstat_hget"]["calls"] <= 4, "of 64, and the janitor's"
