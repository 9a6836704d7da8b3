"""The sign test over blocks: what it names, what it never names, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpubalance.analysis.steps import Array, Steps
from gpubalance.analysis.stragglers import (
    Stragglers,
    blocks_needed,
    detectable_spread,
    find_stragglers,
    peers_by_kind,
    peers_of,
)
from gpubalance.analysis.trends import trends_of
from gpubalance.testing.runs import steady

repeatable = settings(deadline=None, derandomize=True)

WARN, FAIL = 0.05, 0.10


def look(compute: Array, units: Sequence[float] | None = None, warn: float = WARN, fail: float = FAIL) -> Stragglers:
    ones = np.ones_like(compute)
    return find_stragglers(Steps(compute, ones, ones, np.array(units or [1.0] * len(compute)), None), warn, fail)


def by_blocks(medians: Sequence[Sequence[float]]) -> Array:
    """(ranks, blocks, 3) from block medians, a list a rank."""
    return np.repeat(np.array(medians, dtype=float)[:, :, None], 3, axis=2)


def states(seen: Stragglers) -> list[str]:
    return [rank.state for rank in seen.ranks]


# How many blocks are needed


def tail(blocks: int, k: int) -> Fraction:
    """P(Binomial(blocks, 1/2) >= k), exactly."""
    return sum((Fraction(math.comb(blocks, j), 2**blocks) for j in range(k, blocks + 1)), Fraction(0))


@pytest.mark.parametrize(
    ("ranks", "needed"),
    [(1, 19), (2, 19), (4, 20), (5, 20), (8, 20), (16, 21), (32, 21), (64, 21), (10_000, 24)],
)
def test_of_24_blocks_so_many_are_needed(ranks: int, needed: int) -> None:
    assert blocks_needed(ranks, 24) == needed


@repeatable
@given(st.integers(1, 300), st.integers(0, 60))
def test_the_needed_blocks_are_the_fewest_with_one_percent_of_false_alarms(ranks: int, blocks: int) -> None:
    allowed = [k for k in range(blocks + 1) if ranks * tail(blocks, k) <= Fraction(1, 100)]
    assert blocks_needed(ranks, blocks) == (min(allowed) if allowed else None)


@pytest.mark.parametrize(("ranks", "blocks"), [(2, 0), (2, 7), (8, 9), (10_000, 19)])
def test_too_few_blocks_allow_no_verdict(ranks: int, blocks: int) -> None:
    assert blocks_needed(ranks, blocks) is None
    assert blocks_needed(ranks, blocks + 1) == (None if blocks == 0 else blocks + 1)


def test_any_number_of_blocks_can_be_judged() -> None:
    """Half of 4000 and 2.33 sigma of sqrt(1000) more is where one percent begins."""
    assert blocks_needed(1, 4000) == pytest.approx(2000 + 2.326 * math.sqrt(1000), abs=2)


# What a rank is held against


def test_one_rank_is_held_against_itself() -> None:
    assert peers_of(np.array([[3.0, 4.0]])).tolist() == [[3.0, 4.0]]


def test_two_ranks_are_held_against_each_other() -> None:
    assert peers_of(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_each_of_three_ranks_is_held_against_the_slower_of_the_other_two() -> None:
    assert peers_of(np.array([[1.0], [2.0], [3.0]])).tolist() == [[3.0], [3.0], [2.0]]


@repeatable
@given(
    hnp.arrays(
        float,
        st.tuples(st.integers(4, 40), st.integers(1, 4)),
        elements=st.integers(1, 9).map(float),
        fill=st.nothing(),
    )
)
def test_each_of_more_ranks_is_held_against_the_median_of_the_others(medians: Array) -> None:
    """Whole numbers below ten: there are many ties."""
    expected = [np.median(np.delete(medians, rank, axis=0), axis=0) for rank in range(len(medians))]
    assert np.array_equal(peers_of(medians), np.array(expected))


@pytest.mark.parametrize("ranks", [4, 5, 64, 65, 1000])
def test_the_median_of_the_others_is_right_for_many_ranks(ranks: int) -> None:
    medians = np.random.default_rng(ranks).normal(100, 5, (ranks, 2))
    expected = [np.median(np.delete(medians, rank, axis=0), axis=0) for rank in range(ranks)]
    assert np.allclose(peers_of(medians), np.array(expected), rtol=1e-14)


@repeatable
@given(hnp.arrays(float, (6, 3), elements=st.floats(10, 1000), fill=st.nothing()), st.permutations(range(6)))
def test_exchanging_ranks_exchanges_their_peers(medians: Array, order: list[int]) -> None:
    assert np.array_equal(peers_of(medians)[order], peers_of(medians[order]))


# What is named


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_a_rank_20_percent_slower_always_fails(ranks: int, seed: int) -> None:
    seen = look(steady([100.0] * (ranks - 1) + [120.0], noise=0.01, seed=seed))
    assert states(seen) == ["ok"] * (ranks - 1) + ["fail"]
    assert seen.state == "fail"
    assert seen.ranks[-1].ratio == pytest.approx(1.20, abs=0.01)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_a_rank_8_percent_slower_warns(ranks: int, seed: int) -> None:
    seen = look(steady([108.0] + [100.0] * (ranks - 1), noise=0.01, seed=seed))
    assert states(seen) == ["warn"] + ["ok"] * (ranks - 1)
    assert seen.state == "warn"


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_equal_ranks_are_ok(ranks: int, seed: int) -> None:
    seen = look(steady([100.0] * ranks, noise=0.03, seed=seed))
    assert states(seen) == ["ok"] * ranks
    assert seen.named == ()


@pytest.mark.parametrize(
    ("slow", "blocks", "state"),
    [
        (120.0, 20, "fail"),
        (120.0, 19, "unclear"),  # neither slow for sure nor fast for sure
        (120.0, 5, "unclear"),
        (120.0, 4, "ok"),
        (107.0, 20, "warn"),
        (107.0, 19, "ok"),
    ],
)
def test_the_blocks_over_the_margin_decide(slow: float, blocks: int, state: str) -> None:
    """Of 24 blocks and four ranks 20 are needed."""
    others = [[100.0] * 24] * 3
    seen = look(by_blocks([[slow] * blocks + [100.0] * (24 - blocks), *others]))
    assert seen.ranks[0].state == state
    assert seen.ranks[0].blocks_over_warn == blocks
    assert seen.state == state


def test_five_percent_for_sure_and_ten_percent_not_excluded_is_a_warning() -> None:
    seen = look(by_blocks([[107.0] * 12 + [112.0] * 12, *[[100.0] * 24] * 3]))
    assert (seen.ranks[0].blocks_over_warn, seen.ranks[0].blocks_over_fail) == (24, 12)
    assert seen.state == "warn"


def test_a_rank_exactly_at_the_margin_is_not_over_it() -> None:
    seen = look(by_blocks([[1.25] * 24, [1.0] * 24]), warn=0.25, fail=0.5)
    assert seen.ranks[0].blocks_over_warn == 0
    assert seen.state == "ok"


def test_a_block_exactly_at_the_fail_margin_is_within_it() -> None:
    seen = look(by_blocks([[1.5] * 10 + [1.0] * 14, [1.0] * 24]), warn=0.25, fail=0.5)
    assert (seen.ranks[0].blocks_over_warn, seen.ranks[0].blocks_over_fail) == (10, 0)
    assert seen.state == "ok"


def test_one_burst_on_the_others_does_not_hide_a_straggler() -> None:
    compute = steady([100.0] * 7 + [120.0])
    compute[:7, 10:13] *= 1.4
    assert states(look(compute)) == ["ok"] * 7 + ["fail"]


def test_one_burst_makes_no_straggler() -> None:
    compute = steady([100.0] * 8)
    compute[3, 10:13] *= 2
    assert look(compute).state == "ok"


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_one_fast_rank_makes_no_stragglers(ranks: int) -> None:
    assert look(steady([70.0] + [100.0] * (ranks - 1), noise=0.01)).state == "ok"


def test_of_two_ranks_the_slower_is_named_whichever_is_abnormal() -> None:
    assert states(look(steady([70.0, 100.0], noise=0.01))) == ["ok", "fail"]


def test_two_slow_ranks_of_four_are_both_named() -> None:
    assert states(look(steady([100.0, 120.0, 120.0, 100.0], noise=0.01))) == ["ok", "fail", "fail", "ok"]


def test_a_slow_half_is_named_whole() -> None:
    seen = look(steady([100.0] * 4 + [120.0] * 4, noise=0.01))
    assert states(seen) == ["ok"] * 4 + ["fail"] * 4
    assert seen.majority_slow == 0


def test_a_slow_majority_names_nobody_and_fails_all_the_same() -> None:
    seen = look(steady([100.0] * 3 + [120.0] * 5, noise=0.01))
    assert seen.named == ()
    assert seen.majority_slow == 5
    assert seen.state == "fail"


@pytest.mark.parametrize(("blocks", "majority"), [(20, 5), (19, 0)])
def test_a_majority_must_be_slow_in_as_many_blocks_as_a_straggler(blocks: int, majority: int) -> None:
    slow = [120.0] * blocks + [100.0] * (24 - blocks)
    assert look(by_blocks([[100.0] * 24] * 3 + [slow] * 5)).majority_slow == majority


def test_six_slow_ranks_of_eight_are_a_slow_majority() -> None:
    assert look(steady([100.0] * 2 + [120.0] * 6, noise=0.01)).majority_slow == 6


def test_a_majority_that_is_slow_within_the_fail_margin_is_no_slow_majority() -> None:
    assert look(steady([100.0] * 3 + [108.0] * 5, noise=0.01)).majority_slow == 0


def test_two_slow_ranks_of_three_are_one_fast_rank() -> None:
    seen = look(steady([100.0, 120.0, 120.0], noise=0.01))
    assert (seen.majority_slow, seen.state) == (0, "ok")


def test_a_rank_with_more_work_is_judged_by_its_time_per_unit() -> None:
    assert look(steady([100.0] * 3 + [150.0], noise=0.01), units=[1, 1, 1, 1.5]).state == "ok"
    assert states(look(steady([100.0] * 3 + [180.0], noise=0.01), units=[1, 1, 1, 1.5]))[3] == "fail"


def test_too_few_blocks_are_unclear_however_slow_a_rank_is() -> None:
    seen = look(steady([100.0, 300.0], blocks=7))
    assert (seen.needed, seen.state, states(seen)) == (None, "unclear", ["unclear"] * 2)


def test_the_worst_is_named_first() -> None:
    assert [rank.rank for rank in look(steady([100, 100, 115, 100, 100, 140, 100, 100])).named] == [5, 2]


def test_one_rank_has_nobody_to_be_slower_than() -> None:
    seen = look(steady([100.0], noise=0.2))
    assert (seen.state, seen.named, seen.detectable) == ("ok", (), WARN)


# How often healthy nodes are named


def skewed(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Times that are often a little and seldom much longer, as those of a busy host are: median 1, mean 1.22."""
    return np.asarray(0.5 + generator.exponential(0.5 / math.log(2), shape))


