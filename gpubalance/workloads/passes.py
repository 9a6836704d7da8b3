"""Many short passes of the ddp phase in one set of processes, each with faults of its own.

Starting a crew takes ten times as long as a short pass, and what two starts have in common is not what two passes have:
passes of one crew are what error rates and losses of adjacent runs are made of.
"""

from __future__ import annotations

from itertools import chain

from gpubalance.record.job import Job
from gpubalance.workloads.context import Context
from gpubalance.workloads.rig import Rig

FEWEST_STEPS = 5
LONGEST_S = 60.0
"""A fault can make steps a hundred times as long (busy processes on the core of threads that move data over sockets): a
pass keeps its blocks and gets fewer steps in each rather than take so many minutes. Ours."""

WARM_UP_S = (0.3, 3.0)
"""A power limiter needs 0.3 s to settle after the pause between passes (H200), and a pass is short."""


def steps_of_block(step_ms: float, job: Job) -> int:
    """As the job wants, or as many as let the fenced blocks of a pass end in `LONGEST_S`."""
    return min(job.pass_steps, max(FEWEST_STEPS, int(LONGEST_S * 1000 / job.pass_blocks / step_ms)))


def run(context: Context) -> None:
    """All passes of the job, in order."""
    job = context.job
    rig = Rig(context, chain.from_iterable(job.passes))
    for number, faults in enumerate(job.passes):
        context.log.write("pass_begin", number=number)
        rig.play(
            rig.faults_of(faults),
            warm_up_s=WARM_UP_S,
            steps=lambda step_ms: steps_of_block(step_ms, job),
            overlapped=job.pass_overlapped,
            replayed=job.pass_replayed,
            blocks=job.pass_blocks,
        )
        context.log.write("pass_end", number=number)
