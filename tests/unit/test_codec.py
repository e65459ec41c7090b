"""Strict JSON: what passes unchanged, what is refused, and what Python values become."""

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import math
import os
import pathlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from taskq import codec
from taskq.errors import InvalidInput, InvalidPayload, PayloadTooLarge


def nested(depth: int, brackets: str = "[]") -> str:
    opening = '{"a":' if brackets == "{}" else "["
    inner = '{"a":1}' if brackets == "{}" else "[]"
    return opening * (depth - 1) + inner + brackets[1] * (depth - 1)


class TestPasses:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "null"),
            (True, "true"),
            (1, "1"),
            (1.0, "1.0"),
            (2**63 - 1, "9223372036854775807"),
            (-(2**63), "-9223372036854775808"),
            (2**64, "18446744073709551616"),
            (9007199254740993, "9007199254740993"),
            (10**4000, "1" + "0" * 4000),
            ([], "[]"),
            ({}, "{}"),
            ({"a": [], "b": {}}, '{"a":[],"b":{}}'),
            ([[], {}], "[[],{}]"),
            (1e-7, "1e-07"),
            (-0.0, "-0.0"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            ("\x00", r'"\u0000"'),
            ("\u2028\u2029", '"\u2028\u2029"'),
            ("😀", '"😀"'),
            ("é\x7f", '"é\x7f"'),
            ('"\\/', '"\\"\\\\/"'),
            ("", '""'),
        ],
    )
    def test_text_and_value(self, value: Any, text: str) -> None:
        assert codec.dumps(value) == text.encode()
        back = codec.loads(text.encode())
        assert repr(back) == repr(value)
        assert type(back) is type(value)
        assert codec.loads(text) == value

    def test_minus_zero_keeps_its_sign(self) -> None:
        assert math.copysign(1, codec.loads(codec.dumps(-0.0))) == -1

    def test_order_of_keys_is_kept(self) -> None:
        assert codec.dumps({"b": 1, "a": 2}) == b'{"b":1,"a":2}'

    def test_a_pair_of_escapes_is_one_character(self) -> None:
        assert codec.loads(rb'"\ud83d\ude00"') == "😀"
        assert codec.loads(rb'"\\ud800"') == r"\ud800"

    @pytest.mark.parametrize("brackets", ["[]", "{}"])
    def test_depth_200(self, brackets: str) -> None:
        text = nested(200, brackets)
        assert codec.dumps(codec.loads(text)) == text.encode()

    def test_many_flat_brackets_are_no_depth(self) -> None:
        value = [[] for _ in range(1000)] + ["[" * 1000, '"[{' * 300, "\\" * 301 + "["]
        assert codec.loads(codec.dumps(value)) == value

    def test_large_but_within_the_limit(self) -> None:
        text = "x" * (codec.MAX_BYTES - 2)
        assert codec.loads(codec.dumps(text)) == text


