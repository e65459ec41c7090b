"""Live events: nothing lost and nothing twice over any interruption, and a reset where that cannot be."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from support.queue import Bench
from support.sse import EventSource, Reading
from taskq import calls
from taskq.embedded import EmbeddedServer
from taskq.errors import InvalidInput
from taskq.events import MAX_SEQ, Event, EventReader, Position, parse_entry
from taskq.ids import UlidFactory
from taskq.keys import Keys
from taskq.store import AsyncStore, Store
from taskq_api.errors import Refused
from taskq_api.hub import MAX_PENDING, Hub
from taskq_api.sse import Filter
from taskq_api.streams import EventStream, new_lines

ulid = UlidFactory()


def queue(url: str, name: str = "q") -> Bench:
    """A queue on the server's own clock."""
    bench = Bench(Store.from_url(url, Keys()), name)
    bench.now = None  # type: ignore[assignment]
    bench.store.know_queue(name)
    return bench


def work(bench: Bench, n: int = 1, job_type: str = "mail") -> list[str]:
    """Jobs from submission to success; answers their ids."""
    ulids = [ulid() for _ in range(n)]
    bench.add(*ulids, job_type=job_type)
    bench.finish(*bench.take("w1", n, job_type))
    return [f"{bench.queue}:{u}" for u in ulids]


LIFE = ("queued", "running", "succeeded")


def lives(ids: list[str]) -> Counter[tuple[str, str]]:
    return Counter((i, state) for i in ids for state in LIFE)


