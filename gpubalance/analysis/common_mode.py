"""What slows all ranks in one step is no imbalance: it is divided out before ranks are held against each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

COMMON_MODE_SHARE = 0.05
"""A step in which even the lower median of the ranks is slower than this is slow for everybody."""


def remove_common_mode(compute: Array, medians: Array) -> tuple[Array, float]:
    """Divide out what slows all ranks in one step, and return the share of time that is left.

    l is the lower median over ranks of A / m; it counts when it exceeds 1 + max(5 %, 4 sigma), sigma being the
    median over ranks of the robust spread of that rank's own steps.
    """
    relative = (compute / medians[:, None, None]).reshape(len(medians), -1)
    place = (len(medians) - 1) // 2
    lower = np.partition(by_step(relative), place, axis=1)[:, place].reshape(compute.shape[1:])
    spread = np.median(robust_sigma(relative, axis=1))
    factor = np.where(lower > 1 + max(COMMON_MODE_SHARE, 4 * float(spread)), lower, 1.0)
    ordinary = compute / factor
    return ordinary, float(ordinary.max(axis=0).mean() / compute.max(axis=0).mean())


def robust_sigma(values: Array, axis: int = 0) -> Array:
    """1.4826 x the median absolute deviation along an axis: the standard deviation, were the values normal."""
    middle = np.median(values, axis=axis, keepdims=True)
    return np.asarray(1.4826 * np.median(np.abs(values - middle), axis=axis))


def by_step(compute: Array) -> Array:
    """(steps, ranks) from (ranks, steps), in memory as well: sorting along a stride takes several times as long."""
    return np.ascontiguousarray(compute.T)
