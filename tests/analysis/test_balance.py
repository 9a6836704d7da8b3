"""The balance score on cases whose right answer is known: tables, hand calculation, simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.analysis.balance import Balance, balance_of, blame, reference_of
from gpubalance.analysis.common_mode import remove_common_mode, robust_sigma
from gpubalance.analysis.steps import Array, Steps, arrays_of
from gpubalance.testing.runs import make_attempt, steady

repeatable = settings(deadline=None, derandomize=True)

BLOCKS, STEPS = 24, 20


def score(compute: Array, exposed_ms: float = 20.0) -> Balance:
    return balance_of(arrays_of(make_attempt(compute, transfer_ms=exposed_ms)))


def even(ranks: int = 8, compute_ms: float = 100.0, steps: int = STEPS) -> Array:
    return steady([compute_ms] * ranks, blocks=BLOCKS, steps=steps)


def with_slow(slow: Sequence[int], factor: float, ranks: int = 8) -> Array:
    compute = even(ranks)
    compute[list(slow)] *= factor
    return compute


def slow_in(steps: slice, factor: float, ranks: slice = slice(3, 4)) -> Array:
    """Eight ranks; these ranks are slow in these steps of every block."""
    compute = even()
    compute[ranks, :, steps] *= factor
    return compute


def slow_at_random(steps: int = 80) -> Array:
    compute = even(steps=steps)
    who = np.random.default_rng(1).integers(0, 8, size=(1, BLOCKS, steps))
    np.put_along_axis(compute, who, 120.0, axis=0)
    return compute


WORKED = {
    "eight equal": (even, 20.0, (100.00, 100.00, 100.00, 1.000, 1.000)),
    "one of eight +20 %": (lambda: with_slow([3], 1.2), 20.0, (85.71, 85.71, 100.00, 0.854, 1.000)),
    "one of eight +20 %, all hidden": (lambda: with_slow([3], 1.2), 0.0, (83.33, 83.33, 100.00, 0.854, 1.000)),
    "one of 64 +20 %": (lambda: with_slow([3], 1.2, 64), 20.0, (85.71, 85.71, 100.00, 0.836, 1.000)),
    "a socket of four +20 %": (lambda: with_slow([4, 5, 6, 7], 1.2), 20.0, (85.71, 85.71, 100.00, 0.917, 1.000)),
    "rank 3 +100 % every 10th step": (lambda: slow_in(slice(0, None, 10), 2), 20.0, (92.31, 100.0, 92.31, 0.9205, 1.0)),
    "rank 3 +20 % in 60 % of steps": (lambda: slow_in(slice(0, 12), 1.2), 20.0, (90.91, 85.71, 106.06, 0.906, 1.000)),
    "one 20 % faster": (lambda: with_slow([3], 0.8), 20.0, (100.00, 100.00, 100.00, 0.975, 1.000)),
    "all +20 %": (lambda: even() * 1.2, 20.0, (100.00, 100.00, 100.00, 1.000, 1.000)),
    "one of two +20 %": (lambda: with_slow([1], 1.2, 2), 20.0, (85.71, 85.71, 100.00, 0.917, 1.000)),
    "one rank": (lambda: even(1), 20.0, (100.00, 100.00, 100.00, 1.000, 1.000)),
    "all +100 % every 10th step": (
        lambda: slow_in(slice(0, None, 10), 2, slice(None)),
        20.0,
        (100, 100, 100, 1.0, 1.0),
    ),
}


@pytest.mark.parametrize(("make", "exposed_ms", "expected"), WORKED.values(), ids=WORKED.keys())
def test_worked_cases_give_the_numbers_of_the_table(
    make: Callable[[], Array], exposed_ms: float, expected: tuple[float, ...]
) -> None:
    balance = score(make(), exposed_ms)
    assert (balance.score, balance.persistent, balance.transient) == pytest.approx(expected[:3], abs=0.005)
    assert (balance.pop_load_balance, balance.pop_serialization) == pytest.approx(expected[3:], abs=0.0005)


def test_slowness_on_a_random_rank_each_step_is_transient_and_costs_as_much_as_a_steady_one() -> None:
    balance = score(slow_at_random())
    assert balance.score == pytest.approx(85.71, abs=0.005)
    assert balance.persistent == pytest.approx(100.0)
    assert balance.transient == pytest.approx(85.71, abs=0.005)
    assert balance.pop_load_balance == pytest.approx(0.997, abs=0.003)
    assert balance.pop_serialization == pytest.approx(0.857, abs=0.003)


@pytest.mark.parametrize(
    ("variation", "expected"), [(0.002, 99.8), (0.005, 99.4), (0.01, 98.8), (0.02, 97.6), (0.05, 94.2)]
)
def test_independent_jitter_costs_what_the_slowest_of_eight_costs(variation: float, expected: float) -> None:
    balance = score(steady([100.0] * 8, steps=100, noise=variation, seed=7))
    assert balance.score == pytest.approx(expected, abs=0.2)
    assert balance.persistent == pytest.approx(100.0, abs=0.5)
    assert balance.pop_load_balance == pytest.approx(1.0, abs=0.005)


def test_steps_that_are_slow_for_all_ranks_are_reported_as_common_mode() -> None:
    """One step in ten takes twice as long: 100 / 110 of the time is left."""
    balance = score(slow_in(slice(0, None, 10), 2, slice(None)))
    assert balance.common_mode == pytest.approx(100 * 100 / 110)


def test_the_rate_that_the_score_promises_is_the_true_one() -> None:
    """A step of 100 + 20 ms that takes 120 + 20 ms runs at 120 / 140 of its rate."""
    balance = score(with_slow([0], 1.2))
    assert balance.score / 100 == pytest.approx(120 / 140)
    assert (balance.lost_ms, balance.step_ms) == pytest.approx((20.0, 140.0))


def test_slowing_the_others_down_to_the_straggler_returns_the_score_to_100() -> None:
    scores = [score(with_slow(range(slow), 1.2)).score for slow in range(9)]
    assert scores == pytest.approx([100, *[100 * 120 / 140] * 6, 100, 100])


@pytest.mark.parametrize(
    ("ranks", "place"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (8, 2), (9, 3), (12, 3), (13, 4), (64, 16)]
)
def test_the_reference_is_the_kth_fastest(ranks: int, place: int) -> None:
    medians = np.random.default_rng(0).permutation(np.arange(1.0, ranks + 1))
    assert reference_of(medians) == place


def test_without_an_overlapped_run_nothing_counts_as_exposed() -> None:
    attempt = make_attempt(with_slow([3], 1.2))
    ranks = [rank.model_copy(update={"overlapped_step_ms": []}) for rank in attempt.ranks]
    balance = balance_of(arrays_of(attempt.model_copy(update={"ranks": ranks})))
    assert balance.exposed_ms is None
    assert balance.score == pytest.approx(100 * 100 / 120)


def test_an_overlapped_step_below_the_slowest_compute_exposes_nothing() -> None:
    balance = balance_of(arrays_of(make_attempt(with_slow([3], 1.2), overlapped_ms=110.0)))
    assert balance.exposed_ms == 0.0
    assert balance.step_ms == pytest.approx(120.0)
    assert balance.score == pytest.approx(100 * 100 / 120)


@pytest.mark.parametrize(("transfer_ms", "bound"), [(49.0, False), (51.0, True)])
def test_transfer_above_half_of_the_compute_is_communication_bound(transfer_ms: float, bound: bool) -> None:
    assert score(even(), transfer_ms).communication_bound is bound


def test_ranks_whose_mean_is_faster_than_their_median_lose_less_than_nothing_and_score_100() -> None:
    """Two steps of three take 100 ms and one takes 10: the mean of 70 is 30 below the reference."""
    balance = score(np.tile([100.0, 100.0, 10.0], (2, 4, 1)))
    assert balance.score == balance.high == 100.0
    assert balance.lost_ms == pytest.approx(-30.0)
    assert balance.blame_ms == pytest.approx((-15.0, -15.0))


def test_one_rank_with_jitter_loses_nothing_and_is_to_blame_for_nothing() -> None:
    balance = score(steady([100.0], noise=0.05))
    assert (balance.score, balance.low, balance.high) == (100.0, 100.0, 100.0)
    assert (balance.persistent, balance.transient, balance.lost_ms) == pytest.approx((100.0, 100.0, 0.0))
    assert balance.blame_ms == pytest.approx((0.0,))


# Common mode


def common(compute: Array) -> tuple[Array, float]:
    return remove_common_mode(compute, np.median(compute.reshape(len(compute), -1), axis=1))


def one_odd_step(slow: Sequence[int], factor: float, ranks: int = 8) -> Array:
    """(ranks, 1, 10): in the first step these ranks take longer."""
    compute = steady([100.0] * ranks, blocks=1, steps=10)
    compute[list(slow), 0, 0] *= factor
    return compute


def test_a_step_that_is_slow_for_half_of_the_ranks_is_not_common() -> None:
    compute = one_odd_step(range(4), 1.5)
    ordinary, left = common(compute)
    assert np.array_equal(ordinary, compute)
    assert left == 1.0


def test_a_step_that_is_slow_for_more_than_half_is_divided_by_the_lower_median() -> None:
    ordinary, left = common(one_odd_step(range(5), 1.5))
    assert ordinary[:, 0, 0] == pytest.approx([100.0] * 5 + [100 / 1.5] * 3)
    assert left == pytest.approx(1000 / 1050)


@pytest.mark.parametrize(("slow", "counts"), [((0,), False), ((0, 1), True), ((0, 1, 2), True)])
def test_of_three_ranks_two_make_slowness_common(slow: tuple[int, ...], counts: bool) -> None:
    assert (common(one_odd_step(slow, 1.5, ranks=3))[1] < 1) is counts


def test_what_a_rank_loses_beyond_the_common_slowness_stays_its_own() -> None:
    compute = one_odd_step(range(8), 1.5)
    compute[2, 0, 0] = 180.0
    ordinary, _ = common(compute)
    assert ordinary[2, 0, 0] == pytest.approx(180 / 1.5)


@pytest.mark.parametrize(("factor", "counts"), [(1.049, False), (1.051, True)])
def test_common_slowness_of_five_percent_or_less_does_not_count(factor: float, counts: bool) -> None:
    assert (common(one_odd_step(range(8), factor))[1] < 1) is counts


def test_common_slowness_must_exceed_four_sigma_of_the_ranks_own_steps() -> None:
    """Steps that alternate between 97 and 103 have a robust sigma of 4.4 %, so that only 18 % would be common."""
    compute = steady([100.0] * 8, blocks=1, steps=20) * np.tile([0.97, 1.03], 10)
    compute[:, 0, 0] = 115.0
    assert common(compute)[1] == 1.0
    compute[:, 0, 0] = 125.0
    assert common(compute)[1] < 1.0


def test_robust_sigma_of_normal_values_is_their_standard_deviation() -> None:
    assert robust_sigma(np.random.default_rng(3).normal(10, 2, 20_000)) == pytest.approx(2.0, rel=0.02)


def test_robust_sigma_ignores_a_few_wild_values() -> None:
    assert robust_sigma(np.array([9.0, 10, 11, 9, 10, 11, 1000])) == pytest.approx(1.4826)


# Blame


def blame_of(times: Sequence[float], reference: float) -> list[float]:
    return list(blame(np.array(times, dtype=float)[:, None], reference))


def shapley(times: Sequence[float], reference: float) -> list[float]:
    """By definition: what each rank adds to the loss of those before it, averaged over all orders of arrival."""
    totals = [0.0] * len(times)
    for order in itertools.permutations(range(len(times))):
        slowest = reference
        for rank in order:
            totals[rank] += max(0.0, times[rank] - slowest)
            slowest = max(slowest, times[rank])
    return [total / math.factorial(len(times)) for total in totals]


def test_blame_of_the_worked_example() -> None:
    assert blame_of([100, 100, 110, 130], 100) == pytest.approx([0, 0, 5, 25])


@repeatable
@given(st.lists(st.integers(80, 200), min_size=1, max_size=5), st.integers(80, 120))
def test_blame_is_the_shapley_value(times: list[int], reference: int) -> None:
    if max(times) >= reference:
        assert blame_of(times, reference) == pytest.approx(shapley(times, reference), abs=1e-9)


def test_a_step_below_the_reference_is_credited_to_its_slowest_rank() -> None:
    assert blame_of([80, 90, 70], 100) == pytest.approx([0, -10, 0])


def test_ranks_that_tie_below_the_reference_share_the_credit() -> None:
    assert blame_of([90, 90, 70], 100) == pytest.approx([-5, -5, 0])


def test_blame_is_a_mean_over_steps() -> None:
    compute = np.array([[100.0, 100, 130, 100], [100, 110, 100, 100]])
    assert blame(compute, 100.0) == pytest.approx([30 / 4, 10 / 4])


# Interval


def test_the_interval_of_a_run_without_noise_is_the_score() -> None:
    balance = score(with_slow([3], 1.2))
    assert (balance.low, balance.high) == pytest.approx((balance.score, balance.score))


def test_a_single_block_has_no_interval_and_two_have_one() -> None:
    one, two = (balance_of(arrays_of(make_attempt(steady([100.0, 120.0], blocks=blocks)))) for blocks in (1, 2))
    assert (one.low, one.high) == (0.0, 100.0)
    assert (two.low, two.high) == pytest.approx((two.score, two.score))


def test_the_same_steps_give_the_same_interval() -> None:
    compute = steady([100.0] * 4, noise=0.05)
    assert score(compute) == score(compute)


def test_the_interval_holds_the_true_score_in_most_runs() -> None:
    """Rank 0 at 110 +- 5 ms by blocks, rank 1 at 100 ms: B = 120 / 130."""
    held = 0
    for seed in range(40):
        compute = steady([110.0, 100.0], steps=4)
        compute[0] += np.random.default_rng(seed).normal(0, 5, size=(BLOCKS, 1))
        balance = balance_of(arrays_of(make_attempt(compute, overlapped_ms=float(compute.max(axis=0).mean()) + 20)))
        held += balance.low <= 100 * 120 / 130 <= balance.high
    assert held >= 34


def test_more_noise_widens_the_interval() -> None:
    quiet, loud = (score(steady([100.0, 105.0], noise=noise, seed=5)) for noise in (0.01, 0.05))
    assert loud.high - loud.low > quiet.high - quiet.low > 0


def test_steps_may_be_of_any_shape() -> None:
    compute = np.full((3, 2, 1), 50.0)
    steps = Steps(compute, np.zeros_like(compute), np.ones_like(compute), np.ones(3), 60.0)
    assert balance_of(steps).exposed_ms == pytest.approx(10.0)


# Many ranks


def test_the_interval_of_thousands_of_ranks_is_that_of_a_sample_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    medians = np.random.default_rng(5).normal(100, 2, 2500)
    steps = arrays_of(make_attempt(steady(list(medians), blocks=24, steps=5, noise=0.02)))
    sampled = balance_of(steps)
    monkeypatch.setattr("gpubalance.analysis.balance.RESAMPLED_RANKS", 10_000)
    every = balance_of(steps)
    assert (sampled.low, sampled.high) == pytest.approx((every.low, every.high), abs=0.05)
    assert sampled.score == every.score