def most_alarms(runs: int) -> int:
    """The most alarms in so many runs at 1 % each, but for one chance in a million."""
    below = 0.0
    for count in range(runs):
        below += math.comb(runs, count) * 0.01**count * 0.99 ** (runs - count)
        if below > 1 - 1e-6:
            return count
    return runs


def test_the_bound_on_alarms_is_that_of_the_binomial_distribution() -> None:
    """Ten are expected of 1000, with a standard deviation of 3.1; five of those are beyond chance."""
    assert most_alarms(1000) == pytest.approx(10 + 5 * 3.15, abs=3)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_exactly_at_the_margin_is_named_in_at_most_one_run_of_a_hundred(ranks: int) -> None:
    runs, named = 1000, 0
    generator = np.random.default_rng(ranks)
    for _ in range(runs):
        times = skewed(generator, (ranks, 24, 1))
        times[0] *= 1 + WARN
        named += look(times).ranks[0].state in ("warn", "fail")
    assert named <= most_alarms(runs)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_equal_ranks_with_skewed_noise_are_hardly_ever_named(ranks: int) -> None:
    generator = np.random.default_rng(50 + ranks)
    named = sum(bool(look(skewed(generator, (ranks, 24, 1))).named) for _ in range(1000))
    assert named <= most_alarms(1000)


