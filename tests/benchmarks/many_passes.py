"""A rank that runs many short passes of the ddp phase in one process, healthy and with faults by a schedule.

Started by `error_rates.py`; the schedule is JSON in GPUBALANCE_SCHEDULE: a list of
{"rank": who, "percent": how much extra compute, "overlapped": whether the real step rate is measured too}.
"""

from __future__ import annotations

import json
import os

from torch.nn.parallel import DistributedDataParallel

from gpubalance.workloads import crew, ddp, rank_main
from gpubalance.workloads.context import Context
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import FenceCounter, collector_off, mean_step
from gpubalance.workloads.training_step import TrainingStep


def run(context: Context) -> None:
    """All passes of the schedule on one model."""
    step = TrainingStep(context, Faults(context.device, context.clock), context.job.seed + 1 + context.rank)
    wrapped = DistributedDataParallel(step.model, process_group=context.data, gradient_as_bucket_view=True)
    fences = FenceCounter(context.log)
    for number, item in enumerate(json.loads(os.environ["GPUBALANCE_SCHEDULE"])):
        mine = item["percent"] if item["rank"] == context.rank else 0.0
        step.faults = Faults(context.device, context.clock, compute_percent=mine)
        _restore_flat_gradients(step)
        fenced = ddp.Fenced(step, wrapped, context.data)
        with collector_off():
            healthy = Faults(context.device, context.clock)
            step.faults.calibrate(_healthy_ms(context, step, healthy))
            ddp._warm_up(context, fenced, fences)
            context.log.write("pass_begin", number=number)
            for _ in range(ddp.BLOCKS):
                ddp._log_block(context, fenced, fences, 20)
            if item["overlapped"]:
                step.release_gradients()
                for _ in range(ddp.OVERLAPPED_BLOCKS):
                    step_ms = mean_step(lambda: step.overlapped(wrapped, fences), context.clock, 20)
                    context.log.write("overlapped", step_ms=step_ms)
        context.log.write("pass_end", number=number)


def _restore_flat_gradients(step: TrainingStep) -> None:
    offset = 0
    for parameter in step.model.parameters():
        parameter.grad = step.gradients[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()


def _healthy_ms(context: Context, step: TrainingStep, healthy: Faults) -> float:
    faulty, step.faults = step.faults, healthy

    def whole() -> None:
        step.local(step.model)
        step.update()

    step_ms = mean_step(whole, context.clock, 10)
    step.faults = faulty
    return step_ms


if __name__ == "__main__":
    crew.PHASES["many_passes"] = run
    rank_main.main()
