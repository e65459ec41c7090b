"""The document says all that the routes do."""

import re
from typing import Any

import pytest

import taskq.errors
from taskq.calls import SETTINGS
from taskq.settings import load_settings
from taskq.states import State
from taskq_api.app import create_app
from taskq_api.errors import CODES
from taskq_api.schemas import SETTING_TEXTS


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(load_settings()).openapi()


KINDS = {
    "get /events": "text/event-stream",
    "get /jobs/{job_id}/events": "text/event-stream",
    "get /metrics": "text/plain",
}
"""What is answered where it is not JSON."""

NEVER_ANSWERED = {
    "config", "unsafe_server", "embedded_server",  # before anything listens
    "job_failed", "job_cancelled", "result_timeout",  # told by an answer's state
    "conflict",  # its kinds have codes of their own
}  # fmt: skip


def test_every_error_that_a_route_can_raise_has_a_status() -> None:
    codes = {
        error.code
        for error in vars(taskq.errors).values()
        if isinstance(error, type) and issubclass(error, taskq.errors.TaskqError)
    }
    assert codes - CODES.keys() == NEVER_ANSWERED
    ours = {"invalid_json", "unauthorized", "scope_missing", "forbidden_job_type", "key_restricted",
            "forbidden_host", "forbidden_origin", "rate_limited", "too_many_failures", "head_too_large",
            "not_ready", "method_not_allowed", "unsupported_media_type", "http_error",
            "internal", "too_many_streams"}  # fmt: skip
    assert CODES.keys() - codes == ours


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    operations = [
        (f"{method} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert {name for name, _ in operations} >= {
        "post /jobs", "get /jobs", "post /jobs/batch", "get /jobs/{job_id}", "get /jobs/{job_id}/result",
        "post /jobs/{job_id}/cancel", "post /jobs/{job_id}/retry", "get /queues", "get /queues/{queue}",
        "patch /queues/{queue}", "get /workers", "get /job-types",
        "post /leases", "post /leases/{lease_id}/heartbeat", "post /leases/{lease_id}/results",
        "post /leases/{lease_id}/progress", "delete /leases/{lease_id}",
        "get /jobs/{job_id}/position", "patch /jobs/{job_id}",
        "delete /jobs/{job_id}", "get /errors", "get /errors/{fingerprint}", "post /bulk/preview",
        "post /bulk",
        "get /bulk", "get /bulk/{bulk_id}", "post /bulk/{bulk_id}/stop", "post /queues/{queue}/purge",
        "post /queues/{queue}/retry-failed", "get /doctor", "post /workers/{worker_id}/quiet",
        "post /workers/{worker_id}/stop", "get /health", "get /ready",
        "get /events", "get /jobs/{job_id}/events", "get /stats", "get /metrics",
    }  # fmt: skip
    for name, operation in operations:
        assert operation["tags"], name
        assert operation["description"], name
        assert any(status.startswith("4") for status in operation["responses"]), name
        for status, answer in operation["responses"].items():
            kind = (
                "application/problem+json" if status >= "4" else KINDS.get(name, "application/json")
            )
            if status != "204":
                assert set(answer["content"]) == {kind}, (name, status)


def test_every_field_is_described(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, about in schema.get("properties", {}).items():
            assert about.get("description"), f"{name}.{field}"
    assert SETTING_TEXTS.keys() == SETTINGS.keys()


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in re.findall(r"#/components/schemas/(\w+)", str(document)):
        assert name in schemas


def test_shows_the_body_of_a_submission(document: dict[str, Any]) -> None:
    post = document["paths"]["/jobs"]["post"]
    content = post["requestBody"]["content"]["application/json"]
    assert content["schema"]["$ref"].endswith("/JobRequest")
    request = document["components"]["schemas"]["JobRequest"]
    assert request["required"] == ["job_type"]
    assert request["additionalProperties"] is False
    assert request["examples"]
    assert [parameter["name"] for parameter in post["parameters"]] == [
        "Idempotency-Key",
        "traceparent",
    ]
    assert {"201", "200", "400", "409", "413", "415", "422", "429", "503"} <= set(post["responses"])


def test_knows_the_states(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"]["State"]["enum"] == [state.value for state in State]


NOT_OF_ONE_ROUTE = {
    "not_found", "method_not_allowed", "http_error", "internal", "taskq_error",
    "stale_fence", "head_too_large",
}  # fmt: skip
"""Answered at any path or none, where nobody foresaw it, or of one item within a 200."""


def test_every_code_is_named_by_a_route_that_answers_it(document: dict[str, Any]) -> None:
    named = {
        code
        for methods in document["paths"].values()
        for operation in methods.values()
        for answer in operation["responses"].values()
        for code in re.findall(r"`(\w+)`", answer["description"])
    }
    assert CODES.keys() - named == NOT_OF_ONE_ROUTE
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = str(operation["responses"])
            if "requestBody" in operation:
                for code in (
                    "invalid_json",
                    "invalid",
                    "payload_too_large",
                    "unsupported_media_type",
                ):
                    assert f"`{code}`" in text, (method, path, code)
            if path not in ("/health", "/ready"):
                assert "`unauthorized`" in text, (method, path)


def test_every_body_has_an_example_and_every_option_a_default(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" not in operation:
                continue
            content = operation["requestBody"]["content"]["application/json"]
            name = content["schema"]["$ref"].rpartition("/")[2]
            schema = schemas[name]
            assert schema.get("examples") or name == "BatchRequest", name
            assert schema["additionalProperties"] is False, name
            for field, about in schema["properties"].items():
                if field not in schema.get("required", ()):
                    text = about["description"]
                    assert re.search(r"[Dd]efault|with edit|next_cursor|not with", text), (
                        name,
                        field,
                    )