@pytest.fixture
def url(redis_url: str, start_api: Any) -> str:
    return str(start_api("--redis-url", redis_url).url)


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Opens a stream and waits until it has begun; all are closed at the end."""
    open_ones: list[Reading] = []

    async def starting(source: EventSource) -> Reading:
        open_ones.append(source.start())
        return await open_ones[-1].opened()

    yield starting
    for reading in open_ones:
        await reading.drop()


async def test_every_transition_is_told(redis_url: str, url: str, start: Start) -> None:
    bench = queue(redis_url)
    source = EventSource(f"{url}/events")
    reading = await start(source)
    ids = work(bench, 3)
    await reading.until(lambda r: len(r.states()) >= 9)
    assert Counter(reading.states()) == lives(ids)
    assert source.retry == 2000
    told = reading.told[0]
    assert told.data["queue"] == "q"
    assert told.data["jobs"][0]["job_type"] == "mail"
    assert told.data["at"].endswith("Z")


async def test_filters_show_their_queue_and_type_alone(
    redis_url: str, url: str, start: Start
) -> None:
    one, two = queue(redis_url, "one"), queue(redis_url, "two")
    by_queue = await start(EventSource(f"{url}/events", queue="two"))
    by_type = await start(EventSource(f"{url}/events", job_type=["sms", "fax"]))
    work(one, job_type="mail")
    sms, mail = work(one, job_type="sms"), work(two, job_type="mail")
    await by_queue.until(lambda r: len(r.states()) >= 3)
    await by_type.until(lambda r: len(r.states()) >= 3)
    assert Counter(by_queue.states()) == lives(mail)
    assert Counter(by_type.states()) == lives(sms)
    assert "one" not in by_queue.source.last_id


async def test_whoever_comes_back_has_missed_nothing_and_sees_nothing_twice(
    redis_url: str, url: str, start_api: Any
) -> None:
    """Over many drops at any point, two queues, and two API processes in turn."""
    other = start_api("--redis-url", redis_url).url
    benches = [queue(redis_url, "one"), queue(redis_url, "two")]
    source = EventSource(f"{url}/events")
    first = await source.start().opened()
    ids: list[str] = []
    seen: list[tuple[str, str]] = []
    reading = first

    async def move() -> None:
        for i in range(60):
            ids.extend(await asyncio.to_thread(work, benches[i % 2], 1 + i % 3))

    moving = asyncio.create_task(move())
    for drop in range(14):
        await asyncio.sleep(0.05)
        await reading.drop()
        seen += reading.states()
        assert reading.resets() == []
        source.url = f"{(url, other)[drop % 2]}/events"
        reading = await source.start().opened()
    await moving
    await reading.until(lambda r: len(seen) + len(r.states()) >= 3 * len(ids))
    await asyncio.sleep(0.3)
    await reading.drop()
    assert Counter(seen + reading.states()) == lives(ids)


async def test_a_queue_that_is_new_is_told_too(redis_url: str, url: str, start: Start) -> None:
    reading = await start(EventSource(f"{url}/events"))
    bench = queue(redis_url, "new")
    work(bench)
    await reading.until(lambda r: r.resets())
    ids = work(bench)
    await reading.until(lambda r: len(r.states()) >= 3)
    assert reading.resets() == ["not_listening"]
    assert reading.told[0].data["queue"] == "new"
    assert Counter(reading.states()) == lives(ids)


async def test_what_was_cut_off_is_a_reset(redis_url: str, url: str) -> None:
    bench = queue(redis_url)
    source = EventSource(f"{url}/events", queue="q")
    reading = await source.start().opened()
    work(bench)
    await reading.until(lambda r: len(r.states()) == 3)
    await reading.drop()
    work(bench, 5)
    bench.redis.xtrim(bench.keys.events, maxlen=1, approximate=False)
    reading = await source.start().opened()
    await reading.until(lambda r: r.resets())
    ids = work(bench)
    await reading.until(lambda r: len(r.states()) == 3)
    assert reading.resets() == ["trimmed"]
    assert Counter(reading.states()) == lives(ids)
    await reading.drop()
    reading = await source.start().opened()
    work(bench)
    await reading.until(lambda r: len(r.states()) == 3)
    assert reading.resets() == [], "the reset's id goes on after it"
    await reading.drop()


async def test_coming_back_after_nobody_listened_is_a_reset(redis_url: str, url: str) -> None:
    bench = queue(redis_url)
    source = EventSource(f"{url}/events", queue="q")
    reading = await source.start().opened()
    await reading.drop()
    # As if two minutes had passed: moves are not written until somebody listens again.
    bench.redis.hdel(bench.keys.config, "listen_until")
    work(bench)
    bench.run(calls.listen(bench.keys))
    reading = await source.start().opened()
    await reading.until(lambda r: r.resets())
    assert reading.resets() == ["not_listening"]
    await reading.drop()


@pytest.mark.parametrize("text", ["x", "1;q", "1;q=1", "1;q=1-x", "-1", "1;{}=1-1", "9" * 70_000])
async def test_a_position_that_is_none_is_refused(url: str, text: str) -> None:
    source = EventSource(f"{url}/events")
    source.last_id = text
    async for _ in source.read():
        pytest.fail("it was taken")
    assert source.status in (422, 400, 431)
    with pytest.raises(InvalidInput):
        Position.parse(text)


async def test_a_position_of_another_server_is_a_reset(
    redis_url: str, url: str, start: Start
) -> None:
    queue(redis_url)
    source = EventSource(f"{url}/events")
    source.last_id = str(int(time.time() * 1000) + 3_600_000)
    reading = await start(source)
    await reading.until(lambda r: r.resets())
    assert reading.resets() == ["unknown_position"]


async def test_a_queue_that_is_not_there_is_refused(redis_url: str, url: str) -> None:
    source = EventSource(f"{url}/events", queue="nowhere")
    async for _ in source.read():
        pytest.fail("it was taken")
    assert source.status == 404
    assert not Store.from_url(redis_url, Keys()).redis.exists("taskq:{nowhere}:config")


async def test_streams_end_when_the_process_stops(redis_url: str, start_api: Any) -> None:
    process = start_api("--redis-url", redis_url)
    bench = queue(redis_url)
    bench.add(one := ulid())
    readings = [EventSource(f"{process.url}/events").start() for _ in range(20)]
    readings.append(EventSource(f"{process.url}/jobs/q:{one}/events").start())
    for reading in readings:
        await reading.opened()
    assert await asyncio.to_thread(process.stop) == 0
    for reading in readings:
        await (
            reading.ended()
        )  # to its proper end: an answer that the end of the grace cuts off raises


async def test_streams_go_on_over_a_restart_of_redis(start_api: Any, tmp_path: Any) -> None:
    """What the server still knows after it is told, and the restart itself is."""
    with EmbeddedServer(data_dir=tmp_path / "data", persistent=True) as server:
        process = start_api("--redis-url", server.url)
        bench = queue(server.url)
        source = EventSource(f"{process.url}/events")
        reading = await source.start().opened()
        before = work(bench, 2)
        await reading.until(lambda r: len(r.states()) == 6)
        server.restart()
        after = await asyncio.to_thread(work, bench, 2)
        await reading.until(lambda r: len(r.states()) == 12 and r.resets(), 20)
        assert reading.resets() == ["restarted"]
        assert Counter(reading.states()) == lives(before + after)
        await reading.drop()


async def test_streams_go_on_over_a_server_that_has_lost_everything(start_api: Any) -> None:
    with EmbeddedServer(persistent=False) as server:
        process = start_api("--redis-url", server.url)
        bench = queue(server.url)
        reading = await EventSource(f"{process.url}/events", queue="q").start().opened()
        server.restart()
        await reading.until(lambda r: r.resets(), 20)
        await asyncio.to_thread(bench.store.know_queue, "q")
        await reading.until(lambda _: bench.redis.exists(bench.keys.events), 20)
        ids = await asyncio.to_thread(work, bench, 2)
        await reading.until(lambda r: len(r.states()) == 6, 20)
        assert Counter(reading.states()) == lives(ids)
        assert set(reading.resets()) <= {"restarted", "not_listening"}
        await reading.drop()


# --- one job --------------------------------------------------------------------------------------


async def test_one_job_is_told_to_its_end(redis_url: str, url: str) -> None:
    bench = queue(redis_url)
    bench.add(one := ulid(), ulid())
    source = EventSource(f"{url}/jobs/q:{one}/events")
    reading = await source.start().opened()
    await reading.until(lambda r: r.told)
    run, other = bench.take(most=2)
    progress = [(run.ulid, run.fence, b'{"done":0.5}'), (other.ulid, other.fence, b"{}")]
    bench.run(calls.progress(bench.keys, "w1", progress))
    await reading.until(lambda r: any(t.event == "progress" for t in r.told))
    for number in (1, 2):
        line = b'{"line":"line %d"}' % number
        bench.run(calls.log(bench.keys, "w1", [(run.ulid, run.fence, number, line)]))
        await reading.until(lambda r, n=number: sum(t.event == "log" for t in r.told) == n)
    bench.finish(other, run)
    await reading.ended()
    assert [told.event for told in reading.told] == [
        "job", "state", "progress", "log", "log", "state"
    ]  # fmt: skip
    job, running, step, first, second, end = (told.data for told in reading.told)
    assert job["state"] == "queued"
    assert not job.keys() & {"payload", "result"}
    assert (running["id"], running["state"]) == (f"q:{one}", "running")
    assert step["progress"] == {"done": 0.5}
    assert [line["line"] for line in first["lines"]] == ["line 1"]
    assert [line["line"] for line in second["lines"]] == ["line 2"]
    assert end["state"] == "succeeded"
    # A browser comes back by itself: it is told not to.
    await source.start().ended()
    assert source.status == 204


async def test_the_end_that_was_missed_is_told(redis_url: str, url: str) -> None:
    bench = queue(redis_url)
    bench.add(one := ulid())
    source = EventSource(f"{url}/jobs/q:{one}/events")
    reading = await source.start().opened()
    await reading.until(lambda r: r.told)
    await reading.drop()
    bench.finish(*bench.take())
    reading = source.start()
    await reading.ended()
    assert reading.states() == [(f"q:{one}", "running"), (f"q:{one}", "succeeded")]


async def test_a_job_that_is_not_there_is_refused(url: str) -> None:
    source = EventSource(f"{url}/jobs/q:{ulid()}/events")
    await source.start().ended()
    assert source.status == 404


def test_lines_that_came_since() -> None:
    assert new_lines([], [1, 2]) == [1, 2]
    assert new_lines([1, 2], [1, 2]) == []
    assert new_lines([1, 2, 3], [2, 3, 4]) == [4]
    assert new_lines([1, 2], [5, 6]) == [5, 6]


# --- the hub --------------------------------------------------------------------------------------


@pytest.fixture
async def hub(redis_url: str) -> AsyncIterator[Hub]:
    store = AsyncStore.from_url(redis_url, Keys(), retry_seconds=0)
    hub = Hub(EventReader(store))
    yield hub
    await hub.close()
    await store.close()


async def joined(hub: Hub, wanted: Filter) -> Any:
    await hub.prepare(wanted)
    return hub.join(wanted)


async def test_a_client_that_does_not_keep_up_loses_its_buffer_and_is_told(
    redis_url: str, hub: Hub
) -> None:
    bench = queue(redis_url)
    everything = Filter(frozenset({"q"}))
    slow = await joined(hub, everything)
    fast = await joined(hub, everything)
    got: list[Any] = []
    n = MAX_PENDING // 2

    async def reads() -> None:
        while len(got) < 3 * n:
            got.extend(await fast.take(10))

    reading = asyncio.create_task(reads())
    await asyncio.to_thread(lambda: [work(bench) for _ in range(n)])
    async with asyncio.timeout(20):
        await reading
    assert {message.event for message in got} == set(LIFE)
    left = await slow.take(1)
    assert left[0].event == "reset"
    assert b'"reason":"slow"' in left[0].data
    assert len(left) <= MAX_PENDING
    assert slow.resets == 1


async def test_clients_that_go_leave_nothing(redis_url: str, hub: Hub) -> None:
    queue(redis_url)
    for wanted in (Filter(), Filter(frozenset({"q"})), Filter(frozenset({"q"}), None, "x")):
        client = await joined(hub, wanted)
        assert hub.streams == 1
        hub.leave(client)
    assert hub.streams == 0
    assert not hub._groups
    assert not hub._of_job


async def test_a_client_that_takes_nothing_at_all_is_dropped(redis_url: str, hub: Hub) -> None:
    """Its socket is full: nobody waits for it for longer than a minute."""
    queue(redis_url)
    await hub.prepare(Filter())
    stream = EventStream(hub, Filter(), None)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskq_api.streams.STALL_SECONDS", 0.1)
        async with asyncio.timeout(10):
            await stream({"type": "http"}, receive, send)
    assert hub.streams == 0


async def test_a_stream_whose_client_has_gone_is_freed(redis_url: str, url: str) -> None:
    queue(redis_url)

    async def streams() -> float:
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"{url}/metrics")).text
        (line,) = [x for x in page.splitlines() if x.startswith("taskq_api_event_streams ")]
        return float(line.split()[1])

    readings = [await EventSource(f"{url}/events").start().opened() for _ in range(5)]
    async with asyncio.timeout(10):
        while await streams() != 5:
            await asyncio.sleep(0.1)
        for reading in readings:
            await reading.drop()
        while await streams() != 0:
            await asyncio.sleep(0.1)


async def test_streams_say_where_they_are_when_nothing_happens(redis_url: str, hub: Hub) -> None:
    queue(redis_url)
    await hub.prepare(Filter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskq_api.streams.HEARTBEAT_SECONDS", 0.1)
        chunks = EventStream(hub, Filter(), None).chunks(hub.join(Filter()))
        first = await anext(chunks)
        beats = [await anext(chunks) for _ in range(30)]
        await chunks.aclose()
    assert first.startswith(b"retry: 2000\n: \nid: ")
    assert all(beat.startswith(b": \nid: ") for beat in beats)
    assert beats[-1] > beats[0], "a time that goes on"


async def test_a_bug_while_reading_does_not_end_the_reading(
    redis_url: str, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    bench = queue(redis_url)
    client = await joined(hub, Filter())
    read, failed = hub.reader.read, asyncio.Event()

    async def broken(*_: Any) -> Any:
        failed.set()
        raise KeyError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub.reader, "read", broken)
        await asyncio.wait_for(failed.wait(), 10)
    assert hub.reader.read == read
    work(bench)
    got: list[Any] = []
    async with asyncio.timeout(10):
        while len(got) < 3:
            got += await client.take(1)
    assert "a bug" in caplog.text


async def test_listening_is_renewed_while_somebody_listens(redis_url: str, hub: Hub) -> None:
    bench = queue(redis_url)

    def until() -> int:
        return int(bench.redis.hget(bench.keys.config, "listen_until") or 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskq_api.hub.RENEW_SECONDS", 0.1)
        patch.setattr("taskq_api.hub.LOOK_SECONDS", 0.05)
        await joined(hub, Filter())
        first = until()
        async with asyncio.timeout(10):
            while until() < first + 500:
                await asyncio.sleep(0.05)
    marks = [f for _, f in bench.redis.xrange(bench.keys.events) if f[b"event"] == b"listening"]
    assert len(marks) == 1


async def test_there_is_a_bound_on_streams(redis_url: str, hub: Hub) -> None:
    queue(redis_url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskq_api.hub.MAX_STREAMS", 1)
        await joined(hub, Filter())
        with pytest.raises(Refused):
            await hub.prepare(Filter())


async def test_positions_stay_short(redis_url: str, hub: Hub) -> None:
    """However many queues there are: those of the last second are named, the rest is a time."""
    benches = [queue(redis_url, f"q{i}") for i in range(100)]
    await joined(hub, Filter())
    await asyncio.to_thread(lambda: [work(bench) for bench in benches])
    async with asyncio.timeout(10):
        while hub.position.further:
            await asyncio.sleep(0.05)
    assert len(str(hub.position)) == 13


def test_positions_are_read_as_they_were_written() -> None:
    at = Position(1_750_000_000_000, {"a": (1_750_000_000_001, 3), "b-1.x": (5, MAX_SEQ)})
    assert Position.parse(str(at)) == at
    assert at.after("a") == (1_750_000_000_001, 3)
    assert at.after("c") == (1_749_999_999_999, MAX_SEQ)


def test_entries_of_other_versions_are_read() -> None:
    old = parse_entry("q", b"1-1", {b"event": b"queued", b"count": b"3", b"jobs": b"a b"})
    assert old == Event("q", (1, 1), "queued", (("a", ""), ("b", "")), hidden=1)
    torn = parse_entry("q", b"1-2", {b"jobs": b"a b c", b"types": b"x y", b"count": b"?"})
    assert [job_type for _, job_type in torn.jobs] == ["", "", ""]


async def test_a_stream_waits_for_no_longer_than_its_own_time(
    api: Any, monkeypatch: pytest.MonkeyPatch, problem: Any
) -> None:
    """However many are before it while Redis does not answer."""
    monkeypatch.setattr("taskq_api.hub.PREPARE_SECONDS", 0.3)

    async def silent() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(api.app.state.services.hub, "_begin", silent)
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(api.http.get("/events") for _ in range(30)))
    for answer in answers:
        assert problem(answer, 503, "redis_unavailable")["reason"] == "timeout"
