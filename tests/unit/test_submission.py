"""From what a submission says to the job: ids, and digests that no later version may change."""

from datetime import UTC, datetime
from typing import Any

import pytest

from taskq.errors import InvalidInput
from taskq.ids import UlidFactory
from taskq.model import JobSpec
from taskq.submission import SubmitOptions, make_spec
from taskq.tasks import TaskOptions

WHEN = datetime(2030, 1, 31, 8, tzinfo=UTC)
ulid = UlidFactory()


def spec(
    defaults: TaskOptions | None = None, payload: bytes = b'{"a":1}', **options: Any
) -> JobSpec:
    options = {"idempotency_key": "k", **options}
    return make_spec(ulid, "mail", payload, SubmitOptions(**options), defaults)[1]


def test_digests_are_pinned() -> None:
    """A process of another version must come to the same: else an honest repeat is refused (409)."""
    everything = spec(
        priority=5,
        delay=1.5,
        run_at=WHEN,
        expires=60,
        max_attempts=3,
        timeout=0,
        result_ttl=10,
        keep_payload=True,
        unique_key="ü",
    )
    assert (spec().digest, everything.digest) == (
        "dc5fb4e50672a634df8bd322fd3859a1",
        "23f419172f3bd3f6661de57cbe1ca2c9",
    )
    assert spec().id == "4SJ26V1T04V577HS1D7HYVXEPF"


@pytest.mark.parametrize("said", [{"priority": 0}, {"delay": 0}, {"keep_payload": False}])
def test_to_say_the_default_is_to_say_nothing(said: dict[str, Any]) -> None:
    assert spec(**said).digest == spec().digest


@pytest.mark.parametrize(
    "said",
    [
        {"priority": 1},
        {"delay": 1},
        {"run_at": WHEN},
        {"expires": 1},
        {"max_attempts": 5},
        {"timeout": 0},
        {"result_ttl": 0},
        {"keep_payload": True},
        {"unique_key": "k"},
        {"payload": b'{"a":2}'},
    ],
)
def test_every_other_word_makes_another_body(said: dict[str, Any]) -> None:
    assert spec(**said).digest != spec().digest


def test_the_task_of_another_version_changes_no_digest() -> None:
    """The defaults are the code's, not the caller's: a repeat may meet a newer deployment."""
    newer = spec(TaskOptions(priority=7, expires=60.0, max_attempts=2, timeout=1.0))
    assert newer.digest == spec().digest
    assert (newer.priority, newer.expires_ms) == (7, 60_000)


def test_without_a_key_there_is_nothing_to_compare() -> None:
    first, second = spec(idempotency_key=None), spec(idempotency_key=None)
    assert (first.digest, first.check) == (None, False)
    assert first.id != second.id


def test_an_owner_has_keys_of_his_own() -> None:
    made = [
        make_spec(ulid, "mail", b"{}", SubmitOptions(idempotency_key="k"), key_owner=owner)[1]
        for owner in ("", "a", "b")
    ]
    assert len({job.id for job in made}) == 3
    assert len({job.digest for job in made}) == 1


def test_what_is_no_value_is_left_to_the_check() -> None:
    """The digest does not fail for what the store is about to refuse by name."""
    assert spec(priority=object()).digest
    with pytest.raises(InvalidInput):
        spec(idempotency_key="")
