"""Faults played on purpose, so that everybody can see that the tool finds them.

A fault acts on one rank and in every kind of step alike (alone, fenced, overlapped). Extra work is real work on the
device, next to the step and in its stream; a delay of the host synchronises first, because a host that sleeps while
the device has a queue to work off delays nothing.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import torch

from gpubalance.record.job import Job
from gpubalance.workloads.clock import Clock

UNIT_EDGE = {"cuda": 2048, "cpu": 128}
"""Edge of the square matrices whose product is one unit of extra work: 0.3 % of a default step on an H200."""


@dataclass
class Faults:
    """The faults of one rank. `calibrate` must be called with the healthy step time before extra work can act."""

    device: torch.device
    clock: Clock
    compute_percent: float = 0.0
    sleep_ms: float = 0.0
    memory_percent: float = 0.0
    data_factor: float = 1.0
    transient_percent: float = 0.0
    transient_every: int = 0
    _unit: torch.Tensor | None = None
    _out: torch.Tensor | None = None
    _units: int = 0
    _transient_units: int = 0
    _steps: int = 0
    _held: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def of_rank(cls, job: Job, rank: int, device: torch.device, clock: Clock) -> Faults:
        """The faults that the job plays on this rank."""
        faults = cls(device, clock)
        for fault in job.faults:
            if fault["rank"] != rank:
                continue
            if fault["kind"] == "compute":
                faults.compute_percent = fault["percent"]
            elif fault["kind"] == "sleep":
                faults.sleep_ms = fault["ms"]
            elif fault["kind"] == "memory":
                faults.memory_percent = fault["percent"]
            elif fault["kind"] == "data":
                faults.data_factor = fault["factor"]
            elif fault["kind"] == "transient":
                faults.transient_percent, faults.transient_every = fault["percent"], fault["every"]
        return faults

    def calibrate(self, step_ms: float) -> None:
        """Find out how many units of extra work make the wanted share of a healthy step."""
        if not (self.compute_percent or self.transient_percent):
            return
        edge = UNIT_EDGE[self.device.type]
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self._unit = torch.randn(edge, edge, device=self.device).to(dtype)
        self._out = torch.empty_like(self._unit)
        unit_ms = statistics.median(self._time_units(20) for _ in range(5))
        self._units = round(self.compute_percent / 100 * step_ms / unit_ms)
        self._transient_units = round(self.transient_percent / 100 * step_ms / unit_ms)

    def _time_units(self, count: int) -> float:
        self._work(count)
        begin = self.clock.mark()
        self._work(count)
        end = self.clock.mark()
        self.clock.wait()
        return self.clock.milliseconds(begin, end) / count

    def _work(self, units: int) -> None:
        if self._unit is None or self._out is None:
            return
        for _ in range(units):
            torch.mm(self._unit, self._unit, out=self._out)

    def on_device(self) -> None:
        """Extra work of every step; can be captured in a CUDA graph."""
        self._work(self._units)

    def in_step(self) -> None:
        """Everything that this rank's fault adds to one step."""
        self._steps += 1
        if self.sleep_ms:
            self.clock.wait()
            time.sleep(self.sleep_ms / 1000)
        self.on_device()
        if self.transient_every and self._steps % self.transient_every == 0:
            self._work(self._transient_units)

    def hold_memory(self, capacity_bytes: int) -> None:
        """Take this share of the device's memory and keep it. Raises torch.cuda.OutOfMemoryError."""
        wanted = int(self.memory_percent / 100 * capacity_bytes)
        if wanted and not self._held:
            self._held.append(torch.empty(wanted, dtype=torch.uint8, device=self.device).fill_(1))

    def described(self) -> dict[str, float]:
        """What extra work was found to be needed, for the record."""
        return {"extra_work_units": self._units, "transient_work_units": self._transient_units}
