"""How runs over HTTP end, and what is told of them before."""

from collections.abc import Callable
from typing import Any

from support.lease import lease, leased, of, report, run_out, shown
from taskq.ids import split_id
from taskq_api import schemas

Check = Callable[..., dict[str, Any]]


# --- results --------------------------------------------------------------------------------------


async def test_every_outcome_and_what_becomes_of_the_job(api: Any) -> None:
    held = await leased(api, 7)
    jobs = held["jobs"]
    error = {"type": "NotFound", "message": "no such", "traceback": "at x", "code": "E1"}
    answer = await report(
        api,
        held,
        of(jobs[0], "succeeded", result={"n": 2**63 - 1}),
        of(jobs[1], "failed", error=error),
        of(jobs[2], "failed", error=error, retry=False),
        of(jobs[3], "released"),
        of(jobs[4], "snoozed", delay=60),
        of(jobs[5], "crashed", reason="signal 9"),
    )
    states = [outcome["state"] for outcome in answer["results"]]
    assert states == ["succeeded", "retrying", "failed", "queued", "scheduled", "queued"]
    assert {o["status"] for o in answer["results"]} == {200}
    assert (answer["recorded"], answer["refused"], answer["held"]) == (6, 0, 1)
    now = [await shown(api, job) for job in jobs]
    assert [job["state"] for job in now] == [*states, "running"]
    assert now[0]["result"] == {"n": 2**63 - 1}
    assert now[1]["error"] == now[2]["error"] == error
    assert (now[1]["failures"], now[2]["failures"]) == (1, 1)
    assert (now[3]["failures"], now[3]["crashes"], now[3]["lost"]) == (0, 0, 0)
    assert (now[5]["crashes"], now[5]["history"][-1]["reason"]) == (1, "signal 9")


async def test_the_same_report_again_is_answered_the_same(api: Any) -> None:
    held = await leased(api, 6)
    outcomes = ["succeeded", "failed", "released", "snoozed", "crashed"]
    reports = [of(job, outcome) for job, outcome in zip(held["jobs"], outcomes, strict=False)]
    reports.append(of(held["jobs"][5], "failed", retry=False))
    reports[3]["delay"] = 60
    first = await report(api, held, *reports)
    before = await api.store.redis.hgetall(api.store.keys.queue("default").prefix + "ticks")
    again = await report(api, held, *reports)
    assert again == first
    assert before is not None
    for job in held["jobs"]:
        assert (await shown(api, job))["failures"] <= 1


async def test_after_recovery_results_are_refused_one_by_one(api: Any) -> None:
    held = await leased(api, 2)
    await report(api, held, of(held["jobs"][1], "succeeded", result=1))
    await run_out(api, held)
    again = await lease(api)
    assert again["jobs"][0]["id"] == held["jobs"][0]["id"]
    answer = await report(
        api, held, of(held["jobs"][0], "succeeded", result=2), of(held["jobs"][1], "succeeded")
    )
    late, kept = answer["results"]
    assert (late["status"], late["problem"]["code"], late["state"]) == (
        409,
        "stale_fence",
        "running",
    )
    assert (kept["status"], kept["state"]) == (200, "succeeded")
    assert (await report(api, again, of(again["jobs"][0], "succeeded", result=3)))["recorded"] == 1
    assert (await shown(api, held["jobs"][0]))["result"] == 3


async def test_one_bad_report_does_not_keep_the_others_out(api: Any) -> None:
    held = await leased(api, 2)
    good = of(held["jobs"][0], "succeeded", result=1)
    wrong = {**of(held["jobs"][1], "succeeded"), "fence": 7}
    other = await api.submit()
    answer = await report(
        api,
        held,
        good,
        wrong,
        {"id": other["id"], "fence": 1, "outcome": "succeeded"},
        {"id": "mail:" + split_id(other["id"])[1], "fence": 1, "outcome": "succeeded"},
        {"id": "default:" + "0" * 26, "fence": 1, "outcome": "succeeded"},
        {"id": "what", "fence": 1, "outcome": "succeeded"},
        {"id": other["id"], "fence": 1, "outcome": "done"},
        of(held["jobs"][1], "released", result=1),
        of(held["jobs"][1], "failed", delay=1),
        7,  # type: ignore[arg-type]
    )
    found = [(o["status"], o.get("problem", {}).get("code")) for o in answer["results"]]
    assert found == [
        (200, None), (409, "stale_fence"), (409, "stale_fence"), (404, "job_not_found"),
        (404, "job_not_found"), (404, "job_not_found"), (422, "invalid"), (422, "invalid"),
        (422, "invalid"), (422, "invalid"),
    ]  # fmt: skip
    assert (answer["recorded"], answer["held"]) == (1, 1)


