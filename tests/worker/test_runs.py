"""What becomes of a job by what its handler does: each way to end, and that the worker goes on."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import probe
from support.workers import Site, site, until
from taskq import JobCancelled, JobFailed, JobHandle
from taskq.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("runs")
    with EmbeddedServer() as server, site(server, folder) as place:
        place.worker("-c", "20")
        yield place


def failure(job: JobHandle[object]) -> dict[str, str]:
    with pytest.raises(JobFailed) as caught:
        job.result_sync(10)
    return caught.value.error


def test_result_comes_back(place: Site) -> None:
    value = {
        "a": 130775545883395173,
        "b": [],
        "c": {},
        "d": 1e-7,
        "e": -0.0,
        "f": "é\u0000\u2028😀",
    }
    assert repr(probe.echo.enqueue_sync(value).result_sync(10)) == repr(value)


def test_lifespan_and_middleware(place: Site) -> None:
    assert probe.wrapped.enqueue_sync().result_sync(10) == ["around", "hello"]


def test_thread_task(place: Site) -> None:
    assert probe.gated_thread.enqueue_sync().result_sync(10) == "done"


def test_failures_are_retried_until_max_attempts(place: Site) -> None:
    job = probe.fail.enqueue_sync()
    assert failure(job)["message"] == "failure 3"
    info = job.info_sync()
    assert (info.failures, info.attempts, info.crashes, info.lost) == (3, 3, 0, 0)
    assert [event["event"] for event in info.history] == ["failed", "failed", "failed"]
    assert probe.fail.enqueue_sync(2).result_sync(10) == 2


@pytest.mark.parametrize(
    "kind",
    [
        "file",
        "object",
        "loop",
        "deep",
        "nan",
        "surrogate",
        "large",
        "generator",
        "bytes",
        "lock",
        "infinity",
        "digits",
    ],
)
def test_result_that_is_not_json_fails_the_job_alone(place: Site, kind: str) -> None:
    """F59, F56, F57, F58: no JSON form, NaN, too deep, too large: its job fails and says so."""
    children = place.workers[0].children()
    error = failure(probe.bad_result.enqueue_sync(kind))
    assert "result" in error["message"]
    assert probe.echo.enqueue_sync(1).result_sync(10) == 1
    assert place.workers[0].children() == children


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("unprintable", "Unprintable"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator_exit", "GeneratorExit"),
        ("stop_iteration", "RuntimeError"),
        ("group", "ExceptionGroup"),
        ("huge", "ValueError"),
        ("surrogate", "ValueError"),
        ("cancelled", "CancelledError"),
        ("untold", "Untold"),
        ("base", "BaseException"),
    ],
)
def test_error_of_any_kind_fails_the_job_alone(place: Site, kind: str, name: str) -> None:
    """F59, F56: what cannot be printed, sent or caught, texts of 5 MB, surrogates, control signs."""
    children = place.workers[0].children()
    assert failure(probe.bad_error.enqueue_sync(kind))["type"] == name
    assert place.workers[0].children() == children


@pytest.mark.parametrize(
    ("kind", "name"), [("untold", "Untold"), ("surrogate", "ValueError"), ("huge", "ValueError")]
)
def test_f59_errors_that_cross_processes(place: Site, kind: str, name: str) -> None:
    """F59: what a run in a process of its own raises comes back as words, not as an object."""
    assert failure(probe.bad_error_apart.enqueue_sync(kind))["type"] == name


@pytest.mark.parametrize("depth", [900, 1001, 100_000])
def test_f57_a_payload_deeper_than_any_reader(place: Site, depth: int) -> None:
    """F57: written past the door: promoted like any other, refused by the worker; the next one runs."""
    job = place.app.submit_sync("echo", {"x": 1}, delay=0.3)
    queue, _, ulid = job.id.partition(":")
    store = place.app.sync_client().store
    body = b'{"x":' + b"[" * depth + b"]" * depth + b"}"
    store.redis.hset(store.keys.queue(queue).job(ulid), "payload", body)
    assert "nested" in failure(job)["message"]
    assert probe.echo.enqueue_sync(1).result_sync(10) == 1


def test_f81_only_what_is_registered_runs(place: Site, tmp_path: Path) -> None:
    """F81: types named like functions wait for ever; pickles and records that name classes are data."""
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (open, (str(canary), "w"))

    names = ("os.system", "builtins.eval", "subprocess.run", "__main__.x", "support.probe.echo")
    waiting = [place.app.submit_sync(name, [f"touch {canary}"]) for name in names]
    for body in (pickle.dumps(Bomb()), b"cos\nsystem\n(S'touch " + bytes(canary) + b"'\ntR."):
        job = place.app.submit_sync("echo", {"x": 1}, delay=0.2)
        queue, _, ulid = job.id.partition(":")
        store = place.app.sync_client().store
        store.redis.hset(store.keys.queue(queue).job(ulid), "payload", body)
        assert failure(job)["type"] == "InvalidPayload"
    record = {"exc_type": "system", "exc_module": "os", "py/reduce": ["os.system", str(canary)]}
    assert probe.echo.enqueue_sync(record).result_sync(10) == record
    assert {job.info_sync().state for job in waiting} == {"queued"}
    assert not canary.exists()
    for job in waiting:
        job.cancel_sync()


def test_exit_in_a_job_is_a_failure(place: Site) -> None:
    assert failure(probe.exits.enqueue_sync(0))["type"] == "SystemExit"


def test_retry_snooze_and_cancel_can_be_raised(place: Site) -> None:
    assert probe.asks.enqueue_sync("retry").result_sync(10) == "attempt 2, failures 1"
    assert probe.asks.enqueue_sync("snooze").result_sync(10) == "attempt 2, failures 0"
    job = probe.asks.enqueue_sync("cancel")
    assert failure(job)["message"] == "useless"
    assert job.info_sync().attempts == 1


def test_timeout_ends_the_run_with_its_own_reason(place: Site) -> None:
    assert failure(probe.slow.enqueue_sync())["type"] == "Timeout"


def test_cancel_reaches_a_running_job(place: Site) -> None:
    for task in (probe.gated, probe.gated_thread):
        arguments = {"polite": True} if task is probe.gated_thread else {}
        job = task.enqueue_sync(place.gate("never"), **arguments)  # type: ignore[operator]
        until(lambda job=job: place.state(job.id) == "running", 5, "it runs")
        assert job.cancel_sync() == "running"
        with pytest.raises(JobCancelled):
            job.result_sync(2)


def test_arguments_that_do_not_fit_fail_at_once(place: Site) -> None:
    job = place.app.submit_sync("fail", {"times": "many"})
    error = failure(job)
    assert "times" in error["message"]
    assert job.info_sync().attempts == 1


def test_log_and_progress_are_kept(place: Site) -> None:
    job = probe.tells.enqueue_sync(3)
    job.result_sync(10)
    info = job.info_sync()
    assert [line["line"] for line in info.log] == ["line 0", "line 1", "line 2"]
    assert info.progress is not None
    assert (info.progress["fraction"], info.progress["message"]) == (1.0, "there")


def test_unknown_type_waits_and_does_not_spin(place: Site, tmp_path: Path) -> None:
    job = place.app.submit_sync("nobody_knows", {})
    assert probe.echo.enqueue_sync(1).result_sync(10) == 1
    assert job.info_sync().state == "queued"
    assert job.cancel_sync() == "cancelled"
