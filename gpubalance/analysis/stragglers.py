"""Persistent stragglers by a sign test over blocks with two margins.

    q[i, r] = m[i, r] / peer(i, r)       a block speaks for slowness when q > 1 + margin
    k = smallest number with N x P(Binomial(R, 1/2) >= k) <= 1 %

If a rank's true ratio is at most 1 + margin, each block exceeds it with probability at most 1/2, whatever the shape of
the noise, so that the chance of naming anybody wrongly is at most 1 % (blocks taken as independent). Neither an
all-blocks rule (one burst hides a true straggler) nor a z-score across ranks (scale-free: it names noise) can say that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from gpubalance.analysis.balance import reference_of
from gpubalance.analysis.steps import Array, Steps
from gpubalance.analysis.trends import trends_of

FALSE_ALARM = 0.01
State = Literal["ok", "warn", "fail", "unclear"]


@dataclass(frozen=True)
class RankSpeed:
    """One rank against its peers."""

    rank: int
    ratio: float
    """Median over blocks of compute per work unit against the peers: 1.2 is 20 % slower."""
    blocks_over_warn: int
    blocks_over_fail: int
    trend: float | None
    """Change of the ratio from the first to the last quarter of the run, when it rises or falls steadily; else None."""
    state: State


@dataclass(frozen=True)
class Stragglers:
    """The outcome of the sign test over all ranks."""

    state: State
    blocks: int
    needed: int | None
    """k; None when there are too few blocks for any verdict."""
    ranks: tuple[RankSpeed, ...]
    majority_slow: int
    """Ranks above the reference by the fail margin when they are more than half; else 0."""
    detectable: float
    """Smallest slowdown that this run could have seen, as a share: information, not a gate."""

    @property
    def named(self) -> tuple[RankSpeed, ...]:
        """Ranks that are slow for sure, worst first."""
        slow = [rank for rank in self.ranks if rank.state in ("warn", "fail")]
        return tuple(sorted(slow, key=lambda rank: -rank.ratio))


def blocks_needed(ranks: int, blocks: int) -> int | None:
    """K of the sign test, or None when even all blocks would not be enough."""
    tail = 0
    needed = None
    for k in range(blocks, -1, -1):
        tail += math.comb(blocks, k)
        if max(ranks, 1) * tail / 2**blocks > FALSE_ALARM:
            break
        needed = k
    return needed


def find_stragglers(steps: Steps, warn: float, fail: float) -> Stragglers:
    """Judge every rank against its peers; margins are shares."""
    medians = steps.block_medians() / steps.units[:, None]
    ratios = medians / peers_of(medians)
    needed = blocks_needed(steps.ranks, steps.blocks)
    ranks = _judged(ratios, warn, fail, needed)
    majority = _majority_slow(medians, fail, needed)
    return Stragglers(
        state=_overall(ranks, needed, majority),
        blocks=steps.blocks,
        needed=needed,
        ranks=ranks,
        majority_slow=majority,
        detectable=warn + detectable_spread(ratios),
    )


def peers_of(medians: Array) -> Array:
    """(ranks, blocks): what each rank is held against. Two ranks: the other. Three: the larger of the other two, so
    that one fast rank makes no stragglers. Four and more: the median of the others. One: itself.
    """
    ranks = len(medians)
    if ranks == 1:
        return medians
    if ranks == 2:
        return medians[::-1]
    if ranks == 3:
        return np.array([np.delete(medians, rank, axis=0).max(axis=0) for rank in range(3)])
    return median_of_others(medians)


def median_of_others(medians: Array) -> Array:
    """Along the first axis, the median of the two or more values without one's own, in one sort: removing a value
    shifts the middle by at most one place.
    """
    ranks = len(medians)
    order = np.argsort(medians, axis=0)
    ordered = np.take_along_axis(medians, order, axis=0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(ranks)[:, None], axis=0)
    low, high = (ranks - 2) // 2, (ranks - 1) // 2
    lower = np.where(place <= low, ordered[low + 1], ordered[low])
    upper = np.where(place <= high, ordered[min(high + 1, ranks - 1)], ordered[high])
    return np.asarray((lower + upper) / 2)


def _judged(ratios: Array, warn: float, fail: float, needed: int | None) -> tuple[RankSpeed, ...]:
    """All ranks at once; ratios are (ranks, blocks)."""
    over_warn, over_fail = (ratios > 1 + warn).sum(axis=1), (ratios > 1 + fail).sum(axis=1)
    within = (ratios <= 1 + fail).sum(axis=1)
    trends = trends_of(ratios, FALSE_ALARM / len(ratios), warn / 2)
    return tuple(
        RankSpeed(rank, ratio, int(warned), int(failed), trend, _state(int(warned), int(failed), int(inside), needed))
        for rank, (ratio, warned, failed, inside, trend) in enumerate(
            zip(np.median(ratios, axis=1).tolist(), over_warn, over_fail, within, trends, strict=True)
        )
    )


def _state(over_warn: int, over_fail: int, within: int, needed: int | None) -> State:
    if needed is None:
        return "unclear"
    if over_fail >= needed:
        return "fail"
    if over_warn >= needed:
        return "warn"
    return "ok" if within >= needed else "unclear"


def _overall(ranks: tuple[RankSpeed, ...], needed: int | None, majority: int) -> State:
    states = {rank.state for rank in ranks}
    if needed is None:
        return "unclear"
    if "fail" in states or majority:
        return "fail"
    if "warn" in states:
        return "warn"
    return "unclear" if "unclear" in states else "ok"


def _majority_slow(medians: Array, fail: float, needed: int | None) -> int:
    """How many ranks are above the reference by the fail margin in at least k blocks, when they are more than half.

    With more than half of the ranks slow the median of the others is slow too and names nobody.
    """
    if needed is None or len(medians) < 4:
        return 0
    reference = np.array([reference_of(block) for block in medians.T])
    slow = int(((medians > reference * (1 + fail)).sum(axis=1) >= needed).sum())
    return slow if slow > len(medians) / 2 else 0


def detectable_spread(ratios: Array) -> float:
    """Z sigma_q: what noise adds to the margin, sigma_q being the largest spread of any rank's block ratios and z
    such that a rank slower by that much exceeds the margin in all R blocks with 95 % probability.
    """
    blocks = ratios.shape[1]
    if blocks < 2 or len(ratios) < 2:
        return 0.0
    z = NormalDist().inv_cdf(0.95 ** (1 / blocks))
    return float(z * ratios.std(axis=1, ddof=1).max())
