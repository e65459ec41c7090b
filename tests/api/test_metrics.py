"""The page that Prometheus reads, and statistics: true, documented, bounded, and there when Redis is not."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from support.queue import Bench
from taskq import calls
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.registry import Registry, WorkerInfo
from taskq.store import AsyncStore, Store
from taskq_api.metrics import Chosen, Facts

ulid = UlidFactory()
DOCS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def queue(url: str, name: str = "q") -> Bench:
    """A queue on the server's own clock."""
    bench = Bench(Store.from_url(url, Keys()), name)
    bench.now = None  # type: ignore[assignment]
    bench.store.know_queue(name)
    return bench


def work(bench: Bench, n: int = 1, job_type: str = "mail") -> None:
    bench.add(*(ulid() for _ in range(n)), job_type=job_type)
    bench.finish(*bench.take("w1", n, job_type))


Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Page:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(page: Page, name: str, **labels: str) -> float:
    return page[name, tuple(sorted(labels.items()))]


async def scrape(api: Any) -> Page:
    """A page that is not an older one."""
    api.app.state.services.metrics._read_at = float("-inf")
    return samples((await api.http.get("/metrics")).text)


async def tell_worker(store: AsyncStore, **fields: Any) -> None:
    counted = dict.fromkeys(
        ("claims", "claimed_jobs", "reports", "reported_jobs", "redis_errors", "abandoned_slots"), 3
    )
    about = {
        "id": "h-7-x", "host": "h", "pid": 7, "supervisor_pid": 1, "version": "1", "started_at": 1,
        "seen_at": 2, "state": "running", "queues": ("q",), "types": ("mail",), "slots": 10,
        "busy": 4, "counted": counted,
    }  # fmt: skip
    await Registry(store, ttl_seconds=60).tell(WorkerInfo(**{**about, **fields}))


