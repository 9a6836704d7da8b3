"""What the host spends on this process between two moments."""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class HostMeter:
    """One moment: wall clock, and the process's own time and context switches so far (getrusage, all threads)."""

    wall_s: float
    cpu_s: float
    voluntary: int
    involuntary: int
    queued_s: float | None

    @classmethod
    def now(cls) -> HostMeter:
        """Read all meters."""
        use = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.monotonic(), use.ru_utime + use.ru_stime, use.ru_nvcsw, use.ru_nivcsw, _queued_s())

    def since(self, before: HostMeter) -> dict[str, float | None]:
        """What was used between the two, as `record.timings.HostUse` has it."""
        return {
            "wall_s": round(self.wall_s - before.wall_s, 6),
            "cpu_s": round(self.cpu_s - before.cpu_s, 6),
            "voluntary_switches": self.voluntary - before.voluntary,
            "involuntary_switches": self.involuntary - before.involuntary,
            "queued_s": None
            if self.queued_s is None or before.queued_s is None
            else round(max(0.0, self.queued_s - before.queued_s), 6),
        }


def _queued_s() -> float | None:
    """Time that threads of this process had work and no core so far, added up, because autograd launches the backward
    pass from a thread of its own; None where the kernel does not count it.

    The second number of schedstat: https://docs.kernel.org/scheduler/sched-stats.html
    """
    queued_ns = []
    for thread in THREADS.iterdir():
        with suppress(OSError, IndexError):  # a thread that ends meanwhile takes its time with it
            queued_ns.append(int((thread / "schedstat").read_text().split()[1]))
    return sum(queued_ns) / 1e9 if queued_ns else None
