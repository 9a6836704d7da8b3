"""Marks in time on the device where the work is: events on a CUDA stream, the host's clock on a CPU.

A duration is always the difference of two marks of one device, so that no two clocks are ever compared.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

Mark = Any


class Clock(Protocol):
    """Marks the stream of work; `milliseconds` is valid once `wait` has returned."""

    def mark(self) -> Mark:
        """Put a mark behind all work that was given to the device so far."""
        ...

    def milliseconds(self, begin: Mark, end: Mark) -> float:
        """Time between two marks."""
        ...

    def wait(self) -> None:
        """Return when the device has done all its work."""
        ...

    def reach(self, mark: Mark) -> None:
        """Return when the device has come to this mark; what was given to it later may still run."""
        ...

    def host_ns(self, mark: Mark) -> int:
        """The host's nanoseconds at a mark that was made just now."""
        ...


class CudaClock:
    """CUDA events on the current stream; the resolution is 0.5 us (cudaEventElapsedTime)."""

    def mark(self) -> torch.cuda.Event:
        """Record an event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Time between two events."""
        return float(begin.elapsed_time(end))

    def wait(self) -> None:
        """Wait for the current device."""
        torch.cuda.synchronize()

    def reach(self, mark: torch.cuda.Event) -> None:
        """Wait for this event alone."""
        mark.synchronize()

    def host_ns(self, mark: torch.cuda.Event) -> int:  # noqa: ARG002  (an event knows the device's time only)
        """Nanoseconds now."""
        return time.perf_counter_ns()


class HostClock:
    """The monotonic clock of the host; work on a CPU is done when the call returns."""

    def mark(self) -> int:
        """Nanoseconds now."""
        return time.perf_counter_ns()

    def milliseconds(self, begin: int, end: int) -> float:
        """Time between two marks."""
        return (end - begin) / 1e6

    def wait(self) -> None:
        """Nothing is ever outstanding."""

    def reach(self, mark: int) -> None:
        """It is behind us."""

    def host_ns(self, mark: int) -> int:
        """The mark itself."""
        return mark
