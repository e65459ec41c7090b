"""The tree of errors: what the docstring draws is what is there."""

import re
from typing import Any

from taskq import errors
from taskq.errors import JobCancelled, TaskqError, Unavailable


def tree(base: type[TaskqError]) -> list[type[TaskqError]]:
    return [base, *(cls for child in base.__subclasses__() for cls in tree(child))]


def drawn() -> dict[str, tuple[str, str]]:
    """name -> (code, name of its base), read from the docstring."""
    out: dict[str, tuple[str, str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)([A-Z]\w+) +([a-z_]+)(?: .*)?$", line)
        if found:
            depth = len(found[1])
            while above and above[-1][0] >= depth:
                above.pop()
            out[found[2]] = (found[3], above[-1][1] if above else "Exception")
            above.append((depth, found[2]))
    return out


def own() -> list[type[TaskqError]]:
    return [cls for cls in tree(TaskqError) if cls.__module__ == "taskq.errors"]


def test_codes_are_unique_words() -> None:
    codes = [cls.code for cls in own()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_every_class_has_a_code_and_a_docstring_of_its_own() -> None:
    for cls in own():
        assert "code" in vars(cls), cls
        assert cls.__doc__, cls


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    real = {cls.__name__: (cls.code, cls.__bases__[0].__name__) for cls in own()}
    assert drawn() == real


def test_data_is_kept_beside_the_text() -> None:
    failed: Any = errors.JobFailed("q:1", {"type": "ValueError", "message": "no"})
    assert (failed.job_id, failed.error["message"]) == ("q:1", "no")
    assert str(errors.JobFailed("q:1", None)) == "job q:1 failed: error: no reason"
    held = errors.UniqueHeld("k", "q:1")
    assert (held.key, held.job_id) == ("k", "q:1")
    assert errors.OutOfMemory("full").reason == "oom"
    assert isinstance(errors.ResultTimeout("late"), TimeoutError)


def test_a_server_that_is_not_there_says_where_to_set_another() -> None:
    away = Unavailable("Redis is not reachable: refused", reason="connection")
    assert str(away) == f"{away.message} (set TASKQ_REDIS_URL, or TaskQ(redis_url=...))"
    assert str(Unavailable("Redis is loading", reason="loading")) == "Redis is loading"


def test_a_reason_that_only_repeats_the_state_is_dropped() -> None:
    assert str(JobCancelled("q:1", "cancelled")) == "job q:1 was cancelled"
    assert str(JobCancelled("q:1", "purged")) == "job q:1 was cancelled: purged"
