"""How far the step times of one attempt can be believed: what the statistics assume, and whether it held.

The sign test takes blocks as independent and ranks' times as their own. Neither is sure: a node that warms up gives
blocks that are not alike, ranks on a CPU may not get a core, and a clock may be wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from gpubalance.analysis.steps import Array, Steps
from gpubalance.analysis.stragglers import FALSE_ALARM, peers_of
from gpubalance.analysis.trends import FEWEST, trends_of
from gpubalance.record.timings import DdpAttempt

ALIKE = 0.5
"""Correlation of neighbouring blocks from which on one false alarm in a hundred is no longer the bound: at 0.9 it is 3
to 13 in a hundred, by simulation of the test on such blocks."""

CONSTANT = 1e-4
"""A spread below this is the rounding of times, in which neighbours may be alike as they please."""


@dataclass(frozen=True)
class Trust:
    """What the statistics of an attempt rest on; None is not measured, or nothing to tell."""

    clocks_apart: float | None = None
    """How much longer the steps of one rank add up to than those of another, as a share. Ranks leave every collective
    together, so that compute + wait + transfer is the same for all: what is left is the error of clocks. None where
    the times add up to nothing."""
    common_drift: float | None = None
    """By how much all ranks grew slower (below 0: faster) from the first to the last quarter of the blocks, when they
    did so steadily: the change of the rank that changed least, as a share."""
    alike: float | None = None
    """Largest correlation of a rank's block ratios with those of the block before, where it is more than `ALIKE` and
    more than chance."""
    alike_rank: int | None = None
    core_share: float | None = None
    """CPU time over compute time, of the rank that had its core for the largest share; None where it was not noted."""
    preempted_per_s: float | None = None
    """How often a rank was made to leave its core, of the rank to which that happened least."""
    collector: tuple[float | None, ...] = ()
    """By rank: how much longer compute takes with Python's garbage collector on, as a share."""
    collector_noise: float | None = None
    """Largest spread (standard deviation) of a rank's block medians, as a share: smaller differences mean nothing."""


NOT_LOOKED_AT = Trust()


def trust_of(attempt: DdpAttempt, steps: Steps, warn: float) -> Trust:
    """Look at one attempt; `warn` is the warning margin, half of which is the smallest drift worth mentioning."""
    medians = steps.block_medians()
    relative = medians / steps.medians()[:, None]
    alike = _alike(medians / steps.units[:, None])
    totals = np.median((steps.compute + steps.fence + steps.transfer).sum(axis=2), axis=1)
    share, preempted = _cores(attempt, steps)
    return Trust(
        clocks_apart=float(totals.max() / totals.min() - 1) if totals.min() > 0 else None,
        common_drift=_common_drift(relative, warn / 2),
        alike=None if alike is None else alike[1],
        alike_rank=None if alike is None else alike[0],
        core_share=share,
        preempted_per_s=preempted,
        collector=tuple(
            None if rank.collector_ms is None else rank.collector_ms / float(median) - 1
            for rank, median in zip(attempt.ranks, steps.medians(), strict=True)
        ),
        collector_noise=float(relative.std(axis=1).max()),
    )


def _common_drift(relative: Array, smallest: float) -> float | None:
    """(ranks, blocks) of block medians over each rank's own. The middle rank must rise or fall steadily, and every
    other one must at least go the same way.
    """
    (middle,) = trends_of(np.median(relative, axis=0)[None], FALSE_ALARM, smallest)
    if middle is None:
        return None
    quarter = relative.shape[1] // 4
    changes = np.median(relative[:, -quarter:], axis=1) / np.median(relative[:, :quarter], axis=1) - 1
    least = float(changes.min() if middle > 0 else changes.max())
    return least if least * middle > 0 and abs(least) >= smallest else None


def _alike(per_unit: Array) -> tuple[int, float] | None:
    """The rank whose block ratios follow those of the block before most closely, and their correlation (lag 1); None
    below `ALIKE`, and where chance gives as much to one of so many ranks in one run of a hundred.
    """
    ranks, blocks = per_unit.shape
    if ranks < 2 or blocks < FEWEST:
        return None
    ratios = per_unit / peers_of(per_unit)
    centred = ratios - ratios.mean(axis=1, keepdims=True)
    power = (centred**2).sum(axis=1)
    real = ratios.std(axis=1) > CONSTANT
    products = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    correlation = np.divide(products, power, out=np.zeros(ranks), where=real)
    rank = int(correlation.argmax())
    by_chance = NormalDist().inv_cdf(1 - FALSE_ALARM / ranks) / math.sqrt(blocks)
    found = float(correlation[rank])
    return (rank, found) if found > max(ALIKE, by_chance) else None


def _cores(attempt: DdpAttempt, steps: Steps) -> tuple[float | None, float | None]:
    """Share of its compute time for which the luckiest rank had a core, and how often the least disturbed one lost it.
    CPU time is that of the whole process, so that the share is an upper bound.
    """
    if not all(len(rank.host) == steps.blocks for rank in attempt.ranks):
        return None, None
    every = attempt.steps_per_block / steps.compute.shape[2]
    compute_s = steps.compute.sum(axis=2) * every / 1000
    cpu_s = np.array([[block.cpu_s for block in rank.host] for rank in attempt.ranks])
    wall_s = np.array([[block.wall_s for block in rank.host] for rank in attempt.ranks])
    lost = np.array([[block.involuntary_switches for block in rank.host] for rank in attempt.ranks])
    if not (wall_s > 0).all():
        return None, None
    return float(np.median(cpu_s / compute_s, axis=1).max()), float(np.median(lost / wall_s, axis=1).min())
