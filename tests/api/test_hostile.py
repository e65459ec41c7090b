"""Text that attacks its reader: F83, and names and bytes that attack the process: F81.

The API answers JSON alone, which no browser takes for a page; what is stored is data and stays data.
"""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskq import calls
from taskq.ids import split_id

Check = Callable[..., dict[str, Any]]

ATTACKS = [
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "javascript:alert(1)",
    "</script><script>alert(1)</script>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "=cmd|' /C calc'!A0",
    "\x1b[2J\x1b]0;owned\x07\u202e",
]


def harmless(answer: Any) -> None:
    assert answer.headers["content-type"] in ("application/json", "application/problem+json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy or "default-src 'self'" in policy


@pytest.mark.parametrize("text", ATTACKS)
async def test_f83_in_every_field_of_a_job(api: Any, text: str) -> None:
    """F83: payload, its names, result, error, progress, log, history: shown as the text that it is."""
    job = await api.submit(payload={"args": [text], text: text})
    job_id = job["id"]
    queue, ulid = split_id(job_id)
    keys = api.store.keys.queue(queue)
    run = await api.claim(job_id)
    said = json.dumps({"type": text, "message": text, "traceback": text, "code": text}).encode()
    line = json.dumps({"line": text, "message": text, "fraction": 0.5, "at": 1}).encode()
    for call in (
        calls.log(keys, "w1", [(ulid, run.fence, 1, line)]),
        calls.progress(keys, "w1", [(ulid, run.fence, line)]),
        calls.fail(keys, "w1", [calls.Failure(ulid, run.fence, said, 0, 1)]),
    ):
        await api.store.run(call)
    await api.store.redis.hset(keys.job(ulid), mapping={"reason": text, "worker": text})
    done = await api.submit()
    await api.finish(done["id"], json.dumps(text).encode(), worker="w2")
    shown = await api.http.get(f"/jobs/{job_id}")
    assert shown.json()["payload"] == {"args": [text], text: text}
    assert shown.json()["error"]["message"] == text
    assert (await api.http.get(f"/jobs/{done['id']}/result")).json()["result"] == text
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/result", "/jobs", "/jobs?state=failed",
                 "/queues", f"/queues/{queue}", "/workers"):  # fmt: skip
        answer = await api.http.get(path)
        assert answer.status_code == 200, path
        harmless(answer)


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("field", ["state", "queue", "job_type", "cursor", "limit", "sort", "x"])
async def test_f83_in_every_parameter(api: Any, field: str, text: str) -> None:
    """F83: what is refused is repeated as JSON."""
    for path in ("/jobs", "/jobs/x", "/queues", "/nope"):
        answer = await api.http.get(path, params={field: text})
        assert answer.status_code < 500
        harmless(answer)


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("field", ["job_type", "queue", "unique_key", "run_at", "x"])
async def test_f83_in_every_name(api: Any, field: str, text: str) -> None:
    """F83: names are letters, digits and a few signs; a key may be any text, and is never shown as a page."""
    answer = await api.http.post("/jobs", json={"job_type": "echo", field: text})
    assert answer.status_code == 422 or field == "unique_key"
    harmless(answer)
    answer = await api.http.post(
        "/jobs", json={"job_type": "echo"}, headers={"idempotency-key": text.encode()}
    )
    assert answer.status_code in (201, 422, 400)
    harmless(answer)


async def test_f83_the_page_of_the_document_runs_no_script_of_its_own(api: Any) -> None:
    """F83: the one page there is loads its scripts from here, and holds none."""
    page = await api.http.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "'unsafe-inline'" not in page.headers["content-security-policy"].split("style-src")[0]
    assert not re.search(r"<script>[^<]", page.text)


class Bomb:
    """Leaves a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.canary), "w"))


async def test_f81_bytes_that_would_run_when_they_are_loaded(api: Any, tmp_path: Path) -> None:
    """F81: a pickle in every field that somebody could write with redis-cli: shown as text."""
    canary = tmp_path / "canary"
    bomb = pickle.dumps(Bomb(canary))
    record = json.dumps(
        {"exc_type": "system", "exc_module": "os", "py/object": "os.system", "!!": str(canary)}
    ).encode()
    for worker, data in (("w1", bomb), ("w2", record)):
        job = await api.submit()
        await api.fail(job["id"], worker=worker)
        keys = api.store.keys.queue("default")
        ulid = split_id(job["id"])[1]
        fields = dict.fromkeys(("payload", "result", "error", "progress"), data)
        await api.store.redis.hset(keys.job(ulid), mapping=fields)
        await api.store.redis.rpush(keys.history(ulid), data)
        await api.store.redis.rpush(keys.log(ulid), data)
        await api.store.redis.hset(api.store.keys.types, "evil", data)
        for path in (f"/jobs/{job['id']}", f"/jobs/{job['id']}/result", "/jobs", "/job-types"):
            assert (await api.http.get(path)).status_code == 200, path
    assert not canary.exists()
