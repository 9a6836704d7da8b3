"""Exact bounds of a share that was counted: so many of so many, and no normal curve in between.

Clopper and Pearson (1934): the upper bound is the share at which so few failures, or fewer, would come about in just
1 - confidence of all cases. One-sided. 0 of 300 is at most 1 % with 95 % confidence.
"""

from __future__ import annotations

import math

CONFIDENCE = 0.95
_HALVINGS = 60


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest share that `failures` of `trials` leave possible; 1 where nothing was tried.

    Raises ValueError for more failures than trials.
    """
    if not 0 <= failures <= trials:
        raise ValueError(f"{failures} of {trials} is no share")
    if failures == trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(failures, trials, middle) > 1 - confidence else (low, middle)
    return high


def lower_bound(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The smallest share that `successes` of `trials` leave possible; 0 where nothing was tried."""
    return 1 - upper_bound(trials - successes, trials, confidence)


def at_most(count: int, trials: int, share: float) -> float:
    """P(Binomial(trials, share) <= count), in logarithms so that thousands of trials do not overflow."""
    if share <= 0:
        return 1.0
    if share >= 1:
        return float(count >= trials)
    here, away = math.log(share), math.log1p(-share)
    ways = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * here + (trials - k) * away)
        for k in range(count + 1)
    )
