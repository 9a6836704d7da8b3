"""nn.DataParallel over all devices with the same global batch, against one device with that batch.

One process drives all devices: each step it copies the model to every device, scatters the batch, and gathers the
outputs on the first. The skew that this shows is how DataParallel works, not a fault of a device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gpubalance.workloads.context import Context
from gpubalance.workloads.models import build_batch, build_model
from gpubalance.workloads.sgd import Sgd
from gpubalance.workloads.timed_loop import collector_off, mean_step, window
from gpubalance.workloads.training_step import LEARNING_RATE

PARALLEL_SECONDS = 1.5
"""Long enough for the driver's utilization counter to settle (it covers up to 1 s)."""

ALONE_SECONDS = 0.6


def shards(batch: int, devices: int) -> list[int]:
    """Samples that each device receives: torch.chunk's arithmetic, ceil(batch / devices) at a time.

    10 samples on 8 devices are chunks of 2, which feed 5 devices; the other 3 are not fed.
    """
    size = -(-batch // devices)
    sizes = [min(size, batch - start) for start in range(0, batch, size)]
    return sizes + [0] * (devices - len(sizes))


def run(context: Context) -> None:
    """DataParallel, then one device alone, with the same model and the same global batch."""
    job = context.job
    ordinals = [slot.ordinal or 0 for slot in job.slots]
    for ordinal in ordinals:
        torch.cuda.reset_peak_memory_stats(ordinal)
    model = build_model(job.model, context.device, job.seed)
    optimizer = Sgd(model.parameters(), LEARNING_RATE)
    batch = build_batch(job.model, job.global_batch, context.device, job.seed)
    parallel = nn.DataParallel(model, device_ids=ordinals)
    step = _step(parallel, batch, optimizer)
    with collector_off():
        steps = _steps_in(context, step, PARALLEL_SECONDS)
        with window(context.log, "data_parallel steady"):
            step_ms = mean_step(step, context.clock, steps)
    peaks = [torch.cuda.max_memory_allocated(ordinal) for ordinal in ordinals]
    alone = _step(model, batch, optimizer)
    with collector_off():
        one_ms = mean_step(alone, context.clock, _steps_in(context, alone, ALONE_SECONDS))
    context.log.write(
        "data_parallel",
        global_batch=job.global_batch,
        shards=shards(job.global_batch, len(ordinals)),
        step_ms=step_ms,
        one_device_step_ms=one_ms,
        peak_memory_bytes=peaks,
    )


def _step(model: nn.Module, batch: torch.Tensor, optimizer: Sgd) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_gradients()
        model(batch).mean().backward()
        optimizer.step()

    return step


def _steps_in(context: Context, step: Callable[[], None], seconds: float) -> int:
    """How many steps fill the time, once contexts, communicators and workspaces are made."""
    mean_step(step, context.clock, 3)
    return max(10, round(1000 * seconds / mean_step(step, context.clock, 5)))
