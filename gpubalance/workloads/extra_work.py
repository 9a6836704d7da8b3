"""Extra work on the device in units whose time is known, so that a fault is a share of a healthy step."""

from __future__ import annotations

import torch

from gpubalance.workloads.clock import Clock
from gpubalance.workloads.timed_loop import quiet_step

UNIT_EDGE = {"cuda": 2048, "cpu": 128}
"""Edge of the square matrices whose product is one unit of extra work: 0.3 % of a default step on an H200."""

GROUPS, STEPS = 10, 20


class ExtraWork:
    """Products of random matrices in the stream of the step. Calibrated once, for all faults of this rank."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self.device, self.clock = device, clock
        self._operand = self._out = torch.empty(0)
        self._step_ms = self._unit_ms = 0.0

    def calibrate(self, step_ms: float) -> None:
        """Time one unit; `step_ms` is the healthy local step that percents are meant of."""
        edge = UNIT_EDGE[self.device.type]
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self._operand = torch.randn(edge, edge, device=self.device).to(dtype)
        self._out = torch.empty_like(self._operand)
        self._step_ms, self._unit_ms = step_ms, self._time_unit()

    def _time_unit(self) -> float:
        return quiet_step(lambda: self.do(1), self.clock, GROUPS, STEPS, shared=self.device.type == "cpu")

    def units(self, percent: float) -> int:
        """How many units make this share of a healthy step, at least one: a fault that is played does something."""
        if not percent:
            return 0
        assert self._unit_ms, "calibrated before a fault is played"
        return max(1, round(percent / 100 * self._step_ms / self._unit_ms))

    def do(self, units: int) -> None:
        """Give so many units to the device; can be captured in a CUDA graph."""
        for _ in range(units):
            torch.mm(self._operand, self._operand, out=self._out)