async def everything(api: Any, redis_url: str) -> None:
    """One of all that is told."""
    bench = queue(redis_url)
    work(bench)
    bench.add(ulid(), ulid())
    one, two = bench.take(most=2)
    bench.fail(one)
    bench.fail(two, max_attempts=1)
    bench.add(ulid())
    bench.take("w2")
    bench.crash("w2")
    bench.take("w3")
    bench.reap(lease_ms=1000, targets=[("w3", "lost", "gone")])
    bench.run(calls.configure(bench.keys, {"paused": True}))
    await api.app.state.services.janitor.round()
    await tell_worker(api.store)
    api.store.errors["timeout"] += 1


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Series by name: kind and labels."""
    rows = re.findall(r"^\| `(taskq_\w+)` \| (\w+) \| ([^|]*)\|", DOCS, re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


async def test_every_series_is_documented_and_every_documented_one_is_there(
    api: Any, redis_url: str
) -> None:
    await everything(api, redis_url)
    await api.http.get("/metrics")
    api.app.state.services.metrics._read_at = float("-inf")
    text = (await api.http.get("/metrics")).text
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {k for sample in family.samples for k in sample.labels} - {"le"}
        found[name] = (family.type, frozenset(labels))
        assert family.documentation
    assert found == documented()


async def test_the_figures_are_right(api: Any, redis_url: str) -> None:
    bench = queue(redis_url)
    work(bench, 3)
    bench.add(ulid(), ulid())
    bench.add(ulid(), job_type="sms", delay_ms=60_000)
    await tell_worker(api.store)
    page = await scrape(api)
    assert value(page, "taskq_redis_up") == 1
    assert value(page, "taskq_jobs", queue="q", state="queued") == 2
    assert value(page, "taskq_jobs", queue="q", state="scheduled") == 1
    assert value(page, "taskq_jobs", queue="q", state="succeeded") == 3
    assert value(page, "taskq_waiting_jobs", queue="q", job_type="mail") == 2
    assert 0 <= value(page, "taskq_oldest_waiting_seconds", queue="q") < 10
    assert value(page, "taskq_jobs_enqueued_total", queue="q") == 6
    ended = {"queue": "q", "job_type": "mail", "state": "succeeded"}
    assert value(page, "taskq_jobs_finished_total", **ended) == 3
    of = {"queue": "q", "job_type": "mail"}
    assert value(page, "taskq_job_run_seconds_bucket", **of, le="+Inf") == 3
    assert value(page, "taskq_job_run_seconds_count", **of) == 3
    assert 0 < value(page, "taskq_job_wait_seconds_sum", **of) < 30
    assert value(page, "taskq_queue_workers", queue="q") == 1
    assert value(page, "taskq_worker_busy_slots") == 4
    assert value(page, "taskq_worker_claims_total", worker="h:7") == 3
    assert value(page, "taskq_dedup_window_seconds", queue="q") == 600
    assert value(page, "taskq_redis_used_memory_bytes") > 100_000


async def test_both_formats_are_written(api: Any, redis_url: str) -> None:
    await everything(api, redis_url)
    plain = await api.http.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = await api.http.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(open_metrics(answer.text))) > 40


async def test_counters_survive_restarts_and_rollups(run_api: Any, redis_url: str) -> None:
    bench = queue(redis_url)
    name, of = "taskq_jobs_finished_total", {"queue": "q", "job_type": "mail", "state": "succeeded"}
    for n in range(1, 5):
        work(bench)
        async with run_api() as api:
            assert value(await scrape(api), name, **of) == n
            in_ten_minutes = float(bench.redis.time()[0] * 1000 + 600_000)
            if n == 2:
                bench.run(calls.rollup(bench.keys, now=in_ten_minutes))
                bench.redis.hset(bench.keys.ticks, "counted", 0)
                for stats in bench.redis.scan_iter(bench.key("stats:*")):
                    bench.redis.delete(stats)
            assert value(await scrape(api), name, **of) == n


async def test_labels_are_bounded_by_types(api: Any, redis_url: str) -> None:
    bench = queue(redis_url)
    types = [f"t{i}" for i in range(200)]
    bench.submit(*(JobSpec(ulid(), name) for name in types))
    bench.finish(*bench.take("w1", 200, *types))
    bench.submit(*(JobSpec(ulid(), name) for name in types))
    page = await scrape(api)
    for name, more in (
        ("taskq_waiting_jobs", {}),
        ("taskq_jobs_finished_total", {"state": "succeeded"}),
        ("taskq_job_run_seconds_count", {}),
    ):
        shown = {k: v for k, v in page.items() if k[0] == name and {*more.items()} <= {*k[1]}}
        assert len(shown) == 51
        assert sum(shown.values()) == 200
        assert value(page, name, queue="q", job_type="other", **more) == 150


async def test_labels_are_bounded_by_queues(api: Any, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.sadd("taskq:queues", *(f"q{i:04d}" for i in range(500)))
    page = await scrape(api)
    assert value(page, "taskq_queues") == 500
    assert value(page, "taskq_queues_left_out") == 300
    assert len([1 for name, _ in page if name == "taskq_jobs_enqueued_total"]) == 200


def facts(*totals: dict[str, int]) -> Facts:
    counted: Any = [
        type("C", (), {"counters": {f"succeeded:{t}": n for t, n in of.items()}}) for of in totals
    ]
    infos: Any = [type("I", (), {"name": f"q{i}"}) for i in range(len(totals))]
    return Facts(len(totals), infos, counted, (), {})


def test_a_type_that_has_series_keeps_them() -> None:
    """Else ``other`` would go down when it takes them over."""
    chosen = Chosen()
    many = {f"t{i}": 100 - i for i in range(60)}
    chosen.choose(facts(many))
    assert chosen.name("q0", "t49") == "t49"
    assert chosen.name("q0", "t50") == "other"
    chosen.choose(facts({**many, "t59": 1000}))
    assert chosen.name("q0", "t59") == "other"
    assert chosen.name("q0", "t49") == "t49"
    del many["t0"]
    chosen.choose(facts({**many, "t59": 1000}))
    assert chosen.name("q0", "t59") == "t59"


async def test_many_scrapers_cost_one_look(api: Any, redis_url: str) -> None:
    queue(redis_url)
    with redis.Redis.from_url(redis_url) as client:
        client.config_resetstat()
        pages = await asyncio.gather(*(api.http.get("/metrics") for _ in range(30)))
        assert {page.status_code for page in pages} == {200}
        looks = client.info("commandstats").get("cmdstat_smembers", {"calls": 0})["calls"]
    assert looks <= 3, "one look, and the rounds of the janitor"


async def test_the_page_is_there_when_redis_is_not(run_api: Any) -> None:
    async with run_api("redis://app:sesame-7391@127.0.0.1:1/0") as api:
        answer = await api.http.get("/metrics")
        assert answer.status_code == 200
        page = samples(answer.text)
        assert value(page, "taskq_redis_up") == 0
        assert not [name for name, _ in page if name == "taskq_jobs"]
        assert value(page, "taskq_redis_errors_total", reason="connection") >= 1
        assert "sesame" not in answer.text


async def test_requests_are_counted_by_their_route(api: Any) -> None:
    job = await api.submit()
    await api.http.get(f"/jobs/{job['id']}")
    for path in ("/jobs/q:01K2J7Q0V4T8Z3M6N9R1S5X7YB", "/nowhere/secret-path", "/queues"):
        await api.http.get(path)
    await api.http.request("BREW", "/jobs")
    answer = await api.http.get("/metrics")
    page = samples(answer.text)
    name = "taskq_api_requests_total"
    assert value(page, name, route="/jobs", method="POST", status="201") == 1
    assert value(page, name, route="/jobs/{job_id}", method="GET", status="200") == 1
    assert value(page, name, route="/jobs/{job_id}", method="GET", status="404") == 1
    assert value(page, name, route="other", method="GET", status="404") == 1
    assert value(page, "taskq_api_request_seconds_count", route="/queues", method="GET") == 1
    assert "secret-path" not in answer.text
    assert "BREW" not in answer.text


async def test_it_needs_a_key_where_keys_are_set(run_api: Any, problem: Any) -> None:
    async with run_api(api_keys="sesame-7391") as api:
        problem(await api.http.get("/metrics"), 401, "unauthorized")
        answer = await api.http.get("/metrics", headers={"authorization": "Bearer sesame-7391"})
        assert answer.status_code == 200
        assert "sesame" not in answer.text


# --- statistics -----------------------------------------------------------------------------------


def of(rows: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["queue"] == name)


async def test_statistics_tell_what_happened_and_what_waits(api: Any, redis_url: str) -> None:
    bench = queue(redis_url)
    work(bench, 4)
    bench.add(ulid(), ulid(), ulid())
    (run,) = bench.take()
    bench.fail(run)
    bench.take("w2")
    row = of((await api.http.get("/stats?minutes=10")).json()["queues"], "q")
    assert row["counts"] == {"enqueued": 7, "raised": 1, "retrying": 1, "succeeded": 4}
    assert (row["waiting"], row["running"]) == (1, 1)
    assert 0 <= row["oldest_waiting"] < 10
    (mail,) = row["types"]
    assert mail["counts"] == {"raised": 1, "retrying": 1, "succeeded": 4}
    assert mail["run_ms"]["count"] == 5
    assert set(mail["wait_ms"]) == {"count", "p50", "p95", "p99"}
    assert len(row["series"]) == 10


async def test_statistics_of_some_queues(api: Any, redis_url: str, problem: Any) -> None:
    for name in ("a", "b", "c"):
        queue(redis_url, name)
    answer = (await api.http.get("/stats?queue=c&queue=a")).json()
    assert [row["queue"] for row in answer["queues"]] == ["a", "c"]
    problem(await api.http.get("/stats?queue=nowhere"), 404, "queue_not_found")
    problem(await api.http.get("/stats?minutes=0"), 422, "invalid")
    problem(await api.http.get("/stats?minute=5"), 422, "invalid")


async def test_statistics_of_many_queues_are_a_page(api: Any, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.sadd("taskq:queues", *(f"q{i:04d}" for i in range(70)))
    answer = (await api.http.get("/stats?minutes=1")).json()
    assert len(answer["queues"]) == 50
    assert answer["left_out"] == 20
