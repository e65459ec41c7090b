"""Names, and ids that only go up, whoever asks for them."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskq import ids
from taskq.errors import InvalidInput
from taskq.ids import (
    UlidFactory,
    check_job_type,
    check_key,
    check_queue,
    deterministic_ulid,
    join_id,
    split_id,
)


def at(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: ms * 1_000_000)


class TestUlid:
    def test_they_only_go_up(self) -> None:
        ulid = UlidFactory()
        made = [ulid() for _ in range(20_000)]
        assert made == sorted(set(made))
        assert {len(one) for one in made} == {26}

    def test_within_one_millisecond(self, monkeypatch: pytest.MonkeyPatch) -> None:
        at(monkeypatch, 1_750_000_000_000)
        ulid = UlidFactory()
        made = [ulid() for _ in range(5000)]
        assert made == sorted(set(made))
        assert len({one[:10] for one in made}) == 1

    def test_when_the_clock_goes_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ulid = UlidFactory()
        at(monkeypatch, 1_750_000_000_000)
        first = ulid()
        at(monkeypatch, 1_740_000_000_000)
        assert ulid() > first

    def test_the_time_is_that_of_the_specification(self, monkeypatch: pytest.MonkeyPatch) -> None:
        at(monkeypatch, 1_469_918_176_385)
        assert UlidFactory()().startswith("01ARYZ6S41")

    def test_over_threads(self) -> None:
        ulid = UlidFactory()
        lists: list[list[str]] = [[] for _ in range(8)]

        def make(out: list[str]) -> None:
            out.extend(ulid() for _ in range(2000))

        threads = [threading.Thread(target=make, args=(out,)) for out in lists]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(out == sorted(out) for out in lists)
        assert len({one for out in lists for one in out}) == 16_000

    def test_a_forked_child_makes_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        at(monkeypatch, 1_750_000_000_000)
        ulid = UlidFactory()
        before = ulid()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, "".join(ulid() for _ in range(10)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        childs = [text[i : i + 26] for i in range(0, len(text), 26)]
        mine = [ulid() for _ in range(10)]
        assert len(childs) == 10
        assert len({before, *childs, *mine}) == 21

    def test_a_fork_while_another_thread_makes_one(self) -> None:
        """The lock of the parent must not stay locked in the child for ever."""
        ulid = UlidFactory()
        over = threading.Event()

        def make() -> None:
            while not over.is_set():
                ulid()

        thread = threading.Thread(target=make)
        thread.start()
        try:
            for _ in range(30):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(5)
                    ulid()
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            over.set()
            thread.join()

    def test_one_of_a_key_is_always_the_same(self) -> None:
        one = deterministic_ulid("owner", "mail", "key")
        assert one == deterministic_ulid("owner", "mail", "key")
        assert one != deterministic_ulid("owner", "mail", "key2")
        assert one != deterministic_ulid("owner2", "mail", "key")
        assert split_id(join_id("mail", one)) == ("mail", one)


class TestJobIds:
    def test_both_ways(self) -> None:
        ulid = UlidFactory()()
        assert split_id(join_id("mail.eu-1_x", ulid)) == ("mail.eu-1_x", ulid)
        assert split_id(f"mail:{ulid.lower()}") == ("mail", ulid)

    @pytest.mark.parametrize(
        "job_id",
        [
            "",
            "mail",
            "mail:",
            ":01ARYZ6S410000000000000000",
            "mail:01ARYZ6S41000000000000000",
            "mail:01ARYZ6S4100000000000000000",
            "mail:81ARYZ6S410000000000000000",
            "mail:01ARYZ6S41000000000000000U",
            "mail:01ARYZ6S41000000000000000\u0131",
            "mail:01ARYZ6S410000000000000000\n",
            "a:b:01ARYZ6S410000000000000000",
            "{mail}:01ARYZ6S410000000000000000",
            "mail:\ud800",
            None,
            7,
            b"mail:01ARYZ6S410000000000000000",
        ],
    )
    def test_what_is_none(self, job_id: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            split_id(job_id)
        assert refused.value.field == "id"
        str(refused.value).encode()

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        try:
            queue, ulid = split_id(text)
        except InvalidInput:
            return
        assert split_id(join_id(queue, ulid)) == (queue, ulid)


class TestNames:
    @pytest.mark.parametrize("name", ["a", "0", "mail.eu-1_x", "A" * 64])
    def test_queues(self, name: str) -> None:
        assert check_queue(name) == name

    @pytest.mark.parametrize("name", ["_private", "mail.send", "a-b", "x" * 128])
    def test_job_types(self, name: str) -> None:
        assert check_job_type(name) == name

    @pytest.mark.parametrize("key", ["a", "order 7: ä 😀", "x" * 200])
    def test_keys(self, key: str) -> None:
        assert check_key(key, "unique_key") == key

    @pytest.mark.parametrize("check", [check_queue, check_job_type])
    @pytest.mark.parametrize(
        "name",
        [
            "",
            " ",
            ".a",
            "-a",
            "a b",
            "a{b}",
            "a:b",
            "a\n",
            "a\x00",
            "ä",
            "٣",
            "x" * 129,
            None,
            1,
            b"a",
        ],
    )
    def test_bad_names(self, check: Callable[[object], str], name: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            check(name)
        assert refused.value.field in ("queue", "job_type")

    @pytest.mark.parametrize("key", ["", "a{b", "a}b", "\n", "\x7f", "\ud800", "x" * 201, None, 1])
    def test_bad_keys(self, key: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            check_key(key, "unique_key")
        assert refused.value.field == "unique_key"
        str(refused.value).encode()


@given(st.integers(0, (1 << 128) - 1))
def test_an_id_is_the_number_in_base_32(value: int) -> None:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    text = "".join(digits[value >> shift & 31] for shift in range(125, -1, -5))
    assert ids._encode(value) == text
