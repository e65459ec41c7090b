"""Values as JSON shows them, also of what a foreign hand has written."""

import json
from typing import Any

import pytest

from taskq.model import Job
from taskq.present import job_to_dict, timeline
from taskq.states import State

AT = 1_750_000_000_000
TEXT = "2025-06-15T15:06:40.000Z"


def job(**fields: Any) -> Job:
    fields = {"state": State.QUEUED, "created_at": AT, "eligible_at": AT, **fields}
    return Job(id="q:x", queue="q", ulid="x", job_type="mail", **fields)


def events(shown: Job) -> list[str]:
    return [event["event"] for event in timeline(shown)]


def test_the_history_of_a_job_is_its_timeline() -> None:
    one = job(started_at=AT + 5, attempts=1, worker="w1")
    assert job_to_dict(one)["history"] == timeline(one)
    assert timeline(one)[1] == {
        "at": "2025-06-15T15:06:40.005Z",
        "event": "started",
        "attempt": 1,
        "worker": "w1",
    }


def test_what_is_to_come_is_told_too() -> None:
    assert events(job(state=State.SCHEDULED, eligible_at=AT + 1, expires_at=AT + 2)) == [
        "created",
        "due",
        "expires",
    ]


def test_an_end_is_told_once() -> None:
    one = job(state=State.FAILED, started_at=AT + 1, finished_at=AT + 2)
    assert events(one) == ["created", "started", "failed"]
    told = ({"at": AT + 2, "event": "expired"},)
    assert events(job(state=State.FAILED, finished_at=AT + 2, history=told)) == [
        "created",
        "expired",
    ]


def test_only_the_last_error_keeps_its_traceback() -> None:
    error = {"type": "E", "message": "m", "traceback": "Traceback ..."}
    told = ({"at": AT + 1, "event": "failed", "error": error},)
    shown = job_to_dict(job(state=State.FAILED, finished_at=AT + 1, history=told, error=error))
    assert shown["history"][-1]["error"] == {"type": "E", "message": "m"}
    assert shown["error"] == error
    assert told[0]["error"] is error


def test_a_run_that_was_stopped_is_how_its_job_was_cancelled() -> None:
    def history(error: str) -> list[dict[str, Any]]:
        line = {"at": AT + 3, "event": "failed", "failures": 1, "error": {"type": error}}
        told = ({"at": AT + 2, "event": "cancel asked"}, line)
        stopped = job(state=State.CANCELLED, finished_at=AT + 3, history=told, reason="cancelled")
        return timeline(stopped)[1:]

    assert [event["event"] for event in history("Cancelled")] == ["cancel asked", "cancelled"]
    assert "error" not in history("Cancelled")[-1]
    assert history("ValueError")[-1]["error"] == {"type": "ValueError"}


def test_an_end_is_told_also_where_the_run_was_lost() -> None:
    for word, state in (("crashed", State.FAILED), ("released", State.CANCELLED)):
        told = ({"at": AT + 2, "event": word},)
        shown = timeline(job(state=state, finished_at=AT + 2, history=told, reason="purged"))
        assert [event["event"] for event in shown] == ["created", word, state.value]
        assert shown[-1]["reason"] == "purged"


@pytest.mark.parametrize(
    "line",
    [
        [1],
        "text",
        7,
        None,
        {},
        {"message": "no JSON"},
        {"at": "yesterday", "event": "failed"},
        {"at": True, "event": 5},
        {"at": float("nan"), "event": "failed"},
        {"at": float("inf"), "event": "failed"},
        {"at": -1e300, "event": None, "run_at": float("nan")},
    ],
)
def test_lines_that_a_foreign_hand_wrote_are_shown(line: Any) -> None:
    one = job(history=(line, {"at": AT + 1, "event": "edited"}), log=(line,), progress=line)
    shown = job_to_dict(one)
    assert len(shown["history"]) == 3
    assert shown["history"][-1]["event"] == "edited"
    for event in shown["history"]:
        assert isinstance(event["event"], str)
        assert isinstance(event["at"], str | None)
    assert set(shown["log"][0]) == {"at", "line"}
    assert isinstance(shown["log"][0]["line"], str)
    json.dumps({k: shown[k] for k in ("log", "progress")})


def test_times_within_lines_are_text() -> None:
    shown = job_to_dict(
        job(
            history=({"at": AT, "event": "edited", "run_at": AT},),
            log=({"line": "half", "at": AT},),
            progress={"fraction": 0.5, "message": "half", "at": AT},
        )
    )
    assert shown["history"][-1] == {"at": TEXT, "event": "edited", "run_at": TEXT}
    assert shown["log"] == [{"at": TEXT, "line": "half"}]
    assert shown["progress"] == {"fraction": 0.5, "message": "half", "at": TEXT}
