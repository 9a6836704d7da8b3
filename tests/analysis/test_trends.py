"""Trends within a row of values, held against the definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.analysis.steps import Array
from gpubalance.analysis.trends import trends_of

repeatable = settings(deadline=None, derandomize=True)


def trend_of(values: Array, alpha: float, smallest: float) -> float | None:
    return trends_of(values[None], alpha, smallest)[0]


def kendall_s(values: Sequence[float]) -> int:
    pairs = [(values[i], values[j]) for i in range(len(values)) for j in range(i + 1, len(values))]
    return sum((later > earlier) - (later < earlier) for earlier, later in pairs)


def is_trend(values: Sequence[float], alpha: float) -> bool:
    n = len(values)
    z = (abs(kendall_s(values)) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return math.erfc(z / math.sqrt(2)) <= alpha


@repeatable
@given(st.lists(st.integers(0, 12).map(float), min_size=8, max_size=24), st.sampled_from([0.2, 0.05, 0.005]))
def test_a_trend_is_what_mann_and_kendall_call_significant(values: list[float], alpha: float) -> None:
    quarter = len(values) // 4
    change = float(np.median(values[-quarter:]) - np.median(values[:quarter]))
    expected = change if is_trend(values, alpha) else None
    assert trend_of(np.array(values), alpha, 0.0) == expected


@pytest.mark.parametrize(("values", "change"), [([1, 2, 3, 4, 8, 7, 6, 5], None), ([1, 2, 3, 4, 8, 6, 7, 5], 4.5)])
def test_of_eight_values_two_more_pairs_in_order_make_a_trend(values: list[float], change: float | None) -> None:
    """S is 16 and 18, sigma 8.08: z is 1.86 and 2.10, and 1.96 is needed for five percent."""
    assert trend_of(np.array(values, dtype=float), 0.05, 0.0) == change


def test_a_rising_ratio_is_reported_with_its_rise() -> None:
    """From 1.00 to 1.23 in 24 blocks: the first quarter has the median 1.025, the last 1.205."""
    assert trend_of(1 + np.arange(24) / 100, 0.005, 0.025) == pytest.approx(0.18)


def test_a_falling_ratio_is_reported_with_its_fall() -> None:
    assert trend_of(1.23 - np.arange(24) / 100, 0.005, 0.025) == pytest.approx(-0.18)


def test_a_steady_rise_that_does_not_matter_is_no_trend() -> None:
    assert trend_of(1 + np.arange(24) / 10_000, 0.005, 0.025) is None


def test_fewer_than_eight_blocks_have_no_trend() -> None:
    assert trend_of(np.arange(7.0), 0.2, 0.0) is None
    assert trend_of(np.arange(8.0), 0.2, 0.0) is not None


def test_noise_is_hardly_ever_a_trend() -> None:
    generator = np.random.default_rng(8)
    found = trends_of(generator.normal(1, 0.1, (1000, 24)), 0.01, 0.0)
    assert 0 < sum(trend is not None for trend in found) <= 23  # 23 or fewer of 1000 at 1 %: probability 0.9999


def test_each_row_is_judged_by_itself() -> None:
    rows = np.random.default_rng(1).normal(0, 1, (40, 12)) + np.linspace(0, 2, 40)[:, None] * np.arange(12) / 12
    assert trends_of(rows, 0.2, 0.1) == [trend_of(row, 0.2, 0.1) for row in rows]
