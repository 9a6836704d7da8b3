"""A rank whose passes have fewer and shorter blocks: `python -m tests.end_to_end.short_passes`, started as a rank."""

from __future__ import annotations

from gpubalance.workloads import passes, rank_main, rig

BLOCKS, STEPS, DROPPED = 10, 6, 2

if __name__ == "__main__":
    rig.BLOCKS, rig.OVERLAPPED_BLOCKS, passes.STEPS = BLOCKS, 4, STEPS
    rank_main.main()
