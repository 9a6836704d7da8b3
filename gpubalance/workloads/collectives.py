"""Collectives with nccl-tests' definitions: algbw = S / t, busbw = algbw x factor, GB = 1e9 bytes, sizes binary.

S is what nccl-tests counts: the whole buffer of a rank for all_reduce, the large side for the other two. The time is
the mean over ranks of back-to-back operations, one wait at the end; before the clock starts, one operation that is
not timed brings all ranks together on the device. In-place where nccl-tests has it. Each size is checked in a pass of
its own with small rank-dependent integers, whose sums are exact.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import FenceCounter, collector_off

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = {"nccl": (8 * KIB, 64 * MIB, GIB), "gloo": (8 * KIB, MIB, 16 * MIB)}
NAMES = ("all_reduce", "all_gather", "reduce_scatter")
ITERATIONS = 20
MINIMUM_S = 0.04
"""Small operations are repeated until the loop is long against its own ends."""

ALIGNMENT = 16
"""nccl-tests rounds the count of a rank down to 16 bytes."""


@dataclass(frozen=True)
class Operation:
    """One collective on its buffers: `run` does it once, `fill` prepares it, `wrong` counts wrong elements."""

    name: str
    size_bytes: int
    run: Callable[[], object]
    fill: Callable[[], object]
    wrong: Callable[[], int]


def bus_factor(name: str, ranks: int) -> float:
    """Busbw / algbw: 2(n-1)/n for all_reduce, (n-1)/n for the other two."""
    share = (ranks - 1) / ranks
    return 2 * share if name == "all_reduce" else share


def run(context: Context) -> None:
    """All collectives at all sizes; a line for each."""
    fences = FenceCounter(context.log)
    for size in SIZES[context.job.backend]:
        if not _fits(context, size):
            context.log.write(
                "skipped", what=f"collectives of {size} bytes", reason="a device has too little free memory"
            )
            continue
        for name in NAMES:
            _measure(context, fences, build(name, size, context))
    if context.device.type == "cuda":
        torch.cuda.empty_cache()


def _fits(context: Context, size: int) -> bool:
    """Every rank must have the buffers twice over."""
    free = torch.cuda.mem_get_info()[0] if context.device.type == "cuda" else 8 * size
    return all(rank_free > 4 * size for rank_free in context.gather(free))


def build(name: str, size: int, context: Context) -> Operation:
    """The operation on float32, in place: one buffer, and this rank's part of it."""
    ranks, rank = context.world, context.rank
    parts = 1 if name == "all_reduce" else ranks
    count = size // parts // ALIGNMENT * ALIGNMENT // 4
    whole = torch.empty(count * parts, device=context.device)
    part = whole if parts == 1 else whole[rank * count : (rank + 1) * count]
    pattern = (torch.arange(count, device=context.device) % 13).float()
    own = pattern + rank
    total = pattern * ranks + ranks * (ranks - 1) / 2

    def fill() -> None:
        if name == "reduce_scatter":
            whole.view(parts, count).copy_(own.expand(parts, count))
        else:
            part.copy_(own)

    def wrong() -> int:
        if name == "all_gather":
            offsets = torch.arange(ranks, device=context.device, dtype=torch.float32).view(ranks, 1)
            return int((whole.view(ranks, count) != pattern + offsets).sum())
        return int((part != total).sum())

    operations: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=context.data),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=context.data),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=context.data),
    }
    return Operation(name, count * parts * 4, operations[name], fill, wrong)


def _measure(context: Context, fences: FenceCounter, operation: Operation) -> None:
    operation.fill()
    try:
        with fences.entering():
            operation.run()
            context.clock.wait()
    except (RuntimeError, ValueError) as error:
        if context.job.backend != "gloo":
            raise
        context.log.left()
        context.log.write("skipped", what=f"{operation.name} over gloo", reason=str(error).splitlines()[0])
        return
    wrong = sum(context.gather(operation.wrong()))
    with collector_off():
        first_s = context.agree_on_max(_seconds(context, fences, operation.run, 5))
        iterations = max(ITERATIONS, math.ceil(MINIMUM_S / first_s))
        _log(
            context,
            operation,
            "eager",
            iterations,
            _seconds(context, fences, operation.run, iterations),
            wrong,
        )
        if context.device.type == "cuda":
            _log(context, operation, "graph", *_graph(context, fences, operation), wrong)


def _seconds(context: Context, fences: FenceCounter, run: Callable[[], object], iterations: int) -> float:
    """Seconds of one operation on this rank, from `iterations` of them back to back."""
    with fences.entering():
        context.meet()
        run()
        begin = context.clock.mark()
        for _ in range(iterations):
            run()
        end = context.clock.mark()
        context.clock.wait()
    return context.clock.milliseconds(begin, end) / 1000 / iterations


def _graph(context: Context, fences: FenceCounter, operation: Operation) -> tuple[int, float]:
    """The same loop captured in a CUDA graph: no launch cost of the host in it.

    The graph is dropped before this returns: one that holds NCCL work makes destroy_process_group wait for ever.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(ITERATIONS):
            operation.run()
    seconds = _seconds(context, fences, graph.replay, 3) / ITERATIONS
    graph.reset()
    del graph
    torch.cuda.synchronize()
    return 3 * ITERATIONS, seconds


def _log(context: Context, operation: Operation, mode: str, iterations: int, seconds: float, wrong: int) -> None:
    times = context.gather(seconds)
    mean = sum(times) / len(times)
    bandwidth = operation.size_bytes / mean / 1e9
    if context.rank != 0:
        return
    context.log.write(
        "collective",
        collective=operation.name,
        backend=context.job.backend,
        mode=mode,
        ranks=context.world,
        size_bytes=operation.size_bytes,
        dtype="float32",
        iterations=iterations,
        time_us=1e6 * mean,
        time_max_us=1e6 * max(times),
        algorithm_bandwidth_gb_per_s=bandwidth,
        bus_bandwidth_gb_per_s=bandwidth * bus_factor(operation.name, context.world),
        wrong_elements=wrong,
    )
