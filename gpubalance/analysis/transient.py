"""Slowness that comes and goes: what it costs, and whether it is more than the ranks' ordinary jitter must cost.

The maximum of several noisy ranks is always later than their median: 1.42 sigma for eight. That loss is real, but it
is nobody's fault; the gate starts at twice of what it would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpubalance.analysis.balance import Balance, blame
from gpubalance.analysis.common_mode import robust_sigma
from gpubalance.analysis.steps import Array, Steps
from gpubalance.thresholds import Gates

ALLOWANCES = 2
SHUFFLES = 20
MOST_DRAWS = 10_000_000
"""Residuals drawn in all: of thousands of ranks a few shuffles say as much as twenty of eight (ours)."""
TRIM_SIGMAS = 3.0
"""Residuals beyond this are the events that the gate is for; they are not part of ordinary jitter."""

Class = Literal["healthy", "intermittent", "rotating"]


@dataclass(frozen=True)
class Transient:
    """The transient loss against what jitter alone would cost; shares of the step."""

    loss: float
    allowance: float
    """What independent jitter of each rank would cost."""
    gate_warn: float
    gate_fail: float
    """Losses above which it warns and fails: the fixed gate or twice the allowance, whichever is larger."""
    state: Literal["ok", "warn", "fail"]
    kind: Class
    rank: int | None
    """The rank with more than half of the blame, when there is one."""


def find_transient(
    steps: Steps, balance: Balance, *, on_cpu: bool, gates: Gates | None = None, seed: int = 0
) -> Transient:
    """Judge the transient loss of one attempt; without gates under the defaults."""
    medians = steps.medians()
    ordinary, _ = steps.ordinary
    flat = ordinary.reshape(steps.ranks, -1)
    loss = (balance.slowest_ms - float(medians.max())) / balance.step_ms
    allowance = jitter_cost(flat, medians, seed) / balance.step_ms
    fixed = (gates or Gates(on_cpu=on_cpu)).pair("transient")
    warn, fail = (max(gate, ALLOWANCES * allowance) for gate in fixed)
    if steps.ranks < 2 or loss <= warn:
        return Transient(loss, allowance, warn, fail, "ok", "healthy", None)
    rank = _leading(blame(flat, float(medians.max())))
    kind: Class = "rotating" if rank is None else "intermittent"
    return Transient(loss, allowance, warn, fail, "fail" if loss > fail else "warn", kind, rank)


def jitter_cost(compute: Array, medians: Array, seed: int) -> float:
    """Milliseconds a step that independent jitter of the ranks would cost: the mean of the slowest of shuffled,
    trimmed residuals, less the slowest median. (ranks, steps) in.
    """
    relative = compute / medians[:, None]
    kept, counts = _trimmed(relative)
    count = int(counts.min())
    shuffles = max(1, min(SHUFFLES, MOST_DRAWS // (len(kept) * count)))
    generator = np.random.default_rng(seed)
    costs = []
    for _ in range(shuffles):
        drawn = generator.integers(0, counts[:, None], size=(len(kept), count))
        costs.append(float((np.take_along_axis(kept, drawn, axis=1) * medians[:, None]).max(axis=0).mean()))
    return max(0.0, float(np.mean(costs)) - float(medians.max()))


def _trimmed(relative: Array) -> tuple[Array, NDArray[np.int64]]:
    """By rank, the residuals within `TRIM_SIGMAS` first, in their order, and how many they are; at least the middle."""
    middle, sigma = np.median(relative, axis=1), robust_sigma(relative, axis=1)
    inside = np.abs(relative - middle[:, None]) <= TRIM_SIGMAS * sigma[:, None]
    counts = inside.sum(axis=1)
    kept = np.take_along_axis(relative, np.argsort(~inside, axis=1, kind="stable"), axis=1)
    kept[counts == 0, 0] = middle[counts == 0]
    return kept, np.maximum(counts, 1)


def _leading(parts: Array) -> int | None:
    """The rank that answers for more than half of what lies above the slowest median."""
    above = np.maximum(parts, 0.0)
    total = float(above.sum())
    if total <= 0:
        return None
    leader = int(above.argmax())
    return leader if float(above[leader]) > total / 2 else None
