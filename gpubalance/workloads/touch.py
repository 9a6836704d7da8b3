"""An all-reduce of each of the job's sizes, checked and timed: whether these ranks reach each other at all, and how
fast. Small enough to be repeated in fresh processes after a hang, with one switch after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.distributed as dist

from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import ALL_REDUCE, FenceCounter, collector_off

MINIMUM_S = 0.1
"""A size is repeated until the loop is long against its own ends and against noise."""

FIRST, LEAST = 3, 5


def run(context: Context) -> None:
    """One line a size. An error of any rank, or a wrong sum, is the answer that is looked for."""
    fences = FenceCounter(context.log)
    for size in context.job.touch_bytes:
        if not _fits(context, size):
            context.log.write("skipped", what=f"all_reduce of {size} bytes", reason="a device has too little memory")
            continue
        _touch(context, fences, size)
    if context.device.type == "cuda":
        torch.cuda.empty_cache()


def _fits(context: Context, size: int) -> bool:
    """The buffer, its pattern and what comparing them takes."""
    free = torch.cuda.mem_get_info()[0] if context.device.type == "cuda" else 8 * size
    return all(rank_free > 6 * size for rank_free in context.gather(free))


def _touch(context: Context, fences: FenceCounter, size: int) -> None:
    """Sums of small whole numbers that differ from rank to rank are exact in float32."""
    pattern = (torch.arange(size // 4, device=context.device) % 13).float()
    buffer = pattern + context.rank
    with fences.entering(ALL_REDUCE):
        dist.all_reduce(buffer, group=context.data)
        context.clock.wait()
    expected = pattern * context.world + context.world * (context.world - 1) / 2
    wrong = sum(context.gather(int((buffer != expected).sum())))
    buffer.zero_()  # sums of sums would grow beyond float32

    def step() -> None:
        dist.all_reduce(buffer, group=context.data)

    with collector_off():
        first_s = context.agree_on_max(_seconds(context, fences, step, FIRST))
        seconds = _seconds(context, fences, step, max(LEAST, math.ceil(MINIMUM_S / first_s)))
    times = context.gather(seconds)
    mean = sum(times) / len(times)
    factor = 2 * (context.world - 1) / context.world
    context.log.write(
        "touch",
        size_bytes=size,
        time_us=1e6 * mean,
        bus_bandwidth_gb_per_s=size / mean / 1e9 * factor,
        wrong_elements=wrong,
    )


def _seconds(context: Context, fences: FenceCounter, step: Callable[[], None], iterations: int) -> float:
    """Seconds of one all-reduce on this rank, from so many back to back after one that brings the ranks together."""
    with fences.entering(ALL_REDUCE):
        context.meet()
        step()
        begin = context.clock.mark()
        for _ in range(iterations):
            step()
        end = context.clock.mark()
        context.clock.wait()
    return context.clock.milliseconds(begin, end) / 1000 / iterations
