"""Rows of values that rise or fall all the time, and rows whose neighbours are alike."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from gpubalance.analysis.steps import Array

FEWEST = 8
"""Values below which no trend is looked for."""


def trends_of(rows: Array, alpha: float, smallest: float) -> list[float | None]:
    """By row of (rows, values): the change from the first to the last quarter when the values rise or fall steadily
    (Mann-Kendall test, two-sided), or None when the trend is not significant or below `smallest`. See Mann (1945),
    Kendall (1975).
    """
    count = rows.shape[1]
    if count < FEWEST:
        return [None] * len(rows)
    s = np.zeros(len(rows))
    for lag in range(1, count):
        s += np.sign(rows[:, lag:] - rows[:, :-lag]).sum(axis=1)
    sigma = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    quarter = count // 4
    change = np.median(rows[:, -quarter:], axis=1) - np.median(rows[:, :quarter], axis=1)
    chance = NormalDist()
    return [
        float(size) if abs(size) >= smallest and 2 * (1 - chance.cdf((abs(each) - 1) / sigma)) <= alpha else None
        for each, size in zip(s, change, strict=True)
    ]
