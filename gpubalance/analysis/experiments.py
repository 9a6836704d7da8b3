"""What a variable costs, from both sides of an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.record.experiment import Experiment

SAME = 0.05
"""Rates within 5 % of each other are called the same: one pass each does not tell smaller differences (ours)."""


@dataclass(frozen=True)
class Cost:
    """Bus bandwidth of one size without the variable's effect and with it, GB/s, and the first over the second."""

    size_bytes: int
    as_nccl_does_gb_per_s: float
    switched_off_gb_per_s: float

    @property
    def factor(self) -> float:
        """How many times faster it is as NCCL does it by itself."""
        return self.as_nccl_does_gb_per_s / self.switched_off_gb_per_s

    @property
    def is_same(self) -> bool:
        """Neither way is faster."""
        return abs(self.factor - 1) <= SAME


def costs_of(experiment: Experiment) -> list[Cost]:
    """One for each size that both sides have and summed rightly, small sizes first."""
    if len(experiment.arms) != 2:
        return []
    on, off = (
        {row.size_bytes: row.bus_bandwidth_gb_per_s for row in arm.rows if not row.wrong_elements}
        for arm in experiment.arms
    )
    return [Cost(size, on[size], off[size]) for size in sorted(on.keys() & off.keys())]
