"""The links phase: copies between all devices and the host, by one process that sees them all. No NCCL takes part."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from gpubalance.workloads.context import Context
from gpubalance.workloads.link_copier import CudaCopier, TooLittleMemoryError
from gpubalance.workloads.link_passes import LinkPasses
from gpubalance.workloads.timed_loop import window


def run(context: Context) -> None:
    """All passes; the memory is given back to the devices after."""
    _run(context)
    torch.cuda.empty_cache()


def _run(context: Context) -> None:
    def marked(name: str) -> AbstractContextManager[None]:
        return window(context.log, name)

    try:
        copier = CudaCopier(context.job.slots, context.job.seed)
    except TooLittleMemoryError as error:
        context.log.write("skipped", what="links", reason=str(error))
        return
    LinkPasses(copier, context.log.write, marked).run()
