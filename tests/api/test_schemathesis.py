"""Every operation of the OpenAPI document, called with what the document allows and with what it forbids.

schemathesis makes the requests out of the document and holds each answer against it: no 5xx, only the
statuses, headers and bodies that it tells of, nothing refused that it allows, nothing taken that it forbids.
The API is a process of its own over a real server that holds a job in every state, a lease, a bulk action and
failures. Nothing is random: every run makes the same requests.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
import redis
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from taskq import calls
from taskq.client import SyncClient
from taskq.embedded import EmbeddedServer
from taskq.ids import UlidFactory, join_id
from taskq.model import JobSpec
from taskq.settings import load_settings
from taskq_api.app import create_app

KEY = "a-key-of-the-settings-for-tests"
HEADERS = {"authorization": f"Bearer {KEY}"}
EXAMPLES = 12
"""Requests of each kind to one operation."""
WAIT_SECONDS = 0.05
"""Long polls are asked for, but not for long."""
STREAMS = {"GET /events", "GET /jobs/{job_id}/events"}
"""Answers without an end; tests/api/test_events.py reads them."""
PIECEWISE = {
    "POST /jobs/batch",
    "POST /leases/{lease_id}/results",
    "POST /leases/{lease_id}/progress",
}
"""Each item is judged for itself, within a 200: so a body that breaks a rule in one item is answered."""
RULES = (
    "name a queue, or ids",
    "name something to change",
    "give delay or run_at, not both",
    "all ids must be of one queue",
    "a key of scope admin could make itself another",
    "run_at must be a time before 2110",
)
"""What is refused although each field is as its schema says: rules between fields, and one of dates."""

Schema = Any


def operations() -> list[str]:
    paths = create_app(load_settings()).openapi()["paths"]
    named = {f"{method.upper()} {path}" for path in paths for method in paths[path]}
    assert named > STREAMS
    return sorted(named - STREAMS)


@pytest.fixture(scope="module")
def place(
    start_process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, EmbeddedServer]]:
    """(URL of a running ``taskq api``, its server), both for the whole module."""
    folder = tmp_path_factory.mktemp("schemathesis")
    # One that can promise what is asked for as `durable`.
    with EmbeddedServer(folder, persistent=True, appendfsync="always") as server:
        with pytest.MonkeyPatch.context() as patch:
            # One key that may do all, so that those made on the way close no door.
            patch.setenv("TASKQ_API_KEYS", KEY)
            process = start_process("--redis-url", server.url)
        try:
            yield process.url, server
        finally:
            process.close()


@pytest.fixture(scope="module")
def schema(place: tuple[str, EmbeddedServer]) -> Schema:
    """The document as that process shows it."""
    return schemathesis.openapi.from_url(f"{place[0]}/openapi.json", headers=HEADERS)


@pytest.fixture
def known(place: tuple[str, EmbeddedServer]) -> dict[str, list[str]]:
    """What is there, by the name of the path's parameter."""
    url, server = place
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    jobs = _jobs(server.url)
    with httpx.Client(base_url=url, headers=HEADERS) as http:
        poll = {"job_types": ["leased"], "max": 1}
        lease = http.post("/leases", json=poll).json()
        about = {"queue": "default", "job_type": "none"}
        started = http.post("/bulk", json={"action": "cancel", "filter": about})
        key = http.post("/keys", json={"name": "ci", "scopes": ["read"]}).json()
        errors = http.get("/errors").json()["errors"]
        return {
            "job_id": [*jobs, lease["jobs"][0]["id"]],
            "queue": ["default"],
            "lease_id": [lease["id"]],
            "bulk_id": [started.json()["id"]],
            "fingerprint": [error["fingerprint"] for error in errors],
            "key_id": [key["id"]],
            "worker_id": ["w1"],
        }


def _jobs(url: str) -> list[str]:
    """Stores a job for every state and one that is to be leased; ids of the former."""
    new_ulid = UlidFactory()

    def spec(job_type: str, **more: Any) -> JobSpec:
        return JobSpec(id=new_ulid(), job_type=job_type, payload=b'{"n":1}', **more)

    with closing(SyncClient.from_url(url, "taskq")) as client:
        keys = client.store.keys.queue("default")
        runs = [spec("echo") for _ in range(4)]
        rest = [spec("other"), spec("other", delay_ms=600_000), spec("other"), spec("leased")]
        client.submit_many("default", [*runs, *rest])
        claim = calls.claim(keys, "w1", 1, 4, ["echo"], lease_ms=600_000)
        done, failed, retrying, _ = client.store.run(claim).jobs
        error = b'{"type":"E","message":"no"}'
        client.store.run(
            calls.finish(keys, "w1", [calls.Success(done.ulid, done.fence, b'{"a":1}')])
        )
        client.store.run(
            calls.fail(
                keys,
                "w1",
                [
                    calls.Failure(failed.ulid, failed.fence, error, 0, 1),
                    calls.Failure(retrying.ulid, retrying.fence, error, 600_000, 5),
                ],
            )
        )
        client.store.run(calls.cancel(keys, [rest[2].id], "cancelled"))
    return [join_id("default", job.id) for job in [*runs, *rest[:3]]]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in operations()
        for mode in ("allowed", "forbidden", "known")
        if mode != "known" or "{" in name
    ],
)
def test_answers_as_the_document_says(
    name: str, mode: str, schema: Schema, known: dict[str, list[str]]
) -> None:
    method, path = name.split()
    operation = schema[path][method]
    names = [p["name"] for p in operation.definition.raw.get("parameters", ()) if p["in"] == "path"]
    made = operation.as_strategy(
        GenerationMode.NEGATIVE if mode == "forbidden" else GenerationMode.POSITIVE
    )

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=made, data=st.data())
    def check(case: Any, data: Any) -> None:
        if mode == "known":
            case.path_parameters = {n: data.draw(st.sampled_from(known[n])) for n in names}
        if mode != "forbidden":
            _be_sensible(case)
        _shorten(case.query)
        _shorten(case.body)
        answer = case.call(headers=HEADERS)
        case.validate_response(answer, excluded_checks=_beside_the_point(name, answer))

    try:
        check()
    except Unsatisfiable:
        # It takes nothing that could be wrong.
        assert mode == "forbidden"
        assert "requestBody" not in operation.definition.raw


def _beside_the_point(name: str, answer: Any) -> list[Any]:
    if name in PIECEWISE and answer.status_code == 200:
        return [negative_data_rejection]
    if answer.status_code == 422 and answer.json()["detail"].startswith(RULES):
        return [positive_data_acceptance]
    return []


def _be_sensible(case: Any) -> None:
    """Takes out what no schema can rule out: cursors that were not handed out, and 1.0 for 1, which JSON
    Schema takes for a whole number and the routes do not."""
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body.pop("cursor", None)
        case.body = _whole(case.body)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shorten(values: Any) -> None:
    wait = values.get("wait") if isinstance(values, dict) else None
    if isinstance(wait, (int, float)) and wait > WAIT_SECONDS:
        values["wait"] = WAIT_SECONDS
