"""What each route about jobs answers."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskq.ids import UlidFactory

Check = Callable[..., dict[str, Any]]
MISSING = "default:01K2J7Q0V4T8Z3M6N9R1S5X7YB"
MEMBERS = {
    "id", "queue", "job_type", "state", "priority", "payload", "result", "error", "reason", "progress",
    "attempts", "failures", "crashes", "lost", "max_attempts", "timeout", "unique_key", "worker",
    "cancel_requested", "created_at", "eligible_at", "started_at", "finished_at", "expires_at",
    "history", "log", "stub", "fence", "fingerprint",
}  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class TestSubmit:
    async def test_answers_the_job_and_where_it_is(self, api: Any) -> None:
        answer = await api.http.post(
            "/jobs",
            json={"job_type": "print", "priority": 10, "payload": {"message": "Hello"}},
        )
        assert answer.status_code == 201
        job = answer.json()
        assert (
            job
            | {
                "queue": "default",
                "job_type": "print",
                "state": "queued",
                "priority": 10,
                "payload": {"message": "Hello"},
                "stub": False,
            }
            == job
        )
        assert answer.headers["location"] == f"/jobs/{job['id']}"
        stored = (await api.http.get(answer.headers["location"])).json()
        timed = ("created_at", "eligible_at", "history")
        assert {k: v for k, v in stored.items() if k not in timed} == {
            k: v for k, v in job.items() if k not in timed
        }

    async def test_has_all_members_of_a_job(self, api: Any) -> None:
        job = await api.submit()
        assert set(job) == MEMBERS
        assert TIME.fullmatch(job["created_at"])
        assert job["payload"] == {}
        assert [event["event"] for event in job["history"]] == ["created"]

    async def test_keeps_every_option(self, api: Any) -> None:
        job = await api.submit(
            queue="mail",
            priority=-100,
            delay=60,
            expires=90.5,
            max_attempts=7,
            timeout=1.5,
            result_ttl=10,
            keep_payload=True,
            unique_key="u",
        )
        stored = (await api.http.get(f"/jobs/{job['id']}")).json()
        for shown in (job, stored):
            assert shown["queue"] == "mail"
            assert shown["state"] == "scheduled"
            assert shown["priority"] == -100
            assert shown["max_attempts"] == 7
            assert shown["timeout"] == 1.5
            assert shown["unique_key"] == "u"
            created = datetime.fromisoformat(shown["created_at"])
            assert datetime.fromisoformat(shown["eligible_at"]) - created == timedelta(seconds=60)
            assert datetime.fromisoformat(shown["expires_at"]) - created == timedelta(seconds=90.5)

    @pytest.mark.parametrize(
        "text", ["2099-01-31T08:00:00+01:00", "2099-01-31T07:00:00Z", "2099-01-31t07:00:00.000z"]
    )
    async def test_takes_points_in_time(self, api: Any, text: str) -> None:
        job = await api.submit(run_at=text)
        assert job["state"] == "scheduled"
        assert job["eligible_at"] == "2099-01-31T07:00:00.000Z"
        stored = (await api.http.get(f"/jobs/{job['id']}")).json()
        assert stored["eligible_at"] == job["eligible_at"]

    async def test_of_a_time_in_the_past_is_due_at_once(self, api: Any) -> None:
        for past in ("1999-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59"):
            assert (await api.submit(run_at=past))["state"] == "queued"

    async def test_null_is_the_same_as_nothing(self, api: Any) -> None:
        job = await api.submit(priority=None, queue=None, delay=None, run_at=None, timeout=None)
        assert (job["priority"], job["queue"], job["state"]) == (0, "default", "queued")

    async def test_null_is_a_payload(self, api: Any) -> None:
        job = await api.submit(payload=None)
        assert job["payload"] is None
        keys = api.store.keys.queue("default")
        stored = await api.store.redis.hget(keys.job(job["id"].split(":")[1]), "payload")
        assert stored == b"null"

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"priority": "5"}, "priority"),
            ({"priority": 2.5}, "priority"),
            ({"priority": True}, "priority"),
            ({"priority": 101}, "priority"),
            ({"priority": -101}, "priority"),
            ({"priority": 10**30}, "priority"),
            ({"priority": 1e308}, "priority"),
            ({"priority": []}, "priority"),
            ({"job_type": ""}, "job_type"),
            ({"job_type": None}, "job_type"),
            ({"job_type": 5}, "job_type"),
            ({"job_type": "a/../../b"}, "job_type"),
            ({"job_type": "x" * 129}, "job_type"),
            ({"job_type": "a\nb"}, "job_type"),
            ({"job_type": "<img src=x onerror=alert(1)>"}, "job_type"),
            ({"queue": ""}, "queue"),
            ({"queue": "a:b"}, "queue"),
            ({"queue": "{a}"}, "queue"),
            ({"queue": "q\x00"}, "queue"),
            ({"delay": -1}, "delay"),
            ({"delay": "5"}, "delay"),
            ({"delay": True}, "delay"),
            ({"delay": 10**400}, "delay"),
            ({"delay": 1e12}, "delay"),
            ({"delay": 1, "run_at": "2099-01-01T00:00:00Z"}, "delay"),
            ({"run_at": "2099-01-01T00:00:00"}, "run_at"),
            ({"run_at": "2099-01-01"}, "run_at"),
            ({"run_at": "2099-13-01T00:00:00Z"}, "run_at"),
            ({"run_at": "2099-01-01T00:00:00+99:00"}, "run_at"),
            ({"run_at": "9999-12-31T23:59:59Z"}, "run_at"),
            ({"run_at": 1750000000}, "run_at"),
            ({"run_at": "٢٠٩٩-01-01T00:00:00Z"}, "run_at"),
            ({"expires": 0}, "expires"),
            ({"expires": -1}, "expires"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"max_attempts": 1.0}, "max_attempts"),
            ({"timeout": -0.1}, "timeout"),
            ({"result_ttl": "1"}, "result_ttl"),
            ({"keep_payload": 1}, "keep_payload"),
            ({"unique_key": ""}, "unique_key"),
            ({"unique_key": "a{b}"}, "unique_key"),
            ({"unique_key": "x" * 201}, "unique_key"),
            ({"unique_key": "a\x00b"}, "unique_key"),
            ({"nonsense": 1}, "nonsense"),
            ({"id": "default:01K2J7Q0V4T8Z3M6N9R1S5X7YB"}, "id"),
        ],
    )
    async def test_refuses_what_is_wrong_and_names_it(
        self, api: Any, problem: Check, fields: dict[str, Any], field: str
    ) -> None:
        answer = await api.http.post("/jobs", json={"job_type": "echo", **fields})
        assert problem(answer, 422, "invalid")["field"] == field
        assert await api.jobs_stored() == 0

    @pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null", b"[{}]"])
    async def test_refuses_what_is_no_object(self, api: Any, problem: Check, body: bytes) -> None:
        problem(await api.raw(body), 422, "invalid")

    async def test_needs_a_type(self, api: Any, problem: Check) -> None:
        assert problem(await api.raw(b"{}"), 422, "invalid")["field"] == "job_type"

    async def test_any_well_formed_type_waits_for_its_worker(self, api: Any) -> None:
        for name in ("os.system", "builtins.eval", "__main__.x"):
            assert (await api.submit(job_type=name))["state"] == "queued"

    async def test_refuses_a_second_job_of_a_unique_key(self, api: Any, problem: Check) -> None:
        first = await api.submit(unique_key="k")
        answer = await api.http.post("/jobs", json={"job_type": "other", "unique_key": "k"})
        assert problem(answer, 409, "unique_held")["job_id"] == first["id"]
        await api.http.post(f"/jobs/{first['id']}/cancel")
        await api.submit(unique_key="k")

    async def test_says_when_a_full_queue_may_have_room(self, api: Any, problem: Check) -> None:
        await api.http.patch("/queues/default", json={"max_depth": 2})
        await api.submit()
        await api.submit(delay=60)
        answer = await api.http.post("/jobs", json={"job_type": "echo"})
        problem(answer, 429, "queue_full")
        assert int(answer.headers["retry-after"]) > 0

    async def test_cuts_short_what_it_repeats(self, api: Any, problem: Check) -> None:
        answer = await api.http.post("/jobs", json={"job_type": "echo", "x" * 50_000: 1})
        problem(answer, 422, "invalid")
        assert len(answer.content) < 2000


class TestShow:
    async def test_tells_the_life_of_a_job(self, api: Any) -> None:
        job = await api.submit()
        await api.finish(job["id"], b'{"ok":true}')
        shown = (await api.http.get(f"/jobs/{job['id']}")).json()
        assert (shown["state"], shown["result"], shown["attempts"]) == (
            "succeeded",
            {"ok": True},
            1,
        )
        assert shown["payload"] is None
        assert [e["event"] for e in shown["history"]] == ["created", "started", "succeeded"]
        assert all(TIME.fullmatch(event["at"]) for event in shown["history"])

    async def test_tells_the_end_of_a_failed_job_once(self, api: Any) -> None:
        job = await api.submit()
        await api.fail(job["id"], b'{"type":"ValueError","message":"no"}')
        shown = (await api.http.get(f"/jobs/{job['id']}")).json()
        assert (shown["state"], shown["failures"]) == ("failed", 1)
        assert shown["error"] == {"type": "ValueError", "message": "no"}
        assert [e["event"] for e in shown["history"]] == ["created", "started", "failed"]

    async def test_shows_a_stub(self, api: Any) -> None:
        answer = await api.raw(b'{"job_type":"echo","result_ttl":1}', **{"idempotency-key": "k"})
        job = answer.json()
        await api.finish(job["id"], b"1")
        await api.http.patch("/queues/default", json={"succeeded_max": 0})
        await api.app.state.services.janitor.round()
        ulid = job["id"].split(":")[1]
        keys = api.store.keys.queue("default")
        await api.store.redis.delete(keys.job(ulid))
        await api.store.redis.zadd(keys.prefix + "stubs:succeeded", {ulid: 1_750_000_000_000})
        shown = (await api.http.get(f"/jobs/{job['id']}")).json()
        assert (shown["stub"], shown["state"]) == (True, "succeeded")

    @pytest.mark.parametrize(
        "job_id",
        [MISSING, "nope", "default:", ":", "a b", "default:01", "%00", "x" * 3000, "{q}:1"],
    )
    async def test_does_not_know_what_is_not_there(
        self, api: Any, problem: Check, job_id: str
    ) -> None:
        for path in ("", "/result"):
            problem(await api.http.get(f"/jobs/{job_id}{path}"), 404, "job_not_found")
        for verb in ("cancel", "retry"):
            problem(await api.http.post(f"/jobs/{job_id}/{verb}"), 404, "job_not_found")


class TestResult:
    async def test_answers_at_once_while_it_runs(self, api: Any) -> None:
        job = await api.submit()
        answer = await api.http.get(f"/jobs/{job['id']}/result")
        assert (answer.status_code, answer.json()) == (202, {"id": job["id"], "state": "queued"})

    async def test_waits_for_the_end(self, api: Any) -> None:
        job = await api.submit()
        waiting = asyncio.create_task(api.http.get(f"/jobs/{job['id']}/result?wait=30"))
        keys = api.store.keys.queue("default")
        key = keys.job(job["id"].split(":")[1])
        async with asyncio.timeout(10):
            while not await api.store.redis.hexists(key, "watched"):
                pass
        await api.finish(job["id"], b"[1]")
        async with asyncio.timeout(10):
            answer = await waiting
        assert answer.status_code == 200
        assert answer.json() | {"state": "succeeded", "result": [1]} == answer.json()

    async def test_gives_up_waiting(self, api: Any) -> None:
        job = await api.submit()
        answer = await api.http.get(f"/jobs/{job['id']}/result?wait=0.05")
        assert (answer.status_code, answer.json()["state"]) == (202, "queued")

    async def test_stops_waiting_with_the_process(self, api: Any) -> None:
        job = await api.submit()
        api.app.state.stopping.set()
        async with asyncio.timeout(10):
            answer = await api.http.get(f"/jobs/{job['id']}/result?wait=60")
        assert answer.status_code == 202

    async def test_tells_how_a_job_failed_or_was_cancelled(self, api: Any) -> None:
        failed, cancelled = await api.submit(), await api.submit()
        await api.http.post(f"/jobs/{cancelled['id']}/cancel")
        await api.fail(failed["id"])
        answer = (await api.http.get(f"/jobs/{failed['id']}/result?wait=5")).json()
        assert (answer["state"], answer["error"]) == ("failed", {"type": "X"})
        answer = (await api.http.get(f"/jobs/{cancelled['id']}/result")).json()
        assert (answer["state"], answer["reason"]) == ("cancelled", "cancelled")

    async def test_says_that_a_result_is_gone(self, api: Any, problem: Check) -> None:
        keys = api.store.keys.queue("default")
        ulid = UlidFactory()()
        await api.store.redis.zadd(keys.prefix + "stubs:succeeded", {ulid: 1})
        problem(await api.http.get(f"/jobs/default:{ulid}/result"), 410, "result_expired")

    @pytest.mark.parametrize("wait", ["-1", "nan", "inf", "x", ""])
    async def test_refuses_a_wait_that_is_none(self, api: Any, problem: Check, wait: str) -> None:
        answer = await api.http.get(f"/jobs/{MISSING}/result?wait={wait}")
        assert problem(answer, 422, "invalid")["field"] == "wait"


class TestCancelAndRetry:
    async def test_cancels_a_waiting_job_for_good(self, api: Any) -> None:
        job = await api.submit()
        for _ in range(2):
            answer = await api.http.post(f"/jobs/{job['id']}/cancel")
            assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")

    async def test_asks_a_running_job_to_stop(self, api: Any) -> None:
        job = await api.submit()
        await api.claim(job["id"])
        shown = (await api.http.post(f"/jobs/{job['id']}/cancel")).json()
        assert (shown["state"], shown["cancel_requested"]) == ("running", True)

    async def test_does_not_cancel_what_has_ended(self, api: Any, problem: Check) -> None:
        job = await api.submit()
        await api.finish(job["id"], b"1")
        answer = await api.http.post(f"/jobs/{job['id']}/cancel")
        assert problem(answer, 409, "wrong_state")["state"] == "succeeded"

    async def test_retries_a_failed_job(self, api: Any, problem: Check) -> None:
        job = await api.submit()
        await api.fail(job["id"])
        shown = (await api.http.post(f"/jobs/{job['id']}/retry")).json()
        assert (shown["state"], shown["failures"]) == ("queued", 0)
        answer = await api.http.post(f"/jobs/{job['id']}/retry")
        assert problem(answer, 409, "wrong_state")["state"] == "queued"

    async def test_does_not_retry_past_a_unique_key(self, api: Any, problem: Check) -> None:
        job = await api.submit(unique_key="k")
        await api.fail(job["id"])
        holder = await api.submit(unique_key="k")
        answer = await api.http.post(f"/jobs/{job['id']}/retry")
        assert problem(answer, 409, "unique_held")["job_id"] == holder["id"]


class TestBatch:
    async def test_answers_for_each_job(self, api: Any) -> None:
        held = await api.submit(unique_key="u")
        items = [
            {"job_type": "echo", "payload": 1},
            {"job_type": "echo", "queue": "mail", "priority": 5},
            {"job_type": "echo", "priority": 1000},
            {"job_type": "echo", "unique_key": "u"},
            {"job_type": "echo", "idempotency_key": "k"},
            {"job_type": "echo", "idempotency_key": "k"},
            {"job_type": "other", "idempotency_key": "k"},
            "nonsense",
        ]
        answer = await api.http.post("/jobs/batch", json={"jobs": items})
        assert answer.status_code == 200
        body = answer.json()
        assert [item["status"] for item in body["items"]] == [
            201, 201, 422, 409, 201, 200, 409, 422,
        ]  # fmt: skip
        assert (body["created"], body["known"], body["refused"]) == (3, 1, 4)
        problems = [item["problem"]["code"] for item in body["items"] if "problem" in item]
        assert problems == ["invalid", "unique_held", "idempotency_conflict", "invalid"]
        assert body["items"][3]["problem"]["job_id"] == held["id"]
        assert body["items"][4]["id"] == body["items"][5]["id"]
        for item in body["items"]:
            if "id" in item:
                assert (await api.http.get(f"/jobs/{item['id']}")).json()["state"] == "queued"

    async def test_takes_a_thousand_and_no_more(self, api: Any, problem: Check) -> None:
        jobs = [{"job_type": "echo"}] * 1000
        answer = await api.http.post("/jobs/batch", json={"jobs": jobs})
        assert answer.json()["created"] == 1000
        assert await api.jobs_stored() == 1000
        for wrong in ([*jobs, jobs[0]], [], None):
            answer = await api.http.post("/jobs/batch", json={"jobs": wrong})
            assert problem(answer, 422, "invalid")["field"] == "jobs"


class TestList:
    async def test_pages_over_queues_and_states(self, api: Any) -> None:
        """F58, F79: pages go by a cursor and carry no payloads, results or errors."""
        ids = {(await api.submit(queue=q))["id"] for q in ("a", "b") for _ in range(5)}
        ids |= {(await api.submit(queue="c", delay=60, payload={"secret": 1}))["id"]}
        seen: list[str] = []
        cursor = ""
        while True:
            params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
            page = (await api.http.get("/jobs", params=params)).json()
            assert len(page["jobs"]) <= 3
            assert not any({"payload", "result", "error"} & job.keys() for job in page["jobs"])
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
        assert len(seen) == len(set(seen)) == 11
        assert set(seen) == ids

    async def test_filters(self, api: Any) -> None:
        await api.submit(queue="a")
        await api.submit(queue="a", delay=9)
        other = await api.submit(queue="b", job_type="other")
        for query, n in (
            ("queue=a", 2),
            ("state=queued", 2),
            ("queue=a&state=scheduled", 1),
            ("job_type=other", 1),
            ("queue=nope", 0),
        ):
            assert len((await api.http.get(f"/jobs?{query}")).json()["jobs"]) == n, query
        page = (await api.http.get("/jobs?job_type=other")).json()
        assert page["jobs"][0]["id"] == other["id"]

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("state=nope", "state"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=x", "limit"),
            ("cursor=%00", "cursor"),
            ("cursor=!!!!", "cursor"),
            ("cursor=W10", "cursor"),
            ("cursor=é", "cursor"),
            ("queue=a:b", "queue"),
            ("job_type=a b", "job_type"),
        ],
    )
    async def test_refuses_what_is_wrong(
        self, api: Any, problem: Check, query: str, field: str
    ) -> None:
        await api.submit()
        assert problem(await api.http.get(f"/jobs?{query}"), 422, "invalid")["field"] == field


async def test_times_are_utc(api: Any) -> None:
    job = await api.submit()
    assert abs(datetime.fromisoformat(job["created_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
