"""Collectives with nccl-tests' definitions (`gpubalance.record.collectives`), each size checked in a pass of its own.

The time is the mean over ranks of back-to-back operations, one wait at the end. In place where nccl-tests has it and
torch's call can do it; out of place as well where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gpubalance.record.collectives import (
    ELEMENT_BYTES,
    IN_PLACE,
    OUT_OF_PLACE,
    PLACEMENTS,
    CollectiveOptions,
    bus_factor,
    rounded_sizes,
)
from gpubalance.workloads.collective_timing import (
    Times,
    choose_iterations,
    first_line,
    graph_times,
    jitter,
    over_ranks,
    timed,
)
from gpubalance.workloads.context import Context
from gpubalance.workloads.gloo_beside import measure_gloo
from gpubalance.workloads.operations import Buffers, Operation, build
from gpubalance.workloads.timed_loop import FenceCounter, collector_off

RESERVE_BYTES = 2 * 2**30
"""Left free on a GPU for NCCL's own buffers and for comparing."""
RESERVE_CPU_BYTES = 2**28


def run(context: Context) -> None:
    """All collectives at all sizes that fit; a line for each, and one for gloo beside NCCL."""
    options = context.job.collectives
    sizes = fitting(context, options)
    work = Work(context, options)
    if sizes:
        buffers = Buffers(sizes[-1], options.dtype, context.device, two=needs_two(options))
        for name, placement in planned(options):
            for size in rounded_sizes(name, sizes, context.world, ELEMENT_BYTES[options.dtype]):
                if not work.measure(build(name, placement, size, context, buffers)):
                    break
        del buffers
    if context.device.type == "cuda":
        torch.cuda.empty_cache()
        measure_gloo(context, work.fences, sizes)


def planned(options: CollectiveOptions) -> Iterator[tuple[str, str]]:
    """Collectives and placements, in order."""
    for name in options.names:
        placements = PLACEMENTS.get(name, (IN_PLACE,))
        for placement in placements if options.every_placement else placements[-1:]:
            yield name, placement


def needs_two(options: CollectiveOptions) -> bool:
    """Whether something lies out of place."""
    return any(placement == OUT_OF_PLACE for _, placement in planned(options))


def fitting(context: Context, options: CollectiveOptions) -> list[int]:
    """The sizes that every rank has room for; the others are told as skipped."""
    usable = min(context.gather(_usable_bytes(context))) // (2 if needs_two(options) else 1)
    fits = [size for size in options.sizes if size <= usable]
    if len(fits) < len(options.sizes) and context.rank == 0:
        smallest = next(size for size in options.sizes if size > usable)
        context.log.write(
            "skipped",
            what=f"collectives of {smallest} bytes and more",
            reason=f"the rank with least free memory has room for {max(0, usable)} bytes a buffer",
        )
    return fits


def _usable_bytes(context: Context) -> int:
    if context.device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0] - RESERVE_BYTES
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1]) // context.world - RESERVE_CPU_BYTES
    return 0


class Work:
    """Measures one operation after another; remembers which collectives cannot be captured."""

    def __init__(self, context: Context, options: CollectiveOptions) -> None:
        self.context = context
        self.options = options
        self.fences = FenceCounter(context.log)
        self._without_graph: set[str] = set()

    def measure(self, operation: Operation) -> bool:
        """Check it, time it, write its lines. False when the backend does not have it."""
        context = self.context
        self.fences.what = operation.name
        with torch.no_grad():
            checked = self._checked(operation)
            if checked is None:
                return False
            with collector_off():
                iterations = self._iterations(operation)
                times = timed(context, self.fences, operation.run, iterations)
                shaken = jitter(context, self.fences, operation.run, iterations) if self.options.jitter else None
                self._log(operation, "eager", iterations, times, {**checked, "jitter": shaken})
                if context.device.type == "cuda" and operation.name not in self._without_graph:
                    self._graph(operation, times.device_s, checked)
        return True

    def _iterations(self, operation: Operation) -> int:
        return choose_iterations(self.context, self.fences, operation.run, compat=self.options.compat)

    def _checked(self, operation: Operation) -> dict[str, Any] | None:
        """One operation on fresh data, which is not timed; None over gloo where torch refuses it."""
        context = self.context
        operation.fill()
        try:
            with self.fences.entering():
                operation.run(0)
                context.clock.wait()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if context.job.backend != "gloo" or _is_broken(error):
                raise
            context.log.left()
            self._skip(f"{operation.name} of {self.options.dtype} over gloo", first_line(error))
            return None
        found = operation.wrong()
        every = context.gather((found.elements, found.first))
        bad = next((rank for rank, (count, _) in enumerate(every) if count), None)
        return {
            "wrong_elements": sum(count for count, _ in every),
            "first_wrong_rank": bad,
            "first_wrong_index": None if bad is None else every[bad][1],
        }

    def _graph(self, operation: Operation, eager_s: float, checked: dict[str, Any]) -> None:
        result = graph_times(self.context, self.fences, operation, eager_s)
        if isinstance(result, str):
            self._without_graph.add(operation.name)
            self._skip(f"graph of {operation.name}", result)
            return
        self._log(operation, "graph", *result, checked)

    def _skip(self, what: str, reason: str) -> None:
        if self.context.rank == 0:
            self.context.log.write("skipped", what=what, reason=reason)

    def _log(self, operation: Operation, mode: str, iterations: int, times: Times, more: dict[str, Any]) -> None:
        context, clock = self.context, "host" if self.options.compat else "device"
        found = over_ranks(context, times)
        time_us = found[f"{clock}_time_us"]
        bandwidth = operation.size_bytes / time_us / 1e3
        if context.rank != 0:
            return
        context.log.write(
            "collective",
            collective=operation.name,
            backend=context.job.backend,
            mode=mode,
            placement=operation.placement,
            ranks=context.world,
            size_bytes=operation.size_bytes,
            dtype=self.options.dtype,
            iterations=iterations,
            time_us=time_us,
            time_max_us=found[f"{clock}_time_max_us"],
            clock=clock,
            algorithm_bandwidth_gb_per_s=bandwidth,
            bus_bandwidth_gb_per_s=bandwidth * bus_factor(operation.name, context.world),
            **found,
            **more,
        )


def _is_broken(error: BaseException) -> bool:
    """A peer that went away, which is no word about what gloo can do."""
    return any(word in str(error) for word in ("Connection", "closed by peer", "imed out", "Read error", "reset"))
