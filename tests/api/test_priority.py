"""Each value that a priority may be given: taken as it is, or refused by name; never made into another."""

from collections.abc import Callable
from typing import Any

import pytest

Check = Callable[..., dict[str, Any]]


async def post(api: Any, priority: str) -> Any:
    return await api.raw(b'{"job_type":"echo","priority":%s}' % priority.encode())


@pytest.mark.parametrize(
    ("said", "stored"),
    [("null", 0), ("0", 0), ("-0", 0), ("-100", -100), ("100", 100), ("7", 7)],
)
async def test_f27_allowed(api: Any, said: str, stored: int) -> None:
    """F27: what is said is what is stored; nothing said is 0."""
    answer = await post(api, said)
    assert answer.status_code == 201
    assert (await api.http.get(answer.headers["location"])).json()["priority"] == stored
    assert (await api.submit())["priority"] == 0


@pytest.mark.parametrize(
    "said",
    ["-101", "101", "2.5", "1.0", "-0.0", '"5"', '""', "true", "false", "1e308", "1e2", "9" * 40,
     "NaN", "Infinity", "1e400", "[1]", "{}"],
)  # fmt: skip
async def test_f27_refused(api: Any, problem: Check, said: str) -> None:
    """F27: never silently the highest."""
    no_json = said in ("NaN", "Infinity", "1e400")
    answer = await post(api, said)
    shown = problem(answer, 422, "invalid_payload" if no_json else "invalid")
    assert no_json or shown["field"] == "priority"
    assert await api.jobs_stored() == 0


async def test_f27_the_order_of_what_was_said(api: Any) -> None:
    """F27: higher first; what says nothing stands among the zeros, in the order in which they came."""
    said: list[dict[str, Any]] = [
        {"priority": -100}, {}, {"priority": 0}, {"priority": None}, {"priority": 100}, {}
    ]  # fmt: skip
    ids = [(await api.submit(**fields))["id"] for fields in said]
    listed = (await api.http.get("/jobs?state=queued")).json()["jobs"]
    assert [job["id"] for job in listed] == [ids[i] for i in (4, 1, 2, 3, 5, 0)]
