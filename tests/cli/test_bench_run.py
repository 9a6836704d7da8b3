"""What `gpubalance bench` does with a finished run: save, print, exit code."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import bench_run, saving
from gpubalance.cli.bench_run import run_bench
from gpubalance.errors import CannotMeasureError, UsageError
from gpubalance.record.file import load_run
from gpubalance.record.run import Run
from gpubalance.session.bench import Finished
from gpubalance.settings import BenchSettings
from gpubalance.testing.profiles import h200_node
from tests.reports.helpers import pair
from tests.support import HEALTHY, command_environment, scripted_bench_command, write_script

Measure = Callable[..., None]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Have the measurement end with this run; the state folder is a new one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def put(run: Run | None) -> None:
        finished = None if run is None else Finished(run, judge(run))
        monkeypatch.setattr(bench_run, "bench", lambda *_: finished)

    return put


Streams = pytest.CaptureFixture[str]


def test_a_run_is_saved_in_the_state_folder_printed_and_passed(
    measured: Measure, tmp_path: Path, capsys: Streams
) -> None:
    run = pair(100.0, 100.0)
    measured(run)
    assert run_bench(BenchSettings(), as_json=False) == 0
    path = tmp_path / "state/gpubalance/runs" / f"{run.run_id}.json"
    assert load_run(path) == run
    out, err = capsys.readouterr()
    assert "\nPASS  node can train evenly" in out
    assert out.split()[-2:] == ["Saved:", str(path)]
    assert err == ""


def test_a_run_is_saved_where_asked(measured: Measure, tmp_path: Path, capsys: Streams) -> None:
    measured(pair(100.0, 120.0))
    out = tmp_path / "run.json"
    assert run_bench(BenchSettings(out=str(out)), as_json=False) == 1
    assert load_run(out) == pair(100.0, 120.0)
    assert not (tmp_path / "state/gpubalance/runs").exists()
    assert capsys.readouterr().out.split()[-2:] == ["Saved:", str(out)]


def test_as_json_stdout_is_the_file_that_was_saved(measured: Measure, tmp_path: Path, capsys: Streams) -> None:
    measured(pair(100.0, 100.0))
    out = tmp_path / "run.json"
    run_bench(BenchSettings(out=str(out)), as_json=True)
    assert capsys.readouterr().out == out.read_text()


def test_what_may_fail_is_as_asked(measured: Measure) -> None:
    measured(pair(100.0, 108.0))
    codes = [run_bench(BenchSettings(fail_on=fail_on), as_json=False) for fail_on in ("fail", "warn", "never")]
    assert codes == [0, 1, 0]


def test_a_parent_that_does_not_report_prints_and_saves_nothing(
    measured: Measure, tmp_path: Path, capsys: Streams
) -> None:
    measured(None)
    out = tmp_path / "run.json"
    assert run_bench(BenchSettings(out=str(out)), as_json=True) == 0
    assert capsys.readouterr() == ("", "")
    assert not out.exists()


def test_without_a_home_a_run_is_shown_and_not_saved(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    measured(pair(100.0, 100.0))
    assert run_bench(BenchSettings(), as_json=False) == 0
    assert capsys.readouterr().out.endswith("Not saved.\n")


def test_a_state_folder_that_cannot_be_made_does_not_matter(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/state")
    measured(pair(100.0, 100.0))
    assert run_bench(BenchSettings(), as_json=False) == 0
    out, err = capsys.readouterr()
    assert out.endswith("Not saved.\n")
    assert err == ""


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("run", "code"), [(pair(100.0, 100.0), 3), (pair(100.0, 120.0), 1)], ids=["no pass", "still a fail"]
)
def test_a_record_that_was_asked_for_and_could_not_be_saved_is_no_pass_but_is_shown(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, capsys: Streams, tmp_path: Path, run: Run, code: int
) -> None:
    measured(run)
    monkeypatch.setattr(saving, "save_text", full)
    out = tmp_path / "run.json"
    assert run_bench(BenchSettings(out=str(out)), as_json=False) == code
    shown, err = capsys.readouterr()
    assert shown.endswith("Not saved.\n")
    assert err == f"gpubalance: the record could not be saved to {out}: No space left on device\n"


def test_a_full_state_folder_is_said_and_the_run_passes_all_the_same(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    measured(pair(100.0, 100.0))
    monkeypatch.setattr(saving, "save_text", full)
    assert run_bench(BenchSettings(), as_json=False) == 0
    assert "could not be saved" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_run, "bench", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(UsageError, match="/dev/null is not a regular file"):
        run_bench(BenchSettings(out="/dev/null"), as_json=False)


def test_a_line_of_progress_is_ended_before_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def fail(*_: Any) -> None:
        raise CannotMeasureError("the driver does not answer")

    monkeypatch.setattr(bench_run, "bench", fail)
    monkeypatch.setattr("gpubalance.cli.progress.StderrDisplay.close", lambda _: closed.append(True))
    with pytest.raises(CannotMeasureError):
        run_bench(BenchSettings(), as_json=False)
    assert closed == [True]


def scripted(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """`gpubalance bench --workload ddp` on two stand-in H200s: command and environment."""
    profile = folder / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    environment = {**command_environment(XDG_STATE_HOME=str(folder)), **write_script(folder, {"*": HEALTHY})}
    return scripted_bench_command("--workload", "ddp", *arguments, stand_in=profile), environment


def test_nobody_reading_the_progress_does_not_end_the_measurement(tmp_path: Path) -> None:
    command, environment = scripted(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=writer, text=True, check=False, timeout=100
    )
    os.close(writer)
    assert done.returncode == 0
    assert "\nPASS  node can train evenly" in done.stdout


def test_a_variable_that_is_no_text_costs_no_measurement(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    command, environment = scripted(tmp_path, "--out", str(out))
    strange = {**{os.fsencode(k): os.fsencode(v) for k, v in environment.items()}, b"NCCL_TOPO_FILE": b"/caf\xe9.xml"}
    done = subprocess.run(command, env=strange, capture_output=True, check=False, timeout=100)
    assert done.returncode == 0
    assert rb"NCCL_TOPO_FILE=/caf\udce9.xml" in done.stdout
    assert load_run(out).node.environment["NCCL_TOPO_FILE"] == "/caf\udce9.xml"
