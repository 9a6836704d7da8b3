"""The same message through gloo, from and to host memory: what a run would get that fell back to it by mistake."""

from __future__ import annotations

import torch
import torch.distributed as dist

from gpubalance.record.collectives import bus_factor
from gpubalance.workloads.collective_timing import over_ranks, timed
from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import FenceCounter

SIZE = 64 * 2**20
"""Large enough that launching does not count, and 40 ms an operation on two ranks."""
ITERATIONS = 3


def measure_gloo(context: Context, fences: FenceCounter, sizes: list[int]) -> None:
    """An all_reduce of 64 MiB of float32 through the default group, where NCCL's was measured as well."""
    options = context.job.collectives
    if SIZE not in sizes or "all_reduce" not in options.names or options.dtype != "float32":
        if context.rank == 0:
            reason = "needs NCCL's all_reduce of 64 MiB in float32 to stand beside"
            context.log.write("skipped", what="gloo beside NCCL", reason=reason)
        return
    buffer = torch.full((SIZE // 4,), float(context.rank + 1))
    fences.what = "all_reduce over gloo"
    with fences.entering():
        dist.all_reduce(buffer)
    expected = context.world * (context.world + 1) / 2
    wrong = sum(context.gather(int((buffer != expected).sum())))
    buffer.zero_()
    found = over_ranks(context, timed(context, fences, lambda _: dist.all_reduce(buffer), ITERATIONS))
    if context.rank == 0:
        bandwidth = SIZE / found["host_time_us"] / 1e3
        context.log.write(
            "collective",
            collective="all_reduce",
            backend="gloo",
            mode="eager",
            placement="in_place",
            ranks=context.world,
            size_bytes=SIZE,
            dtype="float32",
            iterations=ITERATIONS,
            time_us=found["host_time_us"],
            time_max_us=found["host_time_max_us"],
            clock="host",
            host_time_us=found["host_time_us"],
            host_time_max_us=found["host_time_max_us"],
            algorithm_bandwidth_gb_per_s=bandwidth,
            bus_bandwidth_gb_per_s=bandwidth * bus_factor("all_reduce", context.world),
            wrong_elements=wrong,
        )
