"""A rank whose passes have fewer and shorter blocks: `python -m tests.end_to_end.short_passes`, started as a rank."""

from __future__ import annotations

from gpubalance.workloads import passes, rank_main, rig
from tests.workloads import short_warm_up

BLOCKS, STEPS, DROPPED = 10, 6, 2

if __name__ == "__main__":
    short_warm_up.shorten()
    rig.BLOCKS, rig.OVERLAPPED_BLOCKS, passes.steps_of_block = BLOCKS, 2, lambda _ms, _wanted: STEPS
    rank_main.main()
