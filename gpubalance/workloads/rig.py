"""What one rank needs for passes of the ddp phase, and one such pass: fenced blocks, then the same model overlapped.

Model, DDP and the calibration of extra work are made once and serve all passes; a pass leaves nothing behind.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpubalance.record.timings import BUSY
from gpubalance.workloads.context import Context
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.graph import graph_step
from gpubalance.workloads.host_use import HostMeter
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import (
    FenceCounter,
    collector_off,
    collector_on,
    fenced_block,
    is_settled,
    mean_step,
    median_and_error,
    quiet_step,
    window,
)
from gpubalance.workloads.training_step import TrainingStep

BLOCKS = 24
"""Blocks of the sign test: 19 of 24 on one side happen by chance in 0.3 % of runs."""

FENCED_TO_OVERLAPPED = 3
"""Fenced blocks for each overlapped one."""

WARM_UP_STEPS = 10
CALIBRATION_GROUPS, CALIBRATION_STEPS = 5, 4
GRAPH_SETTLE_S, GRAPH_S = 0.3, 0.2
"""Replays of the step that are not measured, and those that are."""


class Fenced:
    """The fenced step: DDP's own forward and backward under no_sync, then both all-reduces by hand."""

    def __init__(self, step: TrainingStep, ddp: DistributedDataParallel, group: dist.ProcessGroup | None) -> None:
        self._step, self._ddp, self._group = step, ddp, group
        self._one = torch.ones(1, device=step.gradients.device)
        self.fetch, self.copy, self.update = step.fetch, step.copy, step.update

    def forward(self) -> None:
        """DDP's forward, no communication."""
        with self._ddp.no_sync():
            self._step.forward(self._ddp)

    def backward(self) -> None:
        """DDP's backward, no communication."""
        with self._ddp.no_sync():
            self._step.backward()

    def fence(self) -> None:
        """One element: its time is the wait for the slowest rank."""
        dist.all_reduce(self._one, op=dist.ReduceOp.MAX, group=self._group)

    def transfer(self) -> None:
        """All gradients."""
        dist.all_reduce(self._step.gradients, group=self._group)


