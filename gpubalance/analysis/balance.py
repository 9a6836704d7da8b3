"""The balance score: the share of the step rate that the node would have if every rank were like the reference.

    lost ms per step = (M - ref) + (X - X_ref)          B = 100 (1 - lost / T)

M is the mean over steps of the slowest rank's compute, ref the compute of the k-th fastest rank, T the step of real
training and X = T - M what of the communication is not hidden. 100 - B is the loss of throughput: a straggler at 1 + k
among equals, with communication x, gives 100 (1 + x) / (1 + k + x), whatever the number of ranks.

Where devices of different models work together, the reference is one of all of them: the faster ones really wait for
the slower kind, and that loss is in B although no device is a straggler among its own kind.

Names as in the README, "How to read it". POP's efficiencies (load balance, serialization, transfer) stand beside it
for readers who know them: https://pop-coe.eu/node/69.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpubalance.analysis.common_mode import by_step
from gpubalance.analysis.steps import Array, Steps

BOOTSTRAP_DRAWS = 400
RESAMPLED_RANKS = 1000
"""Ranks whose blocks are resampled for the interval (ours)."""
COMMUNICATION_BOUND = 0.5
"""Transfer above this share of the median compute: overlap absorbs part of a slowdown, B is a lower bound."""


@dataclass(frozen=True)
class Balance:
    """The score, its factors and the loss behind it. Scores and factors run from 0 to 100; times are ms a step."""

    score: float
    low: float
    high: float
    """95 % interval by resampling blocks."""
    persistent: float
    """100 (ref + X) / (max m + X): what steady slowness of the slowest rank costs."""
    transient: float
    """100 (max m + X) / (M + X): what slowness now and then costs; above 100 when a rank is slow in most steps only."""
    common_mode: float
    """100 x what would be left if no step were slow for all ranks at once; instability, not imbalance."""
    lost_ms: float
    """M - ref + X - X_ref; below 0 when noise made the slowest rank of the mean step faster than the reference's
    median."""
    step_ms: float
    """M + X: the overlapped step, or M when the overlapped run was faster than the fenced compute."""
    slowest_ms: float
    """M."""
    reference_ms: float
    exposed_ms: float | None
    """X; None when the overlapped run is missing, which makes B a lower bound with X = 0."""
    transfer_ms: float
    """X_f: the fenced all-reduce of all gradients, median."""
    communication_bound: bool
    blame_ms: tuple[float, ...]
    """By rank; sums to M - ref."""
    pop_load_balance: float
    pop_serialization: float
    link: float | None = None
    """100 (ref + X_ref) / (ref + X): what the slowest link costs. None where links or the overlapped run were not
    measured."""
    steady_cost: tuple[float, ...] = ()
    """By rank: its part of what steady slowness costs, as a share of the step rate; sums to 1 - persistent / 100."""


@dataclass(frozen=True)
class LinkLoss:
    """What measured links say of the transfer of gradients."""

    slowest: float
    """Share of its expected bandwidth that the slowest link reaches; 1 where none is slow."""
    last_bucket: float
    """Share of the gradients that is sent last, when no compute is left to hide it."""


def balance_of(steps: Steps, seed: int = 0, links: LinkLoss | None = None) -> Balance:
    """Score one attempt. Works for any number of ranks; one rank is its own reference and scores exactly 100. Without
    `links` (not measured) X_ref is X.
    """
    medians = steps.medians()
    ordinary, common = steps.ordinary
    slowest = float(ordinary.max(axis=0).mean())
    reference, steady = (reference_of(medians), float(medians.max())) if steps.ranks > 1 else (slowest, slowest)
    exposed = 0.0 if steps.overlapped_ms is None else max(0.0, steps.overlapped_ms - slowest)
    transfer = float(np.median(steps.transfer))
    wanted = exposed if links is None else exposed_reference(exposed, transfer, links)
    lost = slowest - reference + exposed - wanted
    left = (reference + wanted) / (reference + exposed)
    low, high = _interval(steps, ordinary, exposed, wanted, seed)
    totals = steps.compute.sum(axis=(1, 2))
    return Balance(
        score=min(100.0, 100 * (1 - lost / (slowest + exposed))),
        low=low,
        high=high,
        persistent=100 * (reference + exposed) / (steady + exposed),
        transient=100 * (steady + exposed) / (slowest + exposed),
        common_mode=100 * common,
        link=None if links is None or steps.overlapped_ms is None else 100 * left,
        lost_ms=lost,
        step_ms=slowest + exposed,
        slowest_ms=slowest,
        reference_ms=reference,
        exposed_ms=None if steps.overlapped_ms is None else exposed,
        transfer_ms=transfer,
        communication_bound=transfer > COMMUNICATION_BOUND * float(np.median(medians)),
        blame_ms=tuple(float(b) for b in blame(ordinary.reshape(steps.ranks, -1), reference)),
        steady_cost=tuple(float(b) / (steady + exposed) for b in blame(medians[:, None], min(reference, steady))),
        pop_load_balance=float(totals.mean() / totals.max()),
        pop_serialization=float(totals.max() / steps.compute.max(axis=0).sum()),
    )


def exposed_reference(exposed: float, transfer: float, links: LinkLoss) -> float:
    """X_ref: exposed communication if the slowest link were like its peers. A ring runs at the pace of its slowest
    link, so X_f would shrink to X_f x share; X shrinks by as many milliseconds, but not below the last bucket, which
    nothing can hide.
    """
    faster = transfer * links.slowest
    return min(exposed, max(links.last_bucket * faster, exposed - (transfer - faster)))


def reference_of(medians: Array) -> float:
    """The k-th smallest median, k = 1 below 4 ranks, else max(2, ceil(N / 4)).

    Tolerates one freakishly fast GPU and, of eight, six slow ones: a median fails when a socket of GPUs is slow, and
    a minimum is biased downwards.
    """
    count = len(medians)
    k = 1 if count < 4 else max(2, math.ceil(count / 4))
    return float(np.sort(medians)[k - 1])


def blame(compute: Array, reference: float) -> Array:
    """(ranks,): each rank's part of the loss, in ms a step, from (ranks, steps).

    In each step the slowest rank alone answers for the stretch down to the second slowest, those two share the next
    stretch, and so on down to the reference: the Shapley value of the airport game (Littlechild and Owen, 1973). A step
    that lies below the reference counts negative for its slowest, so that blame sums to M - ref exactly.
    """
    ranks, count = compute.shape
    steps = by_step(compute)
    order = np.argsort(-steps, axis=1)
    descending = np.take_along_axis(steps, order, axis=1)
    floor = np.hstack([descending[:, 1:], np.full((count, 1), reference)])
    above = np.maximum(descending, reference) - np.maximum(floor, reference)
    shares = above / np.arange(1, ranks + 1)
    parts = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    slowest = descending == descending[:, :1]
    below = np.minimum(descending[:, 0] - reference, 0.0)
    parts += slowest * (below / slowest.sum(axis=1))[:, None]
    by_rank = np.zeros_like(compute)
    np.put_along_axis(by_rank.T, order, parts, axis=1)
    return np.asarray(by_rank.mean(axis=1))


def _interval(steps: Steps, ordinary: Array, exposed: float, wanted: float, seed: int) -> tuple[float, float]:
    """95 % interval of the score from resampled blocks, on block summaries so that it stays fast for many ranks."""
    if steps.ranks == 1:
        return 100.0, 100.0
    if steps.blocks < 2:
        return 0.0, 100.0
    slowest = ordinary.max(axis=0).mean(axis=1)
    block_medians = _likeness(steps.block_medians())
    draws = np.random.default_rng(seed).integers(0, steps.blocks, size=(BOOTSTRAP_DRAWS, steps.blocks))
    scores = []
    for draw in draws:
        reference = reference_of(np.median(block_medians[:, draw], axis=1))
        total = float(slowest[draw].mean())
        scores.append(min(100.0, 100 * (reference + wanted) / (total + exposed)))
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def _likeness(block_medians: Array) -> Array:
    """All ranks, or of thousands every n-th in the order of their medians: the reference is a quantile of ranks,
    and a systematic sample has the same.
    """
    every = math.ceil(len(block_medians) / RESAMPLED_RANKS)
    return block_medians if every == 1 else block_medians[np.argsort(np.median(block_medians, axis=1))[::every]]
