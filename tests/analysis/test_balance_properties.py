"""What the score promises for any times whatever."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpubalance.analysis import balance
from gpubalance.analysis.balance import Balance, balance_of
from gpubalance.analysis.steps import Array, Steps

repeatable = settings(deadline=None, derandomize=True)

TIMES = st.floats(10, 1000)
EXPOSED = st.floats(0, 500)


@pytest.fixture(autouse=True, scope="module")
def few_draws() -> Iterator[None]:
    """The interval is not looked at here, and resampling takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balance, "BOOTSTRAP_DRAWS", 2)
        yield


@st.composite
def jittery(draw: st.DrawFn, most_ranks: int = 9) -> Array:
    """(ranks, blocks, steps) of any times."""
    shape = (draw(st.integers(1, most_ranks)), draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    return draw(hnp.arrays(float, shape, elements=TIMES, fill=st.nothing()))


def score(compute: Array, exposed: float) -> Balance:
    """The score when real training takes `exposed` more than the mean slowest compute, no step being odd for all."""
    ones = np.ones_like(compute)
    first = balance_of(Steps(compute, ones, ones, np.ones(len(compute)), None))
    return balance_of(Steps(compute, ones, ones, np.ones(len(compute)), first.slowest_ms + exposed))


def constant(times: list[float], exposed: float) -> Balance:
    return score(np.tile(np.array(times)[:, None, None], (1, 2, 3)), exposed)


@repeatable
@given(jittery(), EXPOSED)
def test_the_score_lies_above_0_and_at_most_at_100(compute: Array, exposed: float) -> None:
    assert 0 < score(compute, exposed).score <= 100


@repeatable
@given(jittery(), EXPOSED, st.integers(-8, 8))
def test_scaling_all_times_changes_no_score(compute: Array, exposed: float, power: int) -> None:
    """By powers of two, which floating point scales exactly."""
    factor = 2.0**power
    before, after = score(compute, exposed), score(compute * factor, exposed * factor)
    assert (after.score, after.persistent, after.transient, after.common_mode) == pytest.approx(
        (before.score, before.persistent, before.transient, before.common_mode), rel=1e-9
    )
    assert after.lost_ms == pytest.approx(before.lost_ms * factor, rel=1e-9, abs=1e-9 * factor)


def test_scaling_by_any_factor_changes_no_score() -> None:
    compute = np.random.default_rng(4).uniform(90, 130, (5, 6, 7))
    assert score(compute * 3.7, 74.0).score == pytest.approx(score(compute, 20.0).score)


@repeatable
@given(jittery(), EXPOSED, st.randoms(use_true_random=False))
def test_exchanging_ranks_exchanges_blame_and_changes_no_score(compute: Array, exposed: float, random) -> None:
    order = list(range(len(compute)))
    random.shuffle(order)
    before, after = score(compute, exposed), score(compute[order], exposed)
    assert after.score == pytest.approx(before.score, rel=1e-9)
    assert after.blame_ms == pytest.approx([before.blame_ms[rank] for rank in order], rel=1e-9, abs=1e-9)


@repeatable
@given(jittery(most_ranks=1), EXPOSED)
def test_one_rank_scores_exactly_100(compute: Array, exposed: float) -> None:
    assert score(compute, exposed).score == 100.0


@repeatable
@given(st.integers(2, 40), st.floats(0.01, 3), st.floats(0, 3), TIMES)
def test_one_straggler_costs_the_same_among_any_number_of_ranks(
    ranks: int, excess: float, exposed: float, compute_ms: float
) -> None:
    times = [compute_ms] * (ranks - 1) + [compute_ms * (1 + excess)]
    expected = 100 * (1 + exposed) / (1 + excess + exposed)
    assert constant(times, exposed * compute_ms).score == pytest.approx(expected)


@repeatable
@given(st.lists(TIMES, min_size=2, max_size=12), EXPOSED, st.floats(1.01, 3))
def test_slowing_the_slowest_rank_lowers_the_score(times: list[float], exposed: float, factor: float) -> None:
    slowest = times.index(max(times))
    slower = [*times[:slowest], times[slowest] * factor, *times[slowest + 1 :]]
    assert constant(slower, exposed).score < constant(times, exposed).score


@repeatable
@given(st.integers(0, 4), st.floats(100.5, 199.5), st.floats(100.5, 199.5), EXPOSED)
def test_a_rank_between_reference_and_slowest_leaves_the_persistent_factor(
    others: int, before: float, after: float, exposed: float
) -> None:
    fixed = [100.0, 100.0, *[150.0] * others, 200.0]
    assert constant([*fixed, before], exposed).persistent == constant([*fixed, after], exposed).persistent


@repeatable
@given(jittery(), EXPOSED)
def test_blame_sums_to_the_lost_time(compute: Array, exposed: float) -> None:
    seen = score(compute, exposed)
    assert sum(seen.blame_ms) == pytest.approx(seen.slowest_ms - seen.reference_ms, rel=1e-9, abs=1e-9)
    assert seen.lost_ms == pytest.approx(seen.slowest_ms - seen.reference_ms)


@repeatable
@given(jittery(), EXPOSED)
def test_the_factors_multiply_to_the_score(compute: Array, exposed: float) -> None:
    seen = score(compute, exposed)
    assert min(100.0, seen.persistent * seen.transient / 100) == pytest.approx(seen.score)


@repeatable
@given(jittery(), EXPOSED)
def test_the_score_is_the_share_of_the_real_step_that_is_not_lost(compute: Array, exposed: float) -> None:
    seen = score(compute, exposed)
    expected = 100 * (1 - (seen.slowest_ms - seen.reference_ms) / (seen.slowest_ms + exposed))
    assert seen.score == pytest.approx(min(100.0, expected))


@repeatable
@given(hnp.arrays(float, (6, 2, 5), elements=st.floats(100, 104), fill=st.nothing()))
def test_the_slowest_compute_is_the_mean_over_steps_of_the_slowest_rank(compute: Array) -> None:
    """Four percent of jitter is never common to all: M is then computed from the times as they are."""
    expected = sum(max(compute[:, block, step]) for block in range(2) for step in range(5)) / 10
    assert score(compute, 0.0).slowest_ms == pytest.approx(expected)
