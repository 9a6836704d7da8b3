"""nn.DataParallel over all devices with the same global batch, against one device with that batch.

One process drives all devices: each step it copies the model to every device, scatters the batch, and gathers the
outputs on the first. The skew that this shows is how DataParallel works, not a fault of a device.
"""

from __future__ import annotations

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
    with window(context.log, "data_parallel steady"):
        step_ms = _timed(context, parallel, batch, optimizer, PARALLEL_SECONDS)
    peaks = [torch.cuda.max_memory_allocated(ordinal) for ordinal in ordinals]
    one_ms = _timed(context, model, batch, optimizer, ALONE_SECONDS)
    context.log.write(
        "data_parallel",
        global_batch=job.global_batch,
        shards=shards(job.global_batch, len(ordinals)),
        step_ms=step_ms,
        one_device_step_ms=one_ms,
        peak_memory_bytes=peaks,
    )


def _timed(context: Context, model: nn.Module, batch: torch.Tensor, optimizer: Sgd, seconds: float) -> float:
    def step() -> None:
        optimizer.zero_gradients()
        model(batch).mean().backward()
        optimizer.step()

    with collector_off():
        first_ms = mean_step(step, context.clock, 5)
        return mean_step(step, context.clock, max(10, round(1000 * seconds / first_ms)))
