"""The clocks of the machine at the start of a run, and how far each of them went until its end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpubalance.record.run import Clocks


@dataclass(frozen=True)
class ClockMark:
    """A moment by three clocks, in seconds."""

    monotonic_s: float
    wall_s: float
    boottime_s: float | None
    """None where the system has no clock that goes on while it is suspended."""

    def until(self, end: ClockMark) -> Clocks:
        """How far each clock went from here to there."""
        slept = None if self.boottime_s is None or end.boottime_s is None else end.boottime_s - self.boottime_s
        return Clocks(
            monotonic_s=round(end.monotonic_s - self.monotonic_s, 3),
            wall_s=round(end.wall_s - self.wall_s, 3),
            boottime_s=None if slept is None else round(slept, 3),
        )


def clock_mark() -> ClockMark:
    """Now."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return ClockMark(time.monotonic(), time.time(), None if boottime is None else time.clock_gettime(boottime))
