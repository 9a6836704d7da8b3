"""Was the run long enough to see what heat does? A GPU that throttles when it is hot is fast while it is cold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.record.run import Run

LONG_ENOUGH_S = 60.0
"""Load after which thermal limits show. Ours: heat sinks of air-cooled GPUs settle within one to two minutes."""

STILL_RISING_C = 1.0
"""Rise of temperature over `LOOK_BACK_S` at the end of the load from which on it has not settled. Ours."""

LOOK_BACK_S = 10.0
_LOADED = ("solo", "ddp")


@dataclass(frozen=True)
class ThermalReach:
    """How long the devices worked, and whether they were still getting warmer at the end."""

    loaded_s: float | None
    """Of the first pass: time in the phases that load every device. None where no GPU worked."""
    rising_c: float | None
    """Largest rise of any device's temperature over the last 10 s of the load; None where it was not read."""

    @property
    def too_short(self) -> bool:
        """True when thermal limits may lie beyond what was seen."""
        if self.loaded_s is None:
            return False
        return self.loaded_s < LONG_ENOUGH_S or (self.rising_c or 0.0) > STILL_RISING_C


NOT_LOADED = ThermalReach(None, None)
"""Where no GPU worked."""


def thermal_reach(run: Run) -> ThermalReach:
    """Time under load and the rise of temperature at its end."""
    phases = [p for p in run.phases if p.name in _LOADED and p.attempt == 0 and p.end_s is not None]
    if run.plan.backend == "gloo" or not phases:
        return NOT_LOADED
    end_s = max(phase.end_s or 0.0 for phase in phases)
    loaded_s = sum((phase.end_s or 0.0) - phase.begin_s for phase in phases)
    rises = [
        rise
        for samples in run.samples.devices
        if (rise := _rise(run.samples.t_s, samples.columns.get("temperature_c", []), end_s)) is not None
    ]
    return ThermalReach(loaded_s, max(rises, default=None))


def _rise(t_s: Sequence[float], column: Sequence[float | int | None], end_s: float) -> float | None:
    """Change over the last 10 s before the end by a straight line through the readings, in degrees."""
    read = [(t, v) for t, v in zip(t_s, column, strict=False) if v is not None and end_s - LOOK_BACK_S <= t <= end_s]
    if len(read) < 3 or read[-1][0] - read[0][0] < LOOK_BACK_S / 2:
        return None
    times, values = zip(*read, strict=True)
    return statistics.linear_regression(times, values).slope * LOOK_BACK_S
