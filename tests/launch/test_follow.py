"""The parent's side against real processes that do what a script says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.follow import CrewOutcome, Follower
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.run import RunError
from tests.support import HEALTHY, SCRIPTED, make_job, write_script

Play = Callable[..., CrewOutcome]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a crew of scripted ranks and return its outcome; nobody is left behind."""

    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.5)

    def run(script: dict[str, Any], ranks: int = 2, stall_s: float = 20.0) -> CrewOutcome:
        job = make_job(tmp_path, ranks)
        environment = child_environment({**os.environ, **write_script(tmp_path, script)}, ())
        processes = start_ranks(job, range(ranks), environment, SCRIPTED, own_store=True)
        try:
            return Follower(job, processes, stall_s, lambda _rank, _event: None).follow()
        finally:
            assert end_ranks(processes) == []
            assert all(process.poll() is not None for process in processes.values())

    return run


def first(outcome: CrewOutcome) -> RunError:
    marked = [error for error in outcome.errors if error.first_cause]
    assert len(marked) == 1
    return marked[0]


def test_a_healthy_crew_has_no_errors_and_all_its_events(play: Play) -> None:
    outcome = play({"*": HEALTHY})
    assert outcome.complete
    for events in outcome.events.values():
        assert [event["event"] for event in events if event["event"] in ("block", "bye")] == ["block"] * 24 + ["bye"]


@pytest.mark.parametrize("phase", ["solo", "ddp", "collectives"])
def test_a_rank_killed_in_any_phase_is_the_first_cause_although_its_peers_error_comes_first(
    play: Play, phase: str, tmp_path: Path
) -> None:
    said = str(tmp_path / "victim-spoke")
    outcome = play(
        {
            "0": [["phase", phase], ["fences", 3], ["touch", said], ["fail_collective", "connection closed by peer"]],
            "1": [["phase", phase], ["fences", 2], ["wait", said], ["kill", int(signal.SIGKILL)]],
        }
    )
    cause = first(outcome)
    assert (cause.rank, cause.kind, cause.phase) == (1, "killed", phase)
    assert "SIGKILL" in cause.message
    assert [error.rank for error in outcome.errors if not error.first_cause] == [0]


def test_a_rank_that_raises_in_its_own_work_comes_before_an_earlier_victim(play: Play, tmp_path: Path) -> None:
    said = str(tmp_path / "victim-spoke")
    outcome = play(
        {
            "0": [["phase", "ddp"], ["touch", said], ["fail_collective", "peer went away"]],
            "1": [["phase", "ddp"], ["wait", said], ["raise", "bad kernel"]],
        }
    )
    cause = first(outcome)
    assert (cause.rank, cause.where, cause.message) == (1, "work", "RuntimeError: bad kernel")
    assert cause.detail == "traceback"


def test_out_of_memory_on_one_rank_is_the_cause_and_keeps_its_numbers(play: Play) -> None:
    text = "CUDA out of memory. Tried to allocate 2.1 GiB, 0.4 GiB free"
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fail_collective", "peer went away"]],
            "1": [["phase", "ddp"], ["out_of_memory", text]],
        }
    )
    cause = first(outcome)
    assert (cause.rank, cause.kind) == (1, "out_of_memory")
    assert text in cause.message


def test_a_rank_that_sleeps_for_ever_is_named_with_its_phase_and_its_waiting_peers_are_not(play: Play) -> None:
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fences", 41], ["sleep"]],
            "1": [["phase", "ddp"], ["fences", 40], ["sleep"]],
            "2": [["phase", "ddp"], ["fences", 41], ["sleep"]],
        },
        ranks=3,
        stall_s=1.0,
    )
    assert [(error.rank, error.kind, error.phase) for error in outcome.errors] == [(1, "stalled", "ddp")]


def test_when_all_ranks_hang_in_the_same_collective_nobody_is_named(play: Play) -> None:
    outcome = play({"*": [["phase", "ddp"], ["fences", 7], ["sleep"]]}, stall_s=1.0)
    cause = first(outcome)
    assert cause.rank is None
    assert cause.where == "collective"


def test_a_rank_that_left_with_exit_code_0_without_a_word_is_named_not_its_victim(play: Play) -> None:
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fences", 5], ["fail_collective", "connection closed by peer"]],
            "1": [["phase", "ddp"], ["fences", 4], ["print", "my last words"], ["exit", 0]],
        }
    )
    cause = first(outcome)
    assert (cause.rank, cause.kind) == (1, "exited")
    assert cause.detail == "my last words"


def test_when_only_collectives_failed_the_rank_that_did_not_enter_is_named(play: Play) -> None:
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fences", 9], ["fail_collective", "timed out"]],
            "1": [["phase", "ddp"], ["fences", 8], ["sleep"]],
        }
    )
    cause = first(outcome)
    assert (cause.rank, cause.kind) == (1, "absent")


def test_what_was_measured_before_a_crash_is_kept(play: Play) -> None:
    crashing = [["phase", "ddp"], ["blocks", 5, 100.0], ["kill", int(signal.SIGSEGV)]]
    outcome = play({"0": [["phase", "ddp"], ["blocks", 6, 100.0], ["sleep"]], "1": crashing})
    assert sum(event["event"] == "block" for event in outcome.events[1]) == 5
    assert first(outcome).message == "killed by SIGSEGV"


def test_sigbus_is_translated_to_its_usual_cause(play: Play) -> None:
    outcome = play({"*": HEALTHY, "1": [["phase", "ddp"], ["kill", int(signal.SIGBUS)]]})
    assert "/dev/shm" in first(outcome).message


def test_a_rank_that_a_watchdog_aborted_is_the_victim_of_the_rank_that_it_waited_for(play: Play) -> None:
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fences", 9], ["kill", int(signal.SIGABRT)]],
            "1": [["phase", "ddp"], ["fences", 8], ["sleep"]],
        }
    )
    assert [(error.rank, error.kind, error.first_cause) for error in outcome.errors] == [
        (1, "absent", True),
        (0, "killed", False),
    ]


def test_an_abort_of_the_rank_that_had_done_least_is_its_own_doing(play: Play) -> None:
    outcome = play(
        {
            "0": [["phase", "ddp"], ["fences", 9], ["sleep"]],
            "1": [["phase", "ddp"], ["fences", 8], ["kill", int(signal.SIGABRT)]],
        }
    )
    assert (first(outcome).rank, first(outcome).kind) == (1, "killed")


def test_a_kill_while_the_kernel_was_short_of_memory_says_so(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr("gpubalance.launch.follow.oom_kills", lambda: next(counts))
    outcome = play({"*": HEALTHY, "1": [["phase", "ddp"], ["kill", int(signal.SIGKILL)]]})
    assert first(outcome).message == "killed by SIGKILL (the kernel killed it because memory ran out)"
