"""Real ranks with real torch: several passes in one crew, each with its own faults and nothing of the one before."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.faults import parse_fault
from gpubalance.launch.collect import Measured, collect_passes
from gpubalance.launch.follow import Follower
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job, Slot
from gpubalance.record.timings import STAGES, RankSteps
from tests.support import command_environment, make_job

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores"),
]

PLAYED = (
    (),
    (
        "loader:rank=1,ms=3",
        "hog:rank=1,processes=1",
        "data:rank=0,factor=2",
        "copies:rank=0,mib=4",
        "backward:rank=0,percent=1000",
    ),
    (),
)


def run_crew(job: Job) -> tuple[list[Measured], dict[int, list[dict[str, Any]]], list[int]]:
    """The passes, all lines by rank, and the pids of the ranks."""
    environment = child_environment(command_environment(), [])
    processes = start_ranks(job, range(2), environment, "tests.workloads.short_warm_up", own_store=True)
    try:
        outcome = Follower(job, processes, 60.0, lambda _rank, _event: None).follow()
    finally:
        end_ranks(processes)
    assert outcome.errors == []
    events = dict(outcome.events)
    return collect_passes(job, events, 0.0), events, [process.pid for process in processes.values()]


def typical(steps: RankSteps, stage: str) -> float:
    return statistics.median(steps.stages_ms[stage])


def test_passes_of_one_crew_play_their_faults_and_leave_nothing_behind(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    job = make_job(
        tmp_path,
        slots=tuple(Slot(rank, None, None, (core,)) for rank, core in enumerate(cores)),
        phases=("passes",),
        passes=tuple(tuple(asdict(parse_fault(text)) for text in texts) for texts in PLAYED),
    )
    measured, events, pids = run_crew(job)
    assert [each.pass_number for each in measured] == [0, 1, 2]
    attempts = [each.ddp for each in measured if each.ddp is not None]
    for attempt in attempts:
        assert (attempt.complete, attempt.steps_per_block) == (True, 20)
        for steps in attempt.ranks:
            assert [len(block.compute_ms) for block in steps.fenced] == [18] * 24
            assert len(steps.overlapped_step_ms) == 8
            assert {stage: len(values) for stage, values in steps.stages_ms.items()} == dict.fromkeys(STAGES, 24)
            assert all(0 < use.cpu_s <= 2 * use.wall_s for use in steps.host)
            assert steps.collector_ms is not None
            assert (steps.device_step_ms, steps.device_step_missing) == (
                None,
                "a CPU has no graphs: host and device are one",
            )
    before, played, after = ([attempt.ranks[rank] for rank in (0, 1)] for attempt in attempts)
    assert min(played[1].stages_ms["input"]) >= 3
    assert max(typical(steps, "input") for steps in (*before, played[0], *after)) < 3
    assert typical(played[0], "copy") > max(typical(steps, "copy") for steps in (*before, *after, played[1]))
    assert typical(played[0], "backward") > 2 * typical(played[0], "forward")
    assert [steps.samples_per_step for steps in (*before, *played, *after)] == [8, 8, 16, 8, 8, 8]
    assert [steps.units_per_step for steps in (*before, played[1], *after)] == [1.0] * 5
    assert played[0].units_per_step > 0
    units = [event["backward_units"] for event in events[0] if event["event"] == "steady"]
    assert [count > 0 for count in units] == [False, True, False]
    hogs = [
        p for p in psutil.process_iter(["cmdline"]) if "gpubalance.workloads.rival_main" in (p.info["cmdline"] or [])
    ]
    assert [p for p in hogs if any(str(pid) in p.info["cmdline"] for pid in pids)] == []