class TestRefused:
    """F56: what not every reader of JSON takes is refused here, before anything is stored."""

    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            [math.nan],
            {"a": math.inf},
            "\ud800",
            {"\ud800": 1},
            ["ok", "\ud83d"],
            object(),
            {1, 2},
            b"bytes",
            datetime.datetime.now(datetime.UTC),
            (n for n in range(2)),
            {(1, 2): 3},
            pytest.param(10**5000, id="5,001 digits"),
        ],
    )
    def test_values(self, value: Any) -> None:
        with pytest.raises(InvalidPayload) as refused:
            codec.dumps(value, what="result")
        assert refused.value.field == "result"
        assert len(str(refused.value)) < 300

    @pytest.mark.parametrize(
        "text",
        [
            b"NaN",
            b"[Infinity]",
            b'{"a":-Infinity}',
            b"1e400",
            b"-1e400",
            rb'"\ud800"',
            rb'"\uDFFF"',
            rb'{"\ud800":1}',
            rb'"\ude00\ud83d"',
            b"",
            b" ",
            b"{",
            b"[1,]",
            b"{'a':1}",
            b"1 2",
            b"nul",
            b"01",
            b"+1",
            b".5",
            b'"\n"',
            b'"\xff"',
            b"\xef\xbb\xbf1",
            b'"\xed\xa0\x80"',
            b"1" * 5000,
            b"-" + b"1" * 5000,
        ],
    )
    def test_texts(self, text: bytes) -> None:
        with pytest.raises(InvalidPayload) as refused:
            codec.loads(text)
        assert refused.value.field == "payload"
        assert len(str(refused.value)) < 300

    def test_a_str_with_a_lone_surrogate(self) -> None:
        with pytest.raises(InvalidPayload, match="surrogate"):
            codec.loads('"\ud800"')

    @pytest.mark.parametrize("brackets", ["[]", "{}"])
    @pytest.mark.parametrize("depth", [201, 5_000, 100_000])
    def test_depth_201(self, brackets: str, depth: int) -> None:
        """F57: deeper than the limit is refused without recursion, however deep."""
        with pytest.raises(InvalidPayload, match="nested"):
            codec.loads(nested(depth, brackets))

    @pytest.mark.parametrize("depth", [201, 5_000, 100_000])
    def test_depth_201_of_a_value(self, depth: int) -> None:
        """F57: the same for a value, as a handler returns it."""
        value: Any = []
        for _ in range(depth - 1):
            value = [value]
        with pytest.raises(InvalidPayload, match="nested"):
            codec.dumps(value)

    def test_a_value_that_contains_itself(self) -> None:
        value: list[Any] = []
        value.append(value)
        with pytest.raises(InvalidPayload):
            codec.dumps(value)

    def test_size(self) -> None:
        """F58: one byte over the limit is refused."""
        with pytest.raises(PayloadTooLarge, match="12 bytes, the limit is 11"):
            codec.dumps("0123456789", max_bytes=11)
        with pytest.raises(PayloadTooLarge):
            codec.loads(b'"0123456789"', max_bytes=11)
        with pytest.raises(PayloadTooLarge):
            codec.dumps("é" * (codec.MAX_BYTES // 2))

    def test_the_size_of_a_str_is_that_of_its_bytes(self) -> None:
        with pytest.raises(PayloadTooLarge):
            codec.loads('"ééééé"', max_bytes=11)

    def test_time_does_not_explode(self) -> None:
        text = b'"' + b"[\\\\" * 250_000 + b'"'
        start = time.perf_counter()
        codec.loads(text)
        assert time.perf_counter() - start < 2


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_round_trip(value: Any) -> None:
    data = codec.dumps(value)
    assert repr(codec.loads(data)) == repr(value)
    assert codec.dumps(codec.loads(data)) == data
    assert json.loads(data) == value


@given(st.text(alphabet=st.characters(codec=None)) | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        value = codec.loads(text)
    except InvalidInput:
        return
    codec.loads(codec.dumps(value))


class Color(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    at: datetime.datetime | None = None


@dataclasses.dataclass
class Pair:
    left: decimal.Decimal
    right: Point


class TestPlain:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (datetime.datetime(2025, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2025-01-02T03:04:05Z"),
            (datetime.date(2025, 1, 2), "2025-01-02"),
            (datetime.time(3, 4), "03:04:00"),
            (datetime.timedelta(hours=1), "PT1H"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (decimal.Decimal("1.10"), "1.10"),
            (Color.RED, "red"),
            ({1}, [1]),
            (frozenset({1}), [1]),
            (ipaddress.ip_address("::1"), "::1"),
            (pathlib.PurePosixPath("a/b"), "a/b"),
            (Point(x=1), {"x": 1, "at": None}),
            (Pair(decimal.Decimal(1), Point(x=2)), {"left": "1", "right": {"x": 2, "at": None}}),
            (OrderedDict(a=1), {"a": 1}),
            ((1, 2), [1, 2]),
            ([{"a": Color.RED}], [{"a": "red"}]),
        ],
    )
    def test_becomes(self, value: Any, expected: Any) -> None:
        assert codec.loads(codec.dumps(value, default=codec.plain)) == expected

    @pytest.mark.parametrize(
        "make",
        [
            lambda: open(os.devnull),  # noqa: SIM115
            lambda: (n for n in range(3)),
            lambda: iter([1]),
            lambda: object(),
            lambda: range(3),
            lambda: Pair,
            lambda: print,
            lambda: b"\xff",
            lambda: {"a": object()},
            lambda: {object()},
            lambda: Point(x=1).model_construct(x=object()),
            lambda: {float("nan")},
            lambda: Pair(decimal.Decimal(1), "\ud800"),  # type: ignore[arg-type]
        ],
    )
    @pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
    def test_refuses(self, make: Callable[[], Any]) -> None:
        value = make()
        try:
            with pytest.raises(InvalidPayload):
                codec.dumps(value, default=codec.plain)
        finally:
            if hasattr(value, "close"):
                value.close()

    def test_a_dataclass_that_contains_itself(self) -> None:
        @dataclasses.dataclass
        class Loop:
            inner: Any = None

        loop = Loop()
        loop.inner = loop
        with pytest.raises(InvalidPayload):
            codec.dumps(loop, default=codec.plain)


def test_a_digest_tells_where_parts_end() -> None:
    assert codec.digest(b"ab", b"c") != codec.digest(b"a", b"bc")
    assert codec.digest(b"a") == codec.digest(b"a")
