"""Each rank against what its own device used to be: the sign test of stragglers, on m / m_baseline.

    h[i, r] = m[i, r] / m_baseline[device of r]       margins are wider by 2 %

The 2 % are for clocks, which follow the temperature of the room by day and night.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpubalance.analysis.steps import Array, arrays_of
from gpubalance.analysis.stragglers import State, blocks_needed
from gpubalance.record.run import Run
from gpubalance.record.timings import DdpAttempt

EXTRA_MARGIN = 0.02


@dataclass(frozen=True)
class OwnSpeed:
    """One rank against the history of its device."""

    rank: int
    device: int
    ratio: float
    """Median over blocks: 1.2 is 20 % slower than it used to be."""
    blocks_over_warn: int
    blocks_over_fail: int
    state: State


@dataclass(frozen=True)
class AttemptHistory:
    """One pass of the ddp phase against history."""

    blocks: int
    needed: int | None
    """k of the sign test; None when there are too few blocks."""
    warn: float
    fail: float
    """Margins, the extra one included."""
    ranks: tuple[OwnSpeed, ...]


def history_of(run: Run, earlier_ms: Mapping[int, float], warn: float, fail: float) -> tuple[AttemptHistory, ...]:
    """Every attempt of the run against the compute time (ms a unit) that each device had before, by index into the
    plan's devices. Devices without a history are left out; `warn` and `fail` are the margins of the straggler test.
    """
    return tuple(_attempt(attempt, earlier_ms, warn + EXTRA_MARGIN, fail + EXTRA_MARGIN) for attempt in run.ddp)


def _attempt(attempt: DdpAttempt, earlier_ms: Mapping[int, float], warn: float, fail: float) -> AttemptHistory:
    steps = arrays_of(attempt)
    needed = blocks_needed(steps.ranks, steps.blocks)
    medians = steps.block_medians() / steps.units[:, None]
    ranks = tuple(
        _judge(rank.rank, rank.device, row / earlier_ms[rank.device], warn, fail, needed)
        for rank, row in zip(attempt.ranks, medians, strict=True)
        if rank.device in earlier_ms
    )
    return AttemptHistory(steps.blocks, needed, warn, fail, ranks)


def _judge(rank: int, device: int, ratios: Array, warn: float, fail: float, needed: int | None) -> OwnSpeed:
    over_warn, over_fail = int((ratios > 1 + warn).sum()), int((ratios > 1 + fail).sum())
    state: State = "unclear"
    if needed is not None:
        if over_fail >= needed:
            state = "fail"
        elif over_warn >= needed:
            state = "warn"
        elif len(ratios) - over_fail >= needed:
            state = "ok"
    return OwnSpeed(rank, device, float(np.median(ratios)), over_warn, over_fail, state)