# What could have been seen


def test_the_smallest_detectable_slowdown_is_margin_plus_z_sigma() -> None:
    """Two ranks, block ratios 0.98 and 1.02 in turn; z is 0.95 ^ (1 / 4) of the normal distribution: 2.234."""
    ratios = np.array([[0.98, 1.02, 0.98, 1.02], [1.0, 1.0, 1.0, 1.0]])
    sigma = math.sqrt(4 * 0.02**2 / 3)
    assert detectable_spread(ratios) == pytest.approx(2.234 * sigma, rel=1e-3)


def test_two_blocks_have_a_spread_and_one_has_none() -> None:
    """Two values 0.04 apart have the standard deviation 0.04 / sqrt 2; z is that of sqrt 0.95: 1.9545."""
    assert detectable_spread(np.array([[0.98, 1.02], [1.0, 1.0]])) == pytest.approx(
        1.9545 * 0.04 / math.sqrt(2), rel=1e-3
    )
    assert look(steady([100.0, 120.0], blocks=1)).detectable == WARN


def test_the_detectable_slowdown_of_a_run_without_noise_is_the_margin() -> None:
    assert look(steady([100.0] * 4)).detectable == pytest.approx(WARN)


def test_a_slowdown_that_is_called_detectable_is_detected() -> None:
    """By 24 blocks out of 24 with 95 % probability, hence by 20 of 24 nearly always."""
    quiet = look(steady([100.0] * 4, noise=0.05, seed=1))
    slower = 100.0 * (1 + quiet.detectable)
    found = [look(steady([100.0, 100.0, 100.0, slower], noise=0.05, seed=seed)).ranks[3].state for seed in range(50)]
    assert found.count("ok") + found.count("unclear") == 0


