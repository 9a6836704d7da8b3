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
    device_ms = [solo.graph_step_ms for solo in sorted(run.solo, key=lambda solo: solo.rank)]
    known = [value for value in device_ms if value is not None]
    if len(known) < len(device_ms):
        return Utilization(None, (None,) * len(device_ms), (), run.solo[0].graph_missing)
    bound = tuple(s.eager_step_ms > HOST_BOUND * (s.graph_step_ms or 0) for s in run.solo)
    useful = tuple(None if step_ms is None else min(1.0, value / step_ms) for value in known)
    return Utilization(100 * sum(known) / len(known) / max(known), useful, bound)
