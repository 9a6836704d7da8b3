"""A rank with as many blocks as ever and few steps in each: `python -m tests.end_to_end.short_blocks`, as a rank."""

from __future__ import annotations

from gpubalance.workloads import ddp, rank_main
from gpubalance.workloads.timed_loop import DROPPED_STEPS

STEPS = 6

if __name__ == "__main__":
    ddp.steps_per_block = lambda _step_ms, _budget_s, _blocks: STEPS + DROPPED_STEPS
    rank_main.main()