# Trends


@pytest.mark.parametrize(("rise", "seen"), [(0.00145, True), (0.00135, False)])
def test_a_trend_of_half_the_warning_margin_is_worth_mentioning(rise: float, seen: bool) -> None:
    """18 blocks lie between the middles of the first and the last quarter: 2.6 and 2.4 %."""
    trend = look(by_blocks([[100.0] * 24, [100 * (1 + rise * block) for block in range(24)]])).ranks[1].trend
    assert (trend is not None) is seen


def test_a_trend_must_be_surer_the_more_ranks_there_are() -> None:
    """83 of 276 pairs are out of order: S is 110, z 2.70 and p 0.7 %. One rank needs 1 %, each of two 0.5 %."""
    order = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 10, *range(23, 10, -1)]
    ratios = np.array([1 + 0.004 * place for place in order])
    assert trends_of(ratios[None], 0.01, 0.025) == pytest.approx([11 * 0.004])
    assert look(by_blocks([[100.0] * 24, [float(ratio) for ratio in 100 * ratios]])).ranks[1].trend is None


def test_a_rank_that_grows_slower_is_seen_as_developing() -> None:
    compute = steady([100.0] * 4, noise=0.005)
    compute[2] *= np.linspace(1.0, 1.3, 24)[:, None]
    trends = [rank.trend for rank in look(compute).ranks]
    assert trends[2] == pytest.approx(0.3 * 18 / 23, abs=0.01)
    assert [trends[rank] for rank in (0, 1, 3)] == [None] * 3


def test_a_slow_majority_is_held_against_the_others_and_is_nobodys_peer() -> None:
    values = np.array([10.0, 12.0, 50.0, 60.0, 70.0, np.nan, 99.0])
    peers = peers_by_kind(values, [0, 0, 0, 0, 0, 0, 1], apart=(2, 3, 4, 5))
    assert peers[:5].tolist() == [12.0, 10.0, 11.0, 11.0, 11.0]
    assert np.isnan(peers[5:]).all()
    low = peers_by_kind(values, [0, 0, 0, 0, 0, 0, 1], slow_is_low=True, apart=(2, 3, 4, 5))
    assert low[:5].tolist() == peers[:5].tolist()
