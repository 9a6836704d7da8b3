"""Many short passes of the ddp phase in one set of processes, each with faults of its own.

Starting a crew takes ten times as long as a short pass, and what two starts have in common is not what two passes have:
passes of one crew are what error rates and losses of adjacent runs are made of.
"""

from __future__ import annotations

from itertools import chain

from gpubalance.workloads.context import Context
from gpubalance.workloads.rig import Rig

STEPS = 20
WARM_UP_S = (0.3, 3.0)
"""A power limiter needs 0.3 s to settle after the pause between passes (H200), and a pass is short."""


def run(context: Context) -> None:
    """All passes of the job, in order."""
    job = context.job
    rig = Rig(context, chain.from_iterable(job.passes))
    for number, faults in enumerate(job.passes):
        context.log.write("pass_begin", number=number)
        rig.play(
            rig.faults_of(faults), warm_up_s=WARM_UP_S, steps=lambda _step_ms: STEPS, overlapped=job.pass_overlapped
        )
        context.log.write("pass_end", number=number)
