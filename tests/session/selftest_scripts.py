"""Scripts for ranks that play passes: the lines that a real pass writes, with the stages of a rank that is slow."""

from __future__ import annotations

from typing import Any

from gpubalance.checks.selftest.rows import HEALTHY
from gpubalance.record.selftest import Played

BLOCKS, STEPS = 24, 20
COMPUTE_MS = 100.0
Script = list[list[Any]]


def one_pass(number: int, compute_ms: float = COMPUTE_MS, stage: str = "forward", slowest_ms: float = 0.0) -> Script:
    """A pass in which all that a rank is slower lies in one stage, and which the slowest rank holds up."""
    slowest_ms = max(slowest_ms, compute_ms)
    stages = {"update": 10.0, "input": 0.0, "copy": 0.0, "forward": 30.0, "backward": 60.0}
    stages[stage] += compute_ms - COMPUTE_MS
    host = {"wall_s": STEPS * compute_ms / 1000, "cpu_s": STEPS * compute_ms / 1000}
    host |= {"voluntary_switches": 1, "involuntary_switches": 1}
    block = {
        "begin": 1.0,
        "compute_ms": [compute_ms] * STEPS,
        "fence_ms": [slowest_ms - compute_ms + 0.01] * STEPS,
        "transfer_ms": [20.0] * STEPS,
        "stages_ms": stages,
        "host": host,
    }
    steady = {"steps_per_block": STEPS + 2, "step_ms": compute_ms, "samples": 8, "units": 1.0}
    return [
        ["event", "pass_begin", {"number": number}],
        ["event", "steady", steady],
        ["event", "window", {"name": "ddp fenced", "edge": "begin"}],
        *([["event", "block", block]] * BLOCKS),
        ["event", "window", {"name": "ddp fenced", "edge": "end"}],
        *([["event", "overlapped", {"step_ms": slowest_ms + 20.0}]] * 8),
        ["event", "ddp_end", {"loss": 1.0}],
        ["event", "pass_end", {"number": number}],
    ]


def crew(passes: list[Script]) -> Script:
    """One rank's script of the phase."""
    return [["phase", "passes"], *(step for each in passes for step in each), ["end"]]


def healthy_crew(count: int) -> Script:
    return crew([one_pass(number) for number in range(count)])


def truthful(passes: list[Played], ranks: int = 2, slow_ms: float = 2 * COMPUTE_MS) -> dict[str, Script]:
    """What ranks write when every fault is extra compute on the ranks that it was planned on."""
    scripts = {}
    for rank in range(ranks):
        parts = []
        for number, played in enumerate(passes):
            mine = slow_ms if played.row != HEALTHY and rank in played.ranks else COMPUTE_MS
            slowest = slow_ms if played.ranks else COMPUTE_MS
            parts.append(one_pass(number, mine, slowest_ms=slowest))
        scripts[str(rank)] = crew(parts)
    return scripts
