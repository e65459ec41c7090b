"""Answers that are written by a short cut say the same as the long way."""

import json
from typing import Any

import pytest

from taskq.model import Enqueued, JobSpec
from taskq.present import job_to_dict
from taskq.states import State
from taskq_api.render import stored_job, stored_job_body

ULID = "01JZ0000000000000000000000"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": -7, "max_attempts": 3, "timeout_ms": 1500, "unique": "k"},
        {"delay_ms": 0},
        {"delay_ms": 5000},
        {"run_at_ms": 1},
        {"run_at_ms": 4_000_000_000_000},
        {"expires_ms": 60_000},
    ],
)
@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED])
def test_the_answer_to_a_submission(options: dict[str, Any], state: State) -> None:
    spec = JobSpec(id=ULID, job_type="mail", payload=b'{"n":1}', **options)
    job = stored_job("default", spec, Enqueued(state.upper(), state))
    body = json.loads(stored_job_body(job, spec.payload))
    assert body.pop("payload") == {"n": 1}
    whole = job_to_dict(job)
    del whole["payload"]
    assert body == whole
