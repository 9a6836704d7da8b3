"""A scripted rank writes what a real one would, so that the parent's side cannot tell them apart."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.collect import collect_measured
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.testing import scripted_rank
from gpubalance.testing.scripted_rank import ScriptedRank
from tests.support import HEALTHY, SCRIPTED, command_environment, make_job, write_script


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # nobody holds this rank back
    return make_job(tmp_path)


def play(job: Job, steps: list[list[Any]]) -> list[Event]:
    """What rank 0 wrote."""
    ScriptedRank(job, 0).play(steps)
    return LogTail(job.log_path(0)).read()


def names(events: list[Event]) -> list[str]:
    return [event["event"] for event in events]


def test_a_script_without_steps_says_hello_and_bye(job: Job) -> None:
    events = play(job, [])
    assert names(events) == ["hello", "device", "bye"]
    assert events[0]["pid"] == os.getpid()


def test_a_healthy_script_is_measured_as_its_numbers_say(job: Job) -> None:
    events = play(job, HEALTHY)
    attempt = collect_measured(job, {0: events}, 0.0).ddp
    assert attempt is not None
    assert attempt.complete
    assert {value for block in attempt.ranks[0].fenced for value in block.compute_ms} == {100.0}
    assert len(attempt.ranks[0].fenced) == 24
    assert attempt.ranks[0].overlapped_step_ms == [120.0] * 8


def test_fences_are_numbered_on_over_the_whole_script(job: Job) -> None:
    events = play(job, [["phase", "ddp"], ["fences", 3], ["end"], ["phase", "collectives"], ["fences", 2], ["end"]])
    assert [event["fence"] for event in events if event["event"] == "fence"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("step", "kind", "where", "message"),
    [
        (["raise", "bad kernel"], "exception", "work", "RuntimeError: bad kernel"),
        (["fail_collective", "peer left"], "exception", "collective", "RuntimeError: peer left"),
        (["out_of_memory", "2.1 GiB"], "out_of_memory", "work", "OutOfMemoryError: 2.1 GiB"),
    ],
)
def test_a_failure_is_an_error_line_in_its_phase_and_the_end(
    job: Job, step: list[Any], kind: str, where: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        play(job, [["phase", "ddp"], step, ["end"]])
    events = LogTail(job.log_path(0)).read()
    assert ended.value.code == 1
    assert names(events)[-1] == "error"
    assert {key: events[-1][key] for key in ("kind", "where", "message", "phase")} == {
        "kind": kind,
        "where": where,
        "message": message,
        "phase": "ddp",
    }


def test_any_line_can_be_written(job: Job) -> None:
    assert play(job, [["event", "solo", {"eager_step_ms": 1.0}]])[2]["eager_step_ms"] == 1.0


def test_a_step_that_is_not_known_is_an_error(job: Job) -> None:
    with pytest.raises(AttributeError, match="do_dance"):
        play(job, [["dance"]])


def test_every_step_of_the_description_exists_and_every_step_is_described() -> None:
    assert scripted_rank.__doc__ is not None
    described = set(re.findall(r"(?:Steps: |/ )([a-z_]+)", scripted_rank.__doc__.replace("\n", " ")))
    steps = {name.removeprefix("do_") for name in vars(ScriptedRank) if name.startswith("do_")}
    assert described == steps


@pytest.mark.parametrize(
    ("script", "phases"),
    [
        ({"*": [["phase", "all"]]}, {0: ["all"], 1: ["all"]}),
        ({"*": [["phase", "all"]], "1": [["phase", "one"]]}, {0: ["all"], 1: ["one"]}),
        ({"1": [["phase", "one"]]}, {0: [], 1: ["one"]}),
        ({"ranks-0": {"*": [["phase", "first"]]}, "*": [["phase", "other"]]}, {0: ["first"], 1: ["first"]}),
        ({"ranks-1": {"*": [["phase", "second"]]}, "*": [["phase", "other"]]}, {0: ["other"], 1: ["other"]}),
    ],
    ids=["everybody", "but one", "only one", "by crew", "another crew"],
)
def test_each_rank_finds_its_own_script(
    job: Job, tmp_path: Path, script: dict[str, Any], phases: dict[int, list[str]]
) -> None:
    environment = child_environment({**os.environ, **write_script(tmp_path, script)}, ())
    processes = start_ranks(job, [0, 1], environment, SCRIPTED, own_store=True)
    try:
        assert [process.wait(timeout=30) for process in processes.values()] == [0, 0]
    finally:
        end_ranks(processes)
    found = {rank: LogTail(job.log_path(rank)).read() for rank in (0, 1)}
    begun = {rank: [e["phase"] for e in lines if e["event"] == "phase_begin"] for rank, lines in found.items()}
    assert begun == phases
    assert {lines[-1]["event"] for lines in found.values()} == {"bye"}


@pytest.mark.parametrize(
    ("step", "code"), [(["exit", 0], 0), (["exit", 7], 7), (["kill", int(signal.SIGTERM)], -signal.SIGTERM)]
)
def test_an_end_without_a_word_is_one(job: Job, tmp_path: Path, step: list[Any], code: int) -> None:
    environment = child_environment({**os.environ, **write_script(tmp_path, {"*": [["print", "words"], step]})}, ())
    processes = start_ranks(job, [0], environment, SCRIPTED, own_store=True)
    try:
        assert processes[0].wait(timeout=30) == code
    finally:
        end_ranks(processes)
    assert names(LogTail(job.log_path(0)).read()) == ["hello", "device"]
    assert job.output_path(0).read_text() == "words\n"


def test_a_scripted_rank_needs_neither_torch_nor_pydantic() -> None:
    code = f"import sys, {SCRIPTED}; print(sorted({{'torch', 'pydantic', 'numpy'}} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], env=command_environment(), capture_output=True, check=True)
    assert shown.stdout == b"[]\n"
