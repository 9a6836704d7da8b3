"""Every collective once at every size, in processes whose NCCL writes a log: what it chooses, without any clock."""

from __future__ import annotations

import torch

from gpubalance.record.collectives import ELEMENT_BYTES, rounded_sizes
from gpubalance.workloads.collectives import fitting, needs_two, planned
from gpubalance.workloads.context import Context
from gpubalance.workloads.operations import Buffers, build
from gpubalance.workloads.timed_loop import FenceCounter


def run(context: Context) -> None:
    """The operations of the collectives workload; rank 0 tells their order, for versions of NCCL that log no names."""
    options = context.job.collectives
    sizes = fitting(context, options)
    fences = FenceCounter(context.log)
    if not sizes:
        return
    buffers = Buffers(sizes[-1], options.dtype, context.device, two=needs_two(options))
    done: list[tuple[str, int]] = []
    with torch.no_grad():
        for name, placement in planned(options):
            for size in rounded_sizes(name, sizes, context.world, ELEMENT_BYTES[options.dtype]):
                operation = build(name, placement, size, context, buffers)
                with fences.entering(name):
                    operation.run(0)
                    context.clock.wait()
                done.append((name, operation.size_bytes))
    if context.rank == 0:
        context.log.write("nccl_operations", operations=done)
