"""A rank whose passes have fewer and shorter blocks: `python -m tests.end_to_end.short_passes`, started as a rank."""

from __future__ import annotations

from dataclasses import replace

from gpubalance.record.job import Job
from gpubalance.workloads import rank_main
from tests.workloads import short_warm_up

BLOCKS, STEPS, DROPPED = 10, 6, 2

if __name__ == "__main__":
    short_warm_up.shorten()
    load = Job.load
    rank_main.Job.load = lambda path: replace(load(path), pass_blocks=BLOCKS, pass_steps=STEPS)  # type: ignore[method-assign]
    rank_main.main()
