"""Exact bounds against values that others computed, and against the definition."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.analysis.exact import at_most, lower_bound, upper_bound

KNOWN = [
    # failures, trials, confidence, upper bound: R's binom.test(alternative = "less") and 1 - 0.05^(1/n) for none
    (0, 300, 0.95, 0.0099360),
    (0, 1, 0.95, 0.95),
    (0, 10, 0.95, 0.2588656),
    (1, 10, 0.95, 0.3941633),
    (5, 10, 0.95, 0.7775589),
    (1, 20, 0.975, 0.2487328),
    (3, 100, 0.975, 0.0851761),
]


@pytest.mark.parametrize(("failures", "trials", "confidence", "bound"), KNOWN)
def test_known_bounds(failures: int, trials: int, confidence: float, bound: float) -> None:
    assert upper_bound(failures, trials, confidence) == pytest.approx(bound, abs=1e-6)


def test_nothing_tried_and_all_failed_leave_everything_possible() -> None:
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(7, 7) == 1.0
    assert lower_bound(0, 0) == 0.0
    assert lower_bound(7, 7) == pytest.approx(0.05 ** (1 / 7))


@pytest.mark.parametrize(("failures", "trials"), [(-1, 3), (4, 3)])
def test_no_share_is_refused(failures: int, trials: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        upper_bound(failures, trials)


def test_thousands_of_trials_do_not_overflow() -> None:
    assert upper_bound(0, 30_000) == pytest.approx(1 - 0.05 ** (1 / 30_000), rel=1e-6)
    assert 0.5 < upper_bound(2500, 5000) < 0.52


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_at_the_bound_so_few_failures_have_the_probability_that_is_left(counts: tuple[int, int]) -> None:
    failures, trials = counts
    bound = upper_bound(failures, trials)
    tail = sum(comb(trials, k) * bound**k * (1 - bound) ** (trials - k) for k in range(failures + 1))
    assert tail == pytest.approx(0.05, abs=1e-6)
    assert failures / trials < bound <= 1


@given(st.integers(0, 40), st.floats(0, 1))
def test_the_tail_is_that_of_the_binomial_distribution(count: int, share: float) -> None:
    expected = sum(comb(40, k) * share**k * (1 - share) ** (40 - k) for k in range(count + 1))
    assert at_most(count, 40, share) == pytest.approx(expected, abs=1e-9)
