"""Evidence of hangs of real processes, and the sentence that names who is waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.follow import CrewOutcome, Follower
from gpubalance.launch.hang import LIMIT_S
from gpubalance.launch.process_state import read_state
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.rank_log import Event
from tests.support import SCRIPTED, eventually, make_job, write_script

Play = Callable[..., CrewOutcome]
STALL_S = 0.6


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a crew of scripted ranks until it is given up; ranks that write `stop me` are stopped by that signal."""
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.3)

    def run(script: dict[str, Any], ranks: int = 2, **env: str) -> CrewOutcome:
        job = make_job(tmp_path, ranks)
        environment = child_environment({**os.environ, **write_script(tmp_path, script), **env}, ())
        processes = start_ranks(job, range(ranks), environment, SCRIPTED, own_store=True)

        def stop(rank: int, event: Event) -> None:
            if event["event"] == "stop me":
                os.kill(processes[rank].pid, signal.SIGSTOP)
                eventually(lambda: read_state(processes[rank].pid).letter == "T")

        try:
            return Follower(job, processes, STALL_S, stop, environment=environment).follow()
        finally:
            assert end_ranks(processes) == []

    return run


def waiting(fences: int, *more: list[Any]) -> list[list[Any]]:
    return [["phase", "ddp"], ["fences", fences], *more, ["sleep"]]


STOP = ["event", "stop me", {}]


def test_a_rank_that_is_stopped_before_a_collective_is_named_with_its_state(play: Play) -> None:
    outcome = play({"0": waiting(41), "1": waiting(40, STOP)})
    (error,) = outcome.errors
    assert (error.rank, error.kind) == (1, "stalled")
    assert error.message == "did not enter all_reduce 41 of ddp: its process is stopped (state T, by SIGSTOP)"
    assert outcome.hang is not None
    assert [(rank.rank, rank.named, rank.fence, rank.state) for rank in outcome.hang.ranks] == [
        (0, False, 41, "S"),
        (1, True, 40, "T"),
    ]
    assert outcome.hang.ranks[1].stack_missing == "its process is stopped and answers nothing"
    assert outcome.hang.ranks[0].stack is not None
    assert (outcome.hang.ranks[0].python_at or "").startswith("do_sleep (testing/scripted_rank.py:")
    assert outcome.hang.gathered_in_s < LIMIT_S + 1


def test_a_rank_that_is_stopped_inside_the_collective_is_named_although_all_entered_it(play: Play) -> None:
    (error,) = play({"0": waiting(41), "1": waiting(41, STOP)}).errors
    assert error.rank == 1
    assert error.message == (
        "went no further than all_reduce 41 of ddp, where all ranks are: its process is stopped (state T, by SIGSTOP)"
    )


def test_a_stopped_rank_is_named_and_not_the_one_that_waits_for_it_elsewhere(play: Play) -> None:
    (error,) = play({"0": waiting(41), "1": waiting(41, STOP), "2": waiting(40)}, ranks=3).errors
    assert error.rank == 1


def test_a_rank_that_sleeps_is_named_with_the_place_where_it_sleeps(play: Play) -> None:
    outcome = play({"0": waiting(41), "1": waiting(40), "2": waiting(41)}, ranks=3)
    (error,) = outcome.errors
    assert error.rank == 1
    assert error.message.startswith("did not enter all_reduce 41 of ddp: its process sleeps (state S), in do_sleep (")


def test_a_rank_in_an_earlier_phase_is_named_with_both_phases(play: Play) -> None:
    early = [["phase", "solo"], ["fences", 3], ["end"], ["sleep"]]
    (error,) = play({"0": [*early[:-1], *waiting(2)], "1": early}).errors
    assert error.rank == 1
    assert error.message.startswith(
        "went no further than the end of solo, while others have come to all_reduce 5 of ddp:"
    )


def test_where_nobody_is_stopped_and_all_entered_nobody_is_named_and_all_are_described(play: Play) -> None:
    outcome = play({"*": waiting(7)})
    (error,) = outcome.errors
    assert error.rank is None
    assert error.message == f"all ranks entered all_reduce 7 of ddp and none came back within {STALL_S:g} s"
    assert outcome.hang is not None
    assert [rank.named for rank in outcome.hang.ranks] == [False, False]
    assert all(rank.stack for rank in outcome.hang.ranks)


def test_a_peer_that_is_waited_for_while_others_already_failed_is_looked_at_as_well(play: Play) -> None:
    failing = [["phase", "ddp"], ["fences", 9], ["fail_collective", "timed out"]]
    outcome = play({"0": failing, "1": waiting(8, STOP)})
    first = outcome.errors[0]
    assert (first.rank, first.kind) == (1, "absent")
    assert first.message == "did not enter all_reduce 9 of ddp: its process is stopped (state T, by SIGSTOP)"
    assert outcome.hang is not None
    assert outcome.hang.ranks[0].state is None
    assert outcome.hang.ranks[0].state_missing == "it ended with 1"


def test_nccls_warnings_are_kept(play: Play) -> None:
    warning = "node:1:2 [0] NCCL WARN Bootstrap : no socket interface found"
    outcome = play({"0": [["print", warning], *waiting(7)], "1": waiting(7)})
    assert outcome.hang is not None
    assert [rank.warnings for rank in outcome.hang.ranks] == [[warning], []]


def test_a_crew_that_fails_at_once_has_no_evidence_of_a_hang(play: Play) -> None:
    outcome = play({"0": waiting(2), "1": [["phase", "ddp"], ["raise", "bad kernel"]]})
    assert outcome.errors[0].kind == "exception"
    assert outcome.hang is None


def test_gloo_has_no_ras(play: Play) -> None:
    outcome = play({"*": waiting(7)})
    assert outcome.hang is not None
    assert (outcome.hang.ras, outcome.hang.ras_missing) == (None, "ranks talk over gloo, which has none")
