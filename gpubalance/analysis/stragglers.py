"""Persistent stragglers by a sign test over blocks with two margins.

    q[i, r] = m[i, r] / peer(i, r)       a block speaks for slowness when q > 1 + margin
    k = smallest number with N x P(Binomial(R, 1/2) >= k) <= 1 %

If a rank's true ratio is at most 1 + margin, each block exceeds it with probability at most 1/2, whatever the shape of
the noise, so that the chance of naming anybody wrongly is at most 1 % (blocks taken as independent). Neither an
all-blocks rule (one burst hides a true straggler) nor a z-score across ranks (scale-free: it names noise) can say that.
Blocks of a rank that grows slower all the time are not alike, so that they are not pooled: it is called developing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpubalance.analysis.balance import reference_of
from gpubalance.analysis.steps import Array, Steps
from gpubalance.analysis.trends import trends_of

FALSE_ALARM = 0.01
State = Literal["ok", "warn", "fail", "developing", "unclear"]


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
    """developing: it grows slower steadily, and was not slow in enough blocks to be named for all of the run."""
    last_ratio: float = 1.0
    """Median of the ratio over the last quarter of the blocks."""
    lost: float | None = None
    """Share of its speed that a rank with a rising trend lost from the first to the last quarter; else None."""
    lost_over_s: float | None = None
    """Time from the middle of the first to the middle of the last quarter; None where block times are unknown."""


@dataclass(frozen=True)
class Stragglers:
    """The outcome of the sign test over all ranks."""

    state: State
    blocks: int
    needed: int | None
    """k; None when there are too few blocks for any verdict."""
    ranks: tuple[RankSpeed, ...]
    majority_slow: int
    """Ranks above the reference by the fail margin when they are more than half of their kind; else 0."""
    detectable: float
    """Smallest slowdown that this run could have seen, as a share: information, not a gate."""
    majority: tuple[RankSpeed, ...] = ()
    """These ranks, held against the reference and not against each other."""
    majority_of: int = 0
    """How many ranks the kind of a slow majority has; 0 without one."""
    compared: int = 0
    """Ranks that have a peer of their own kind."""

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


def find_stragglers(steps: Steps, warn: float, fail: float, kinds: Sequence[int] | None = None) -> Stragglers:
    """Judge every rank against its peers of the same kind (`kinds` by rank; None: all are alike); margins are shares.

    A rank without such a peer is held against itself, which never names it; `compared` says how many have one.
    """
    medians = steps.block_medians() / steps.units[:, None]
    groups = groups_of(kinds or [0] * steps.ranks)
    ratios = np.ones_like(medians)
    for members in groups:
        ratios[members] = medians[members] / peers_of(medians[members])
    needed = blocks_needed(steps.ranks, steps.blocks)
    ranks = _judged(ratios, warn, fail, needed, steps.block_begin_s)
    majority, kind = max(
        ((_majority(medians[members], fail, needed, ranks, members), members) for members in groups),
        key=lambda found: len(found[0]),
    )
    return Stragglers(
        state=_overall(ranks, needed, warn, majority_slow=bool(majority)),
        blocks=steps.blocks,
        needed=needed,
        ranks=ranks,
        majority_slow=len(majority),
        majority=majority,
        majority_of=len(kind) if majority else 0,
        compared=sum(len(members) for members in groups if len(members) > 1),
        detectable=warn + detectable_spread(ratios),
    )


def groups_of(kinds: Sequence[int]) -> list[NDArray[np.intp]]:
    """Ranks of each kind."""
    numbers = np.asarray(kinds)
    return [np.flatnonzero(numbers == kind) for kind in dict.fromkeys(kinds)]


def peers_by_kind(
    values: Array, kinds: Sequence[int], *, slow_is_low: bool = False, apart: Sequence[int] = ()
) -> Array:
    """(ranks,): what each rank's value is held against by the rule of `peers_of`, within its kind and among those that
    were measured; NaN where there is none, or no peer.

    Ranks `apart`, a slow majority, are nobody's peers and held against the median of the others.
    """
    sign = -1.0 if slow_is_low else 1.0
    peers = np.full(len(values), np.nan)
    for members in groups_of(kinds):
        measured = members[~np.isnan(values[members])]
        is_apart = np.isin(measured, apart)
        others = measured[~is_apart]
        if len(others) > 0:
            peers[measured[is_apart]] = np.median(values[others])
        if len(others) > 1:
            peers[others] = sign * peers_of(sign * values[others, None])[:, 0]
    return peers


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


def _judged(
    ratios: Array, warn: float, fail: float, needed: int | None, begin_s: Array | None
) -> tuple[RankSpeed, ...]:
    """All ranks at once; ratios are (ranks, blocks), begin_s (blocks,)."""
    over_warn, over_fail = (ratios > 1 + warn).sum(axis=1), (ratios > 1 + fail).sum(axis=1)
    within = (ratios <= 1 + fail).sum(axis=1)
    trends = trends_of(ratios, FALSE_ALARM / len(ratios), warn / 2)
    last = np.median(ratios[:, -max(1, ratios.shape[1] // 4) :], axis=1)
    between_s = _between_quarters(begin_s)
    rows = zip(np.median(ratios, axis=1).tolist(), over_warn, over_fail, within, trends, last.tolist(), strict=True)
    return tuple(
        RankSpeed(
            rank=rank,
            ratio=ratio,
            blocks_over_warn=int(warned),
            blocks_over_fail=int(failed),
            trend=trend,
            state=_state(int(warned), int(failed), int(inside), needed, rising=(rising := (trend or 0.0) > 0)),
            last_ratio=ends,
            lost=trend / ends if trend is not None and rising else None,
            lost_over_s=between_s if rising else None,
        )
        for rank, (ratio, warned, failed, inside, trend, ends) in enumerate(rows)
    )


def _state(over_warn: int, over_fail: int, within: int, needed: int | None, *, rising: bool) -> State:
    if needed is None:
        return "unclear"
    if over_fail >= needed:
        return "fail"
    if over_warn >= needed:
        return "warn"
    if rising:
        return "developing"
    return "ok" if within >= needed else "unclear"


def _between_quarters(begin_s: Array | None) -> float | None:
    """Seconds from the middle of the first quarter of the blocks to the middle of the last."""
    if begin_s is None or len(begin_s) < 4:
        return None
    quarter = len(begin_s) // 4
    return float(np.median(begin_s[-quarter:]) - np.median(begin_s[:quarter]))


def _overall(ranks: tuple[RankSpeed, ...], needed: int | None, warn: float, *, majority_slow: bool) -> State:
    """The worst state of the ranks. One that grows slower, and is within the warning margin yet, does no harm."""
    states = {"ok" if rank.state == "developing" and rank.last_ratio <= 1 + warn else rank.state for rank in ranks}
    if needed is None:
        return "unclear"
    if majority_slow:
        return "fail"
    order: tuple[State, ...] = ("fail", "warn", "unclear", "developing")
    return next((state for state in order if state in states), "ok")


def _majority(
    medians: Array, fail: float, needed: int | None, speeds: Sequence[RankSpeed], members: NDArray[np.intp]
) -> tuple[RankSpeed, ...]:
    """The members of a kind that are above the reference by the fail margin in at least k blocks, when they are more
    than half; `medians` are those of the members.

    With more than half of the ranks slow the median of the others is slow too and names nobody.
    """
    if needed is None or len(medians) < 4:
        return ()
    ratios = medians / np.array([reference_of(block) for block in medians.T])
    over = (ratios > 1 + fail).sum(axis=1)
    slow = np.flatnonzero(over >= needed)
    if len(slow) <= len(medians) / 2:
        return ()
    typical = np.median(ratios, axis=1)
    return tuple(
        replace(speeds[members[i]], ratio=float(typical[i]), blocks_over_fail=int(over[i]), state="fail") for i in slow
    )


def detectable_spread(ratios: Array) -> float:
    """Z sigma_q: what noise adds to the margin, sigma_q being the largest spread of any rank's block ratios and z
    such that a rank slower by that much exceeds the margin in all R blocks with 95 % probability.
    """
    blocks = ratios.shape[1]
    if blocks < 2 or len(ratios) < 2:
        return 0.0
    z = NormalDist().inv_cdf(0.95 ** (1 / blocks))
    return float(z * ratios.std(axis=1, ddof=1).max())
