"""Who is to blame, from what is known of each rank at the end. No process is needed to ask that."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.first_cause import DETAIL_CHARACTERS, find_first_cause, last_output
from gpubalance.launch.rank_state import RankState
from gpubalance.record.job import Job
from gpubalance.record.run import RunError
from tests.support import make_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_job(tmp_path, 4, attempt=1)


def rank(number: int, fence: int = 0, **values: Any) -> RankState:
    """A rank in the ddp phase that entered so many collectives."""
    return RankState(number, phase="ddp", phases_seen=5, fence=fence, **values)


def error(where: str, t_s: float = 0.0, **values: Any) -> dict[str, Any]:
    base = {
        "event": "error",
        "kind": "exception",
        "where": where,
        "phase": "ddp",
        "message": f"{where} failed",
        "t_s": t_s,
    }
    return {**base, **values}


def named(errors: list[RunError]) -> list[tuple[int | None, str, bool]]:
    return [(e.rank, e.kind, e.first_cause) for e in errors]


def test_a_crew_that_said_bye_has_no_errors(job: Job) -> None:
    states = [rank(number, said_bye=True, exit_code=0) for number in range(2)]
    assert find_first_cause(states, job, None) == []


def test_a_rank_that_said_bye_and_then_ended_badly_has_done_its_work(job: Job) -> None:
    assert find_first_cause([rank(0, said_bye=True, exit_code=-6)], job, None) == []


def test_of_several_errors_in_own_work_the_earliest_leads(job: Job) -> None:
    states = [rank(0, error=error("work", 9.0)), rank(1, error=error("work", 7.0)), rank(2, error=error("work", 8.0))]
    assert [e.rank for e in find_first_cause(states, job, None)] == [1, 2, 0]


def test_an_error_in_own_work_leads_whatever_came_before_it(job: Job) -> None:
    states = [
        rank(0, 9, error=error("collective", 1.0)),
        rank(1, 8, exit_code=-9),
        rank(2, 8, error=error("work", 5.0)),
        rank(3, 9, error=error("collective", 0.5)),
    ]
    assert named(find_first_cause(states, job, None)) == [
        (2, "exception", True),
        (1, "killed", False),
        (3, "exception", False),
        (0, "exception", False),
    ]


def test_only_one_error_is_ever_the_first_cause(job: Job) -> None:
    states = [rank(number, number, error=error("collective", float(number))) for number in range(4)]
    assert [e.first_cause for e in find_first_cause(states, job, None)] == [True, False, False, False]


def test_an_error_keeps_its_words_its_time_and_the_attempt(job: Job) -> None:
    raised = error("work", 12.5, kind="out_of_memory", message="OutOfMemoryError: 2.1 GiB", detail="Traceback ...")
    (found,) = find_first_cause([rank(0, error=raised)], job, None)
    assert found == RunError(
        kind="out_of_memory",
        where="work",
        message="OutOfMemoryError: 2.1 GiB",
        rank=0,
        phase="ddp",
        attempt=1,
        t_s=12.5,
        first_cause=True,
        detail="Traceback ...",
    )


def test_of_a_long_traceback_its_end_is_kept(job: Job) -> None:
    (found,) = find_first_cause([rank(0, error=error("work", detail="a" * 9000 + "the end"))], job, None)
    assert found.detail is not None
    assert len(found.detail) == DETAIL_CHARACTERS
    assert found.detail.endswith("the end")


@pytest.mark.parametrize("detail", [None, ""])
def test_an_error_without_a_traceback_has_no_detail(job: Job, detail: str | None) -> None:
    (found,) = find_first_cause([rank(0, error=error("work", detail=detail))], job, None)
    assert found.detail is None


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (0, "exited", "left with exit code 0 and without a word"),
        (1, "exited", "left with exit code 1 and without a word"),
        (-11, "killed", "killed by SIGSEGV"),
        (-9, "killed", "killed by SIGKILL (by hand, by a scheduler, or by the kernel when memory ran out)"),
        (-7, "killed", "killed by SIGBUS (usually /dev/shm is full)"),
        (-6, "killed", "killed by SIGABRT (a library gave up; NCCL's watchdog does so when a peer is gone)"),
        (-40, "killed", "killed by signal 40"),
    ],
)
def test_a_rank_that_left_without_a_word_is_described_by_how_it_ended(
    job: Job, code: int, kind: str, message: str
) -> None:
    (found,) = find_first_cause([rank(0, exit_code=code), rank(1, said_bye=True)], job, None)
    assert (found.kind, found.message, found.rank, found.where) == (kind, message, 0, "work")


@pytest.mark.parametrize(("code", "because"), [(-9, True), (-11, False), (1, False)])
def test_the_kernels_hunger_explains_only_what_it_kills_with(job: Job, code: int, because: bool) -> None:
    (found,) = find_first_cause([rank(0, exit_code=code)], job, None, oom_killed=True)
    assert ("memory ran out" in found.message) is because


def test_a_stall_names_whoever_has_done_least(job: Job) -> None:
    states = [rank(0, 41), rank(1, 40), rank(2, 41), rank(3, 40)]
    found = find_first_cause(states, job, 30.0)
    assert [(e.rank, e.message) for e in found] == [
        (1, "did not enter collective 41 of ddp"),
        (3, "did not enter collective 41 of ddp"),
    ]


def test_a_rank_in_an_earlier_phase_has_done_less_whatever_its_fences(job: Job) -> None:
    behind = RankState(1, phase="solo", phases_seen=3, fence=900)
    assert [e.rank for e in find_first_cause([rank(0, 2), behind], job, 30.0)] == [1]


def test_a_stall_in_which_all_are_level_names_nobody(job: Job) -> None:
    (found,) = find_first_cause([rank(0, 7), rank(1, 7)], job, 2.5)
    assert found.rank is None
    assert found.where == "collective"
    assert found.message == "all ranks entered collective 7 of ddp and none came back within 2.5 s"


def test_a_stall_of_a_single_rank_is_its_own(job: Job) -> None:
    (found,) = find_first_cause([rank(0, 7)], job, 2.5)
    assert (found.rank, found.message) == (0, "made no progress for 2.5 s in ddp")


def test_nobody_waits_for_a_rank_that_said_bye(job: Job) -> None:
    found = find_first_cause([rank(0, 0, said_bye=True), rank(1, 5)], job, 2.5)
    assert [(e.rank, e.message) for e in found] == [(1, "made no progress for 2.5 s in ddp")]


def test_a_stall_with_a_death_is_a_death(job: Job) -> None:
    assert named(find_first_cause([rank(0, 9), rank(1, 8, exit_code=-9)], job, 30.0)) == [(1, "killed", True)]


def test_where_only_collectives_failed_whoever_did_not_enter_is_named(job: Job) -> None:
    states = [rank(0, 9, error=error("collective")), rank(1, 8), rank(2, 9), rank(3, 3, said_bye=True)]
    found = find_first_cause(states, job, None)
    assert named(found) == [(1, "absent", True), (0, "exception", False)]
    assert found[0].message == "did not enter collective 9 of ddp"


def test_where_all_entered_the_collective_its_first_error_is_all_that_is_known(job: Job) -> None:
    states = [rank(0, 9, error=error("collective", 2.0)), rank(1, 9, error=error("collective", 1.0))]
    assert named(find_first_cause(states, job, None)) == [(1, "exception", True), (0, "exception", False)]


def test_two_that_a_watchdog_aborted_waited_for_the_one_that_lives(job: Job) -> None:
    states = [rank(0, 9, exit_code=-int(signal.SIGABRT)), rank(1, 9, exit_code=-int(signal.SIGABRT)), rank(2, 8)]
    assert named(find_first_cause(states, job, None)) == [
        (2, "absent", True),
        (0, "killed", False),
        (1, "killed", False),
    ]


def test_what_a_rank_printed_last_stands_beside_a_death_a_stall_and_an_absence(job: Job) -> None:
    job.output_path(1).write_text("NCCL WARN Bootstrap\nmy last words\n")
    died = find_first_cause([rank(0, 9), rank(1, 8, exit_code=1)], job, None)
    stalled = find_first_cause([rank(0, 9), rank(1, 8)], job, 30.0)
    absent = find_first_cause([rank(0, 9, error=error("collective")), rank(1, 8)], job, None)
    assert [found[0].detail for found in (died, stalled, absent)] == ["NCCL WARN Bootstrap\nmy last words"] * 3


def test_last_words_are_short_readable_and_none_when_there_are_none(job: Job) -> None:
    assert last_output(job, 0) is None
    job.output_path(0).write_bytes(b"")
    assert last_output(job, 0) is None
    job.output_path(0).write_bytes(b"\xff" * 3 + b"x" * 9000 + b"end\n")
    text = last_output(job, 0)
    assert text is not None
    assert len(text) == DETAIL_CHARACTERS - 1  # the line feed at its end is gone
    assert text.endswith("end")
    job.output_path(0).write_bytes(b"caf\xe9")
    assert last_output(job, 0) == "caf\ufffd"
