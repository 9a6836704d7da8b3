"""Useful utilization: the share of a real step in which a device computes, whatever NVML says meanwhile.

A rank that waits inside NCCL reads 100 % NVML utilization. The device time of the step comes from replays of a CUDA
graph, which has no host and no waiting in it; over the real step time it is what the device was useful for.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.record.run import Run


@dataclass(frozen=True)
class Utilization:
    """Evenness (score) and level are two numbers: all devices at 7 % are even but starved."""

    score: float | None
    """100 x mean D / max D over devices (POP's device load balance)."""
    useful: tuple[float | None, ...]
    """By rank: D / T, 0 to 1."""
    host_bound: tuple[bool, ...]
    """By rank: launching the step takes longer than computing it, so that it says little about the device."""
    missing: str | None = None


HOST_BOUND = 2.0
"""Eager step over device time from which on the launch overhead is larger than the compute."""


def utilization_of(run: Run, step_ms: float | None) -> Utilization:
    """Useful utilization of each rank's device, from the solo phase and the overlapped step."""
    if not run.solo:
        return Utilization(None, (), (), "the solo phase did not run")
    by_rank = sorted(run.solo, key=lambda solo: solo.rank)
    known = [solo.graph_step_ms for solo in by_rank if solo.graph_step_ms is not None]
    if len(known) < len(by_rank):
        reason = next(solo.graph_missing for solo in by_rank if solo.graph_step_ms is None)
        return Utilization(None, (None,) * len(by_rank), (), reason or "a graph was not replayed")
    bound = tuple(solo.eager_step_ms > HOST_BOUND * (solo.graph_step_ms or 0) for solo in by_rank)
    useful = tuple(None if step_ms is None else min(1.0, value / step_ms) for value in known)
    return Utilization(100 * sum(known) / len(known) / max(known), useful, bound)
