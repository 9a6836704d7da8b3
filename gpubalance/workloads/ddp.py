"""DistributedDataParallel, taken apart and put together: fenced blocks, then the same model overlapped."""

from __future__ import annotations

import math
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpubalance.workloads.context import Context
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import (
    FenceCounter,
    collector_off,
    fenced_block,
    is_settled,
    mean_step,
    median_and_error,
    median_step,
    steps_per_block,
    window,
)
from gpubalance.workloads.training_step import TrainingStep

BLOCKS = 24
"""Blocks of the sign test: 19 of 24 on one side happen by chance in 0.3 % of runs."""

OVERLAPPED_BLOCKS = 8
WARM_UP_STEPS = 10
CALIBRATION_GROUPS, CALIBRATION_STEPS = 5, 4
WARM_UP_SHARE = 0.2
"""The warm-up may take this share of the budget."""

DEFAULT_BUDGET_S = 30.0


class Fenced:
    """The fenced step: DDP's own forward and backward under no_sync, then both all-reduces by hand."""

    def __init__(self, step: TrainingStep, ddp: DistributedDataParallel, group: dist.ProcessGroup | None) -> None:
        self._step, self._ddp, self._group = step, ddp, group
        self._one = torch.ones(1, device=step.gradients.device)

    def work(self) -> None:
        """Forward and backward, no communication."""
        with self._ddp.no_sync():
            self._step.local(self._ddp)

    def fence(self) -> None:
        """One element: its time is the wait for the slowest rank."""
        dist.all_reduce(self._one, op=dist.ReduceOp.MAX, group=self._group)

    def transfer(self) -> None:
        """All gradients."""
        dist.all_reduce(self._step.gradients, group=self._group)

    def update(self) -> None:
        """The optimizer."""
        self._step.update()


def run(context: Context) -> None:
    """The ddp phase of one rank. Writes block lines as they are measured, then memory."""
    faults = Faults.of_rank(context.job, context.rank, context.device, context.clock)
    step = TrainingStep(context, faults, batch_seed=context.job.seed + 1 + context.rank)
    ddp = DistributedDataParallel(step.model, process_group=context.data, gradient_as_bucket_view=True)
    fenced = Fenced(step, ddp, context.data)
    fences = FenceCounter(context.log)
    units = _settle_faults(context, step)
    if context.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        faults.hold_memory(torch.cuda.mem_get_info()[1])
    with collector_off():
        step_ms = _warm_up(context, fenced, fences)
        steps = steps_per_block(step_ms, context.job.budget_s, BLOCKS)
        context.log.write(
            "steady", steps_per_block=steps, step_ms=step_ms, samples=step.samples, units=units, **faults.described()
        )
        with window(context.log, "ddp fenced"):
            for _ in range(BLOCKS):
                _log_block(context, fenced, fences, steps)
        step.release_gradients()
        with window(context.log, "ddp overlapped"):
            for _ in range(OVERLAPPED_BLOCKS):
                _log_overlapped(context, step, ddp, fences, steps)
    _log_end(context, step)


def _settle_faults(context: Context, step: TrainingStep) -> float:
    """Time the healthy local step, which extra work is a share of. Returns this rank's work units.

    A rank with more samples than planned is not slower for it: its units say how much longer its own device takes for
    them, so that compute per unit is what any device can be judged by.
    """

    def healthy(batch: torch.Tensor) -> None:
        step.gradients.zero_()
        step.model(batch).backward()
        step.update()

    def timed(batch: torch.Tensor) -> float:
        mean_step(lambda: healthy(batch), context.clock, CALIBRATION_STEPS)
        return median_step(lambda: healthy(batch), context.clock, CALIBRATION_GROUPS, CALIBRATION_STEPS)

    own_ms = timed(step.batch)
    step.faults.calibrate(own_ms)
    if step.samples == step.planned:
        return 1.0
    return own_ms / timed(step.batch[: step.planned])


def _warm_up(context: Context, fenced: Fenced, fences: FenceCounter) -> float:
    """Run blocks until the slowest rank is steady. Returns the step time, the same on all ranks."""
    limit = time.monotonic() + WARM_UP_SHARE * (context.job.budget_s or DEFAULT_BUDGET_S)
    medians: list[float] = []
    errors: list[float] = []
    settled = False
    while not settled:
        times = fenced_block(fenced, context.clock, fences, WARM_UP_STEPS)
        median, error = median_and_error(times.compute)
        total = sum(times.compute + times.fence + times.transfer) / len(times.compute)
        ranks = context.gather((median, error, total, time.monotonic() > limit))
        slowest = max(ranks)
        medians.append(slowest[0])
        errors.append(slowest[1])
        step_ms = max(rank[2] for rank in ranks)
        settled = is_settled(medians, errors)
        if any(rank[3] for rank in ranks):
            break
    blocks = len(medians)
    context.log.write(
        "warm_up", blocks=blocks, steps=blocks * WARM_UP_STEPS, settled=settled, last_medians_ms=medians[-4:]
    )
    return float(step_ms)


def _log_block(context: Context, fenced: Fenced, fences: FenceCounter, steps: int) -> None:
    begin = time.monotonic()
    times = fenced_block(fenced, context.clock, fences, steps)
    context.log.write("block", begin=begin, compute_ms=times.compute, fence_ms=times.fence, transfer_ms=times.transfer)


def _log_overlapped(
    context: Context, step: TrainingStep, ddp: DistributedDataParallel, fences: FenceCounter, steps: int
) -> None:
    step_ms = mean_step(lambda: step.overlapped(ddp, fences), context.clock, steps)
    context.log.write("overlapped", step_ms=step_ms)


def _log_end(context: Context, step: TrainingStep) -> None:
    loss = float(step.loss.detach())
    context.log.write("ddp_end", loss=loss if math.isfinite(loss) else None)
    if context.device.type == "cuda":
        context.log.write(
            "memory",
            peak_allocated_bytes=torch.cuda.max_memory_allocated(),
            peak_reserved_bytes=torch.cuda.max_memory_reserved(),
            capacity_bytes=torch.cuda.mem_get_info()[1],
        )
