"""A hang inside a real NCCL collective, with two ranks on one GPU; needs no second one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gpubalance.launch.follow import CrewOutcome, Follower
from gpubalance.launch.process_state import read_state
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job, Slot
from gpubalance.record.rank_log import Event
from gpubalance.session.trial import KIB, MIB
from tests.support import eventually, make_job

pytestmark = pytest.mark.gpu

MODULE = "tests.gpu.two_ranks_one_gpu"
ROUNDS = 400
"""All-reduces of 1 KiB and 1 MiB in turn: some 100 s of them, so that there is always one to be stopped in."""


def touching(folder: Path, sizes: tuple[int, ...]) -> Job:
    slots = (Slot(0, 0, None, ()), Slot(0, 0, None, ()))
    return make_job(
        folder, device="cuda", backend="nccl", slots=slots, phases=("touch",), touch_bytes=sizes,
        group_timeout_s=60.0,
    )  # fmt: skip


def play(job: Job, stop_after: int | None, stall_s: float = 6.0) -> CrewOutcome:
    """Follow the crew; rank 1 is stopped when it has written so many lines of the touch phase."""
    environment = child_environment(os.environ, ())
    processes = start_ranks(job, range(2), environment, MODULE, own_store=True)
    seen = 0

    def on_event(rank: int, event: Event) -> None:
        nonlocal seen
        if rank == 1 and event["event"] == "touch":
            seen += 1
            if seen == stop_after:
                os.kill(processes[1].pid, signal.SIGSTOP)
                eventually(lambda: read_state(processes[1].pid).letter == "T")

    try:
        return Follower(job, processes, stall_s, on_event, environment=environment).follow()
    finally:
        assert end_ranks(processes) == []


def test_two_ranks_on_one_gpu_reach_each_other(tmp_path: Path) -> None:
    outcome = play(touching(tmp_path, (KIB, MIB)), None, stall_s=60.0)
    assert outcome.complete, outcome.errors
    rows = [event for event in outcome.events[0] if event["event"] == "touch"]
    assert [row["wrong_elements"] for row in rows] == [0, 0]


def test_a_rank_stopped_inside_a_collective_of_nccl_is_named_and_its_peer_says_where_it_waits(tmp_path: Path) -> None:
    outcome = play(touching(tmp_path, (KIB, MIB) * ROUNDS), 4)
    first = outcome.errors[0]
    assert (first.rank, first.kind) == (1, "stalled")
    assert first.message.endswith("its process is stopped (state T, by SIGSTOP)")
    assert outcome.hang is not None
    waiting, stopped = outcome.hang.ranks
    assert (stopped.named, stopped.state, stopped.stopped_by) == (True, "T", "SIGSTOP")
    assert waiting.stack is not None
    assert "gpubalance/workloads" in waiting.stack
    assert outcome.hang.ras is not None or outcome.hang.ras_missing
    assert outcome.hang.gathered_in_s < 5
