"""DistributedDataParallel, taken apart and put together: one pass, as long as the budget says."""

from __future__ import annotations

from gpubalance.workloads.context import Context
from gpubalance.workloads.rig import BLOCKS, Rig
from gpubalance.workloads.timed_loop import steps_per_block

WARM_UP_SHARE = 0.2
"""The warm-up may take this share of the budget."""

DEFAULT_BUDGET_S = 30.0


def run(context: Context) -> None:
    """The ddp phase of one rank."""
    job = context.job
    rig = Rig(context, job.faults)
    rig.play(
        rig.faults_of(job.faults),
        warm_up_s=(0.0, WARM_UP_SHARE * (job.budget_s or DEFAULT_BUDGET_S)),
        steps=lambda step_ms: steps_per_block(step_ms, job.budget_s, BLOCKS),
        overlapped=True,
    )