class Rig:
    """One rank's model under DDP. `to_come` are the faults of all passes that this rig will play."""

    def __init__(self, context: Context, to_come: Iterable[dict[str, Any]]) -> None:
        self._context, self._log, self._clock = context, context.log, context.clock
        self.extra = ExtraWork(context.device, context.clock)
        self._seed = context.job.seed + 1 + context.rank
        self._step = TrainingStep(context, self.faults_of(()), self._seed)
        self._ddp = DistributedDataParallel(self._step.model, process_group=context.data, gradient_as_bucket_view=True)
        self._fenced = Fenced(self._step, self._ddp, context.data)
        self._fences = FenceCounter(context.log)
        healthy_ms = self._healthy_ms(self._step.batch)
        if self.faults_of(to_come).needs_extra:
            self.extra.calibrate(healthy_ms)

    def faults_of(self, faults: Iterable[dict[str, Any]]) -> Faults:
        """Those of the faults that are this rank's."""
        return Faults.of_rank(faults, self._context.rank, self.extra)

    def _healthy_ms(self, batch: torch.Tensor) -> float:
        def healthy() -> None:
            self._step.healthy(batch)

        mean_step(healthy, self._clock, CALIBRATION_STEPS)
        shared = self._context.device.type == "cpu"
        return quiet_step(healthy, self._clock, CALIBRATION_GROUPS, CALIBRATION_STEPS, shared=shared)

    def play(
        self,
        faults: Faults,
        *,
        warm_up_s: tuple[float, float],
        steps: Callable[[float], int],
        overlapped: bool,
        replayed: bool = True,
        blocks: int = BLOCKS,
    ) -> None:
        """One pass with these faults. Writes block lines as they are measured, then memory.

        `warm_up_s` is the shortest and the longest warm-up; `steps` says how many steps of so many milliseconds make
        a block.
        """
        step = self._step
        step.use(faults)
        step.attach_gradients()
        units = self._units()
        on_gpu = self._context.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        with faults.playing(self._context.job, self._context.rank), collector_off():
            if on_gpu:
                faults.hold_memory(torch.cuda.mem_get_info()[1])
            step_ms = self._warm_up(*warm_up_s)
            count = steps(step_ms)
            self._log.write(
                "steady",
                steps_per_block=count,
                step_ms=step_ms,
                samples=step.samples,
                units=units,
                **faults.described(),
            )
            self._measure_fenced(blocks, count)
            if overlapped:
                self._measure_overlapped(blocks // FENCED_TO_OVERLAPPED, count)
            self._log_memory()
            faults.let_go()
            if replayed:
                self._log_device_step(step_ms)
        loss = float(step.loss)
        self._log.write("ddp_end", loss=loss if math.isfinite(loss) else None)

    def _units(self) -> float:
        """Work of one step, 1 being the planned batch.

        A rank with more samples than planned is not slower for it: its units say how much longer its own device takes
        for them, so that compute per unit is what any device can be judged by.
        """
        step = self._step
        if step.samples == step.planned:
            return 1.0
        return self._healthy_ms(step.batch) / self._healthy_ms(step.batch[: step.planned])

    def _warm_up(self, shortest_s: float, longest_s: float) -> float:
        """Run blocks until the slowest rank is steady. Returns the step time, the same on all ranks."""
        begin = time.monotonic()
        medians: list[float] = []
        errors: list[float] = []
        settled = False
        while not settled:
            times = fenced_block(self._fenced, self._clock, self._fences, WARM_UP_STEPS)
            median, error = median_and_error(times.compute)
            total = sum(times.compute + times.fence + times.transfer) / len(times.compute)
            ranks = self._context.gather((median, error, total, time.monotonic() - begin))
            slowest = max(ranks)
            medians.append(slowest[0])
            errors.append(slowest[1])
            step_ms = max(rank[2] for rank in ranks)
            taken_s = max(rank[3] for rank in ranks)
            settled = is_settled(medians, errors) and taken_s >= shortest_s
            if taken_s > longest_s:
                break
        blocks = len(medians)
        self._log.write(
            "warm_up", blocks=blocks, steps=blocks * WARM_UP_STEPS, settled=settled, last_medians_ms=medians[-4:]
        )
        return float(step_ms)

    def _measure_fenced(self, blocks: int, steps: int) -> None:
        with window(self._log, "ddp fenced"):
            for _ in range(blocks):
                self._log_block(steps)
        with collector_on():
            times = fenced_block(self._fenced, self._clock, self._fences, steps)
        self._log.write("collector", collector_ms=statistics.median(times.compute))

    def _measure_overlapped(self, blocks: int, steps: int) -> None:
        """The first block is not kept: while DDP makes its buckets anew for the order in which gradients come, and the
        caching allocator finds room for them, steps take longer (18 % in the first 20 steps on two H200s, 15 % on one).
        """

        def step() -> None:
            self._step.overlapped(self._ddp, self._fences)

        self._step.release_gradients()
        mean_step(step, self._clock, steps)
        with window(self._log, "ddp overlapped"):
            for _ in range(blocks):
                self._log.write("overlapped", step_ms=mean_step(step, self._clock, steps))

    def _log_block(self, steps: int) -> None:
        before = HostMeter.now()
        times = fenced_block(self._fenced, self._clock, self._fences, steps)
        host = HostMeter.now().since(before)
        self._log.write(
            "block",
            begin=before.wall_s,
            compute_ms=times.compute,
            fence_ms=times.fence,
            transfer_ms=times.transfer,
            stages_ms={stage: round(statistics.median(values), 4) for stage, values in times.stages.items()},
            busy_ms=round(statistics.median(times.busy), 4),
            means_ms={
                name: round(statistics.fmean(values), 4) for name, values in (*times.stages.items(), (BUSY, times.busy))
            },
            host=host,
        )

    def _log_memory(self) -> None:
        if self._context.device.type == "cuda":
            self._log.write(
                "memory",
                peak_allocated_bytes=torch.cuda.max_memory_allocated(),
                peak_reserved_bytes=torch.cuda.max_memory_reserved(),
                capacity_bytes=torch.cuda.mem_get_info()[1],
            )

    def _log_device_step(self, step_ms: float) -> None:
        """The local step as a CUDA graph, on a model of its own: DDP keeps autograd's accumulators of the first one on
        the stream where it was made, and a capture on another stream fails.
        """
        if self._has_room():
            twin = TrainingStep(self._context, self._step.faults, self._seed)
            replayed_ms, missing = graph_step(self._context, twin, step_ms, GRAPH_S, GRAPH_SETTLE_S)
            del twin
        else:
            replayed_ms, missing = None, "too little free device memory for a second copy of the model"
        self._log.write("device_step", device_step_ms=replayed_ms, device_step_missing=missing)
        if self._context.device.type == "cuda":
            torch.cuda.empty_cache()

    def _has_room(self) -> bool:
        """A copy of the model takes no more than everything took that this pass had at its peak."""
        if self._context.device.type == "cpu":
            return True
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0] > torch.cuda.max_memory_allocated()