async def test_a_fence_from_another_run_is_refused(api: Any) -> None:
    held = await leased(api)
    await report(api, held, of(held["jobs"][0], "released"))
    again = await lease(api)
    answer = await report(api, again, of(held["jobs"][0], "succeeded"))
    assert answer["results"][0]["problem"]["code"] == "stale_fence"
    assert (await shown(api, held["jobs"][0]))["state"] == "running"


async def test_a_retry_follows_the_job_or_the_report(api: Any) -> None:
    held = await leased(api, 2, max_attempts=2)
    await report(api, held, *(of(job, "failed", retry_after=0) for job in held["jobs"]))
    held = await lease(api, max=2)
    assert [job["failures"] for job in held["jobs"]] == [1, 1]
    answer = await report(api, held, *(of(job, "failed", retry_after=500) for job in held["jobs"]))
    assert [o["state"] for o in answer["results"]] == ["failed", "failed"]


async def test_a_crash_makes_a_suspect_and_three_fail(api: Any) -> None:
    await api.submit()
    for n in range(3):
        held = await lease(api, max=5)
        assert held["jobs"][0]["suspect"] is (n > 0)
        answer = await report(api, held, of(held["jobs"][0], "crashed"))
    assert answer["results"][0]["state"] == "failed"


async def test_a_result_that_is_too_deep_is_refused_and_its_run_goes_on(api: Any) -> None:
    held = await leased(api)
    deep: Any = 1
    for _ in range(198):
        deep = [deep]
    body = of(held["jobs"][0], "succeeded", result=deep)
    answer = await api.http.post(f"/leases/{held['id']}/results", json={"results": [body]})
    assert answer.status_code == 422
    assert (await shown(api, held["jobs"][0]))["state"] == "running"


async def test_a_huge_error_is_cut(api: Any) -> None:
    held = await leased(api)
    error = {"message": "m" * 9000, "traceback": "t" * 20_000 + "end"}
    await report(api, held, of(held["jobs"][0], "failed", error=error, retry=False))
    kept = (await shown(api, held["jobs"][0]))["error"]
    assert kept["type"] == "Error"
    assert len(kept["message"]) == 2000
    assert len(kept["traceback"]) < 8100
    assert kept["traceback"].endswith("end")


# --- progress and log -----------------------------------------------------------------------------


async def news(api: Any, held: dict[str, Any], *runs: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.http.post(f"/leases/{held['id']}/progress", json={"runs": list(runs)})
    assert answer.status_code == 200, answer.text
    schemas.ProgressAnswer.model_validate(answer.json(), extra="forbid")
    found: list[dict[str, Any]] = answer.json()["runs"]
    return found


async def test_progress_and_lines_are_shown_with_the_job(api: Any) -> None:
    held = await leased(api)
    run = {"id": held["jobs"][0]["id"], "fence": held["jobs"][0]["fence"]}
    lines = [{"seq": 1, "line": "one"}, {"seq": 2, "line": "two"}]
    (outcome,) = await news(api, held, {**run, "fraction": 0.5, "message": "half", "log": lines})
    assert outcome["status"] == 200
    # Sent again after a lost answer, with one more.
    await news(api, held, {**run, "fraction": 1, "log": [*lines, {"seq": 5, "line": "three"}]})
    answer = await api.http.get(f"/jobs/{run['id']}")
    schemas.Job.model_validate(answer.json(), extra="forbid")
    assert [line["line"] for line in answer.json()["log"]] == ["one", "two", "three"]
    assert answer.json()["progress"]["fraction"] == 1


async def test_news_of_a_run_that_is_over_are_refused(api: Any) -> None:
    held = await leased(api, 2)
    await report(api, held, of(held["jobs"][0], "succeeded"))
    runs = [{"id": j["id"], "fence": j["fence"], "fraction": 0.5} for j in held["jobs"]]
    lines = [{"id": r["id"], "fence": r["fence"], "log": [{"seq": 1, "line": "x"}]} for r in runs]
    found = await news(api, held, *runs, *lines, {"id": runs[0]["id"], "fence": 1})
    assert [o["status"] for o in found] == [409, 200, 409, 200, 422]
    assert found[0]["problem"]["code"] == "stale_fence"
    assert (await shown(api, held["jobs"][0]))["log"] == []
