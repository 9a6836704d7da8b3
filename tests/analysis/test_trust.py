"""How far step times can be believed: each fact from times made for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gpubalance.analysis.steps import Array, arrays_of
from gpubalance.analysis.trust import Trust, trust_of
from gpubalance.record.timings import DdpAttempt, HostUse
from gpubalance.testing.runs import make_attempt, steady

WARN = 0.05


def trust(attempt: DdpAttempt) -> Trust:
    return trust_of(attempt, arrays_of(attempt), WARN)


def of_blocks(rows: Sequence[Sequence[float]]) -> Trust:
    """Ranks with these block medians; the steps of a block are alike."""
    return trust(make_attempt(np.repeat(np.array(rows, dtype=float)[:, :, None], 5, axis=2)))


def rising(end: float, count: int = 24) -> list[float]:
    return [100 * (1 + end * place / (count - 1)) for place in range(count)]


# Clocks


def test_ranks_that_leave_together_have_clocks_that_agree() -> None:
    assert trust(make_attempt(steady([100.0, 130.0, 110.0], noise=0.05))).clocks_apart == pytest.approx(0, abs=1e-9)


def test_a_clock_that_runs_fast_is_seen_and_a_slow_rank_is_not_taken_for_one() -> None:
    """All marks of rank 1 are 8 % too long, as if its clock were."""
    attempt = make_attempt(steady([100.0, 100.0]))
    fast = [
        block.model_copy(
            update={
                key: [1.08 * value for value in getattr(block, key)]
                for key in ("compute_ms", "fence_ms", "transfer_ms")
            }
        )
        for block in attempt.ranks[1].fenced
    ]
    rank = attempt.ranks[1].model_copy(update={"fenced": fast})
    assert trust(attempt.model_copy(update={"ranks": [attempt.ranks[0], rank]})).clocks_apart == pytest.approx(0.08)


# Drift


def test_a_drift_of_all_ranks_is_the_change_of_the_one_that_changed_least() -> None:
    """From the first to the last quarter lie 18 of 23 steps of the rise; the last quarter over the first."""
    seen = of_blocks([rising(0.2), rising(0.3), rising(0.4)]).common_drift
    first, last = (float(np.median(rising(0.2)[part])) for part in (slice(0, 6), slice(18, 24)))
    assert seen == pytest.approx(last / first - 1)


def test_ranks_that_grow_faster_together_drift_the_other_way() -> None:
    seen = of_blocks([rising(-0.2), rising(-0.3)]).common_drift
    assert seen is not None
    assert -0.2 < seen < -0.1


@pytest.mark.parametrize(
    "rows",
    [
        [rising(0.0), rising(0.3)],
        [rising(-0.3), rising(0.3)],
        [rising(0.02), rising(0.02)],
        [rising(0.3, 7), rising(0.3, 7)],
    ],
    ids=["one rank only", "against each other", "too little to matter", "too few blocks"],
)
def test_what_is_no_drift_of_all_is_none(rows: list[list[float]]) -> None:
    assert of_blocks(rows).common_drift is None


def test_noise_is_hardly_ever_a_drift() -> None:
    generator = np.random.default_rng(3)
    found = [of_blocks(100 * (1 + 0.1 * generator.standard_normal((2, 24)))).common_drift for _ in range(300)]
    assert sum(drift is not None for drift in found) <= 10  # at most 1 % each; more than 10 of 300: 4e-4


# Blocks that resemble the ones before


def lag_one(ratios: Array) -> float:
    """By definition, with loops."""
    mean = sum(ratios) / len(ratios)
    products = [(ratios[i] - mean) * (ratios[i + 1] - mean) for i in range(len(ratios) - 1)]
    return sum(products) / sum((value - mean) ** 2 for value in ratios)


def wandering(seed: int, blocks: int = 24, keeps: float = 0.95) -> list[float]:
    generator = np.random.default_rng(seed)
    values = [0.0]
    for _ in range(blocks - 1):
        values.append(keeps * values[-1] + float(generator.standard_normal()))
    return [100 + value for value in values]


def test_the_correlation_of_neighbouring_blocks_is_that_of_the_rank_with_the_largest() -> None:
    rows = [[100.0 + 0.1 * (block % 2) for block in range(24)], [100.0] * 24, [100.0] * 24, wandering(1)]
    seen = of_blocks(rows)
    peers = [float(np.median([row[block] for row in rows[:3]])) for block in range(24)]
    assert seen.alike_rank == 3
    assert seen.alike == pytest.approx(lag_one(np.array(rows[3]) / np.array(peers)))


def test_blocks_without_any_noise_resemble_nothing() -> None:
    assert of_blocks([[100.0] * 24, [120.0] * 24]).alike is None


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_independent_blocks_are_called_alike_in_hardly_one_run_of_a_hundred(ranks: int) -> None:
    generator = np.random.default_rng(ranks)
    found = [of_blocks(100 * (1 + 0.02 * generator.standard_normal((ranks, 24)))).alike for _ in range(200)]
    assert sum(alike is not None for alike in found) <= 8  # more than 8 of 200 at 1 %: 2e-4


# Cores


def with_host(attempt: DdpAttempt, cpu_share: Sequence[float], lost_per_s: Sequence[int]) -> DdpAttempt:
    """The process of each rank used so much of its compute time, over all steps of a block, dropped ones included."""
    ranks = []
    for rank, share, lost in zip(attempt.ranks, cpu_share, lost_per_s, strict=True):
        block_s = attempt.steps_per_block * rank.fenced[0].compute_ms[0] / 1000
        use = HostUse(
            wall_s=2 * block_s,
            cpu_s=share * block_s,
            voluntary_switches=9,
            involuntary_switches=round(lost * 2 * block_s),
        )
        ranks.append(rank.model_copy(update={"host": [use] * len(rank.fenced)}))
    return attempt.model_copy(update={"ranks": ranks})


def test_the_share_of_compute_with_a_core_is_that_of_the_luckiest_rank() -> None:
    seen = trust(with_host(make_attempt(steady([100.0, 100.0])), [0.4, 0.6], [200, 100]))
    assert seen.core_share == pytest.approx(0.6)
    assert seen.preempted_per_s == pytest.approx(100, rel=0.01)


def test_runs_that_did_not_note_the_use_of_cores_say_nothing_of_it() -> None:
    seen = trust(make_attempt(steady([100.0, 100.0])))
    assert (seen.core_share, seen.preempted_per_s) == (None, None)


# The garbage collector


def test_the_collector_is_held_against_the_median_of_the_timed_blocks() -> None:
    attempt = make_attempt(steady([100.0, 110.0, 100.0]))
    pairs = zip(attempt.ranks, (103.0, 110.0, None), strict=True)
    ranks = [rank.model_copy(update={"collector_ms": ms}) for rank, ms in pairs]
    seen = trust(attempt.model_copy(update={"ranks": ranks}))
    assert seen.collector == (pytest.approx(0.03), pytest.approx(0.0), None)
    assert seen.collector_noise == pytest.approx(0.0, abs=1e-12)
