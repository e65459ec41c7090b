"""JSON goes in and comes out as it is, or is refused before anything is stored."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from taskq.ids import split_id

Check = Callable[..., dict[str, Any]]

EXACT = [
    '{"a":130775545883395173,"b":15947634569000323,"c":[],"d":{},"e":0.1,"f":1e-7,"g":-0.0,'
    '"h":9007199254740993,"i":"é\\u0000\\u2028😀","j":null}',
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "9" * 4300,
    "1e-7",
    "1E+2",
    "-0.0",
    "5e-324",
    "1.7976931348623157e308",
    "[]",
    "{}",
    "[[],{},[[]],[{}]]",
    "null",
    "true",
    "false",
    '""',
    '"\\ud83d\\ude00"',
    '"\\u0000\\u001f\\u007f\\u2028\\u2029\\ufeff\\uffff"',
    '"</script><script>alert(1)</script>"',
    '{"":{"":""}}',
    '{"__proto__":{"x":1},"constructor":2}',
    '{"a":{"b":[1,{"c":[{"d":[]}]}]}}',
    "[" * 197 + "]" * 197,
    '"' + "[{" * 300 + '"',
    '"' + "x" * 900_000 + '"',
]


def same(left: Any, right: Any) -> bool:
    """Equal, with types and the signs of zeros."""
    return repr(left) == repr(right)


@pytest.mark.parametrize("text", EXACT, ids=lambda text: text[:30])
class TestRoundTrip:
    """F55: what goes in by HTTP comes out by HTTP and reaches the worker as it was."""

    async def test_of_a_payload(self, api: Any, text: str) -> None:
        answer = await api.raw(b'{"job_type":"echo","payload":%s}' % text.encode())
        assert answer.status_code == 201, answer.text[:300]
        assert same(json.loads(answer.content)["payload"], json.loads(text))
        shown = await api.http.get(answer.headers["location"])
        assert same(json.loads(shown.content)["payload"], json.loads(text))
        claimed = await api.claim(answer.json()["id"])
        assert same(json.loads(claimed.payload), json.loads(text))

    async def test_of_a_result(self, api: Any, text: str) -> None:
        job = await api.submit()
        await api.finish(job["id"], text.encode())
        for path in ("", "/result"):
            answer = await api.http.get(f"/jobs/{job['id']}{path}")
            assert answer.status_code == 200
            assert text.encode() in answer.content  # as it was stored, to the byte
            assert same(json.loads(answer.content)["result"], json.loads(text))

    async def test_of_a_batch(self, api: Any, text: str) -> None:
        body = b'{"jobs":[{"job_type":"echo","payload":%s}]}' % text.encode()
        headers = {"content-type": "application/json"}
        answer = await api.http.post("/jobs/batch", content=body, headers=headers)
        claimed = await api.claim(answer.json()["items"][0]["id"])
        assert same(json.loads(claimed.payload), json.loads(text))


@pytest.mark.parametrize(("depth", "status"), [(199, 201), (200, 422)])
async def test_the_limit_of_depth_counts_the_body_too(api: Any, depth: int, status: int) -> None:
    """F57: one limit for all that is nested."""
    payload = b"[" * depth + b"]" * depth
    answer = await api.raw(b'{"job_type":"echo","payload":%s}' % payload)
    assert answer.status_code == status


async def test_the_last_of_two_members_counts(api: Any) -> None:
    answer = await api.raw(b'{"job_type":"echo","payload":{"a":1,"a":2}}')
    assert answer.json()["payload"] == {"a": 2}


@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        (b"NaN", 422, "invalid_payload"),
        (b"Infinity", 422, "invalid_payload"),
        (b"-Infinity", 422, "invalid_payload"),
        (b"1e400", 422, "invalid_payload"),
        (b"9" * 5000, 422, "invalid_payload"),
        (b'"\\ud800"', 422, "invalid_payload"),
        (b'{"\\udfff":1}', 422, "invalid_payload"),
        (b"[" * 300 + b"]" * 300, 422, "invalid_payload"),
        (b"[" * 100_000 + b"]" * 100_000, 422, "invalid_payload"),
        (b'{"a":' * 1001 + b"1" + b"}" * 1001, 422, "invalid_payload"),
        (b"[" * 100_000, 422, "invalid_payload"),
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"'a'", 400, "invalid_json"),
        (b"01", 400, "invalid_json"),
        (b"[1,]", 400, "invalid_json"),
        (b'"a\nb"', 400, "invalid_json"),
        (b'"\xff\xfe"', 400, "invalid_json"),
        (b'"\xed\xa0\x80"', 400, "invalid_json"),
        (b"1} {", 400, "invalid_json"),
        (b'"' + b"x" * 1_100_000 + b'"', 413, "payload_too_large"),
    ],
    ids=lambda v: str(v)[:30],
)
async def test_refuses_what_not_every_reader_understands(
    api: Any, problem: Check, value: bytes, status: int, code: str
) -> None:
    """F08, F56, F57, F58: nothing of it is stored."""
    answer = await api.raw(b'{"job_type":"echo","payload":%s}' % value)
    problem(answer, status, code)
    assert len(answer.content) < 2000
    assert await api.jobs_stored() == 0


@pytest.mark.parametrize("body", [b"", b"\xef\xbb\xbf{}", b"\xff", b"{}{}", b"nonsense", b"\x00"])
async def test_refuses_a_body_that_is_no_json(api: Any, problem: Check, body: bytes) -> None:
    problem(await api.raw(body), 400, "invalid_json")


async def test_a_larger_body_limit_does_not_raise_that_of_payloads(
    run_api: Any, problem: Check
) -> None:
    async with run_api(max_body_bytes=5_000_000) as api:
        answer = await api.raw(b'{"job_type":"echo","payload":"%s"}' % (b"x" * 1_100_000))
        assert problem(answer, 413, "payload_too_large")["field"] == "payload"


class TestForeignHands:
    """F56, F57: what somebody wrote with redis-cli: shown as text, never a 500."""

    @pytest.mark.parametrize(
        "data",
        [b"\xff\xfe", b"nonsense", b"NaN", b"[1e999]", b"[" * 5000, b'"\\ud800"', b"", b'{"a":'],
    )
    async def test_payload_and_result(self, api: Any, data: bytes) -> None:
        job = await api.submit()
        await api.finish(job["id"], b"1")
        key = api.store.keys.queue("default").job(split_id(job["id"])[1])
        await api.store.redis.hset(key, mapping={"payload": data, "result": data})
        answer = await api.http.get(f"/jobs/{job['id']}")
        assert answer.status_code == 200
        shown = json.loads(answer.content)
        text = data.decode(errors="replace")
        assert (shown["payload"], shown["payload_raw"]) == (None, text)
        assert (shown["result"], shown["result_raw"]) == (None, text)
        answer = await api.http.get(f"/jobs/{job['id']}/result")
        assert json.loads(answer.content)["result_raw"] == text

    @pytest.mark.parametrize(
        "data",
        [b"\xff\xfe", b"nonsense", b'{"n":NaN}', b'{"m":"\\ud800"}', b"[5]", b"9" * 5000, b"5"],
    )
    async def test_error_progress_history_and_log(self, api: Any, data: bytes) -> None:
        job = await api.submit()
        await api.fail(job["id"])
        keys = api.store.keys.queue("default")
        ulid = split_id(job["id"])[1]
        await api.store.redis.hset(keys.job(ulid), mapping={"error": data, "progress": data})
        await api.store.redis.rpush(keys.history(ulid), data)
        await api.store.redis.rpush(keys.log(ulid), data)
        answer = await api.http.get(f"/jobs/{job['id']}")
        assert answer.status_code == 200
        assert json.loads(answer.content)["state"] == "failed"

    async def test_html_is_json_that_nobody_sniffs(self, api: Any) -> None:
        job = await api.submit(payload="<script>alert(1)</script>")
        answer = await api.http.get(f"/jobs/{job['id']}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"

    async def test_a_key_of_the_wrong_type_is_said_without_internals(
        self, api: Any, problem: Check
    ) -> None:
        job = await api.submit()
        await api.store.redis.set(api.store.keys.queue("bad").job(split_id(job["id"])[1]), "x")
        answer = await api.http.get(f"/jobs/bad:{split_id(job['id'])[1]}")
        problem(answer, 500, "broken_key")
