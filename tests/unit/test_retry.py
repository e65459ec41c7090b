"""The back-off: growth, jitter, and no overflow at any number of failures."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskq import Backoff
from taskq.errors import InvalidInput

MANY = [46, 47, 1023, 1024, 10**6]


@pytest.mark.parametrize("failures", MANY)
@pytest.mark.parametrize("factor", [2, 10])
@pytest.mark.parametrize("base", [0.001, 1.0, 1e9])
def test_it_is_capped_before_it_overflows(base: float, factor: float, failures: int) -> None:
    backoff = Backoff(base_seconds=base, factor=factor, cap_seconds=max(base, 3600), jitter=0)
    assert backoff.ceiling(failures) == backoff.cap_seconds
    assert backoff.delay_ms(failures) == backoff.cap_seconds * 1000


@pytest.mark.parametrize("failures", [1, *MANY])
def test_a_base_of_zero_is_always_at_once(failures: int) -> None:
    assert Backoff(base_seconds=0).delay_ms(failures) == 0
    assert Backoff(base_seconds=0, cap_seconds=0).delay_ms(failures) == 0


@pytest.mark.parametrize("failures", MANY)
def test_a_factor_of_one_is_constant(failures: int) -> None:
    assert Backoff(base_seconds=5, factor=1, jitter=0).delay_ms(failures) == 5000
    assert Backoff(base_seconds=5, factor=1.0000001, jitter=0).ceiling(failures) < 6


def test_it_grows_by_the_factor() -> None:
    backoff = Backoff(base_seconds=1, factor=2, cap_seconds=10, jitter=0)
    assert [backoff.delay_ms(n) for n in range(1, 7)] == [1000, 2000, 4000, 8000, 10000, 10000]


@pytest.mark.parametrize(
    "options",
    [
        {"base_seconds": 10, "cap_seconds": 5},
        {"base_seconds": -1},
        {"cap_seconds": -1},
        {"base_seconds": -2, "cap_seconds": -1},
        {"factor": 0.5},
        {"factor": 0},
        {"factor": -2},
        {"jitter": -0.1},
        {"jitter": 1.1},
        *(
            {name: value}
            for name in ("base_seconds", "factor", "cap_seconds", "jitter")
            for value in (float("nan"), float("inf"), float("-inf"), True, "1", None)
        ),
    ],
)
def test_wrong_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Backoff(**options)


class Fixed(random.Random):
    def __init__(self, draw: float) -> None:
        super().__init__()
        self._draw = draw

    def random(self) -> float:
        return self._draw


def test_jitter_draws_from_its_range() -> None:
    full = Backoff(base_seconds=10, jitter=1)
    half = Backoff(base_seconds=10, jitter=0.5)
    none = Backoff(base_seconds=10, jitter=0)
    almost_one = Fixed(1 - 2**-53)
    assert (full.delay_ms(1, Fixed(0)), full.delay_ms(1, almost_one)) == (10_000, 0)
    assert (half.delay_ms(1, Fixed(0)), half.delay_ms(1, almost_one)) == (10_000, 5_000)
    assert (none.delay_ms(1, Fixed(0)), none.delay_ms(1, almost_one)) == (10_000, 10_000)


def test_full_jitter_spreads_a_burst() -> None:
    rng = random.Random(1)
    delays = [Backoff(base_seconds=5).delay_ms(1, rng) for _ in range(5000)]
    buckets: dict[int, int] = {}
    for delay in delays:
        buckets[delay // 100] = buckets.get(delay // 100, 0) + 1
    assert max(buckets.values()) < 0.05 * len(delays)


def test_half_jitter_makes_each_delay_longer_than_the_one_before() -> None:
    backoff = Backoff(base_seconds=1, factor=2, jitter=0.5)
    rng = random.Random(2)
    for _ in range(200):
        delays = [backoff.delay_ms(n, rng) for n in range(1, 10)]
        assert delays == sorted(delays)


@given(
    base=st.floats(0, 1e12),
    factor=st.floats(1, 1e6),
    more=st.floats(0, 1e12),
    jitter=st.floats(0, 1),
    failures=st.integers(0, 10**9),
)
def test_it_stays_within_its_bounds(
    base: float, factor: float, more: float, jitter: float, failures: int
) -> None:
    backoff = Backoff(base, factor, base + more, jitter)
    assert 0 <= backoff.ceiling(failures) <= backoff.cap_seconds * (1 + 1e-9)
    assert backoff.ceiling(failures) <= backoff.ceiling(failures + 1) * (1 + 1e-9)
    low = backoff.ceiling(failures) * (1 - jitter) * 1000
    assert low - 1 - low * 1e-9 <= backoff.delay_ms(failures) <= backoff.cap_seconds * 1000 + 1
