"""`gpubalance selftest` as it is typed: exit codes, streams, records, refusals, signals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.cli import entry
from gpubalance.launch.lock import MeasuringLock
from gpubalance.record.file import load_any, load_record
from gpubalance.record.gates import gates_of
from gpubalance.record.selftest import Played, Selftest
from gpubalance.reports.document import document_text
from gpubalance.reports.schema import document_schema
from gpubalance.session.selftest import HEALTHY_FIRST, Selftested
from gpubalance.session.selftest_plan import Here, matrix, schedule
from gpubalance.settings import CPU_MARGIN
from tests.reports.selftest_helpers import all_right, right_and_wrong
from tests.session.selftest_scripts import COMPUTE_MS, crew, healthy_crew, one_pass, truthful
from tests.support import SCRIPTED, alive, children_of, command_environment, eventually, write_script

COMMAND = """
import sys
from gpubalance.cli import entry, selftest_run
from gpubalance.session import selftest as story
selftest_run.selftest = lambda *given: story.selftest(*given, module={module!r})
sys.argv[0] = "gpubalance"
entry.main()
"""
FLAGS = ("--device", "cpu", "--nproc", "2", "--rows", "compute", "--seed", "3", "--force")


def planned() -> list[Played]:
    here = Here(2, "gloo", CPU_MARGIN, healthy_ms=COMPUTE_MS)
    rows, _ = matrix(here, quick=False, wanted=("compute",), generator=random.Random(3))
    return schedule(rows, first=HEALTHY_FIRST, beside=1)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", COMMAND.format(module=SCRIPTED), "selftest", *FLAGS, *arguments]


def run(folder: Path, script: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**command_environment(XDG_STATE_HOME=str(folder / "state")), **write_script(folder, script)}
    return subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, check=False, timeout=100
    )


def right() -> dict[str, Any]:
    return {"ranks-0": {"*": healthy_crew(HEALTHY_FIRST)}, "ranks-1": truthful(planned())}


def wrong() -> dict[str, Any]:
    blind = {"*": healthy_crew(len(planned()))}
    return {"ranks-0": {"*": healthy_crew(HEALTHY_FIRST)}, "ranks-1": blind, "ranks-2": blind}


def test_a_right_selftest_exits_with_0_and_is_saved_in_the_state_folder(tmp_path: Path) -> None:
    done = run(tmp_path, right())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS  the fault played here was named rightly, nobody in 4 healthy passes\n")
    assert "1 faults in 3 passes, seed 3" in done.stderr
    (saved,) = (tmp_path / "state/gpubalance/selftests").iterdir()
    assert isinstance(load_any(saved), Selftest)


def test_a_row_that_stays_wrong_exits_with_1(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run(tmp_path, wrong(), "--out", str(out))
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  1 of 2 rows are wrong")
    assert "once more" in done.stdout
    assert f"Saved: {out}" in " ".join(done.stdout.split())
    assert "once more in fresh processes" in done.stderr


def test_json_is_one_document_that_fits_the_schema(tmp_path: Path) -> None:
    done = run(tmp_path, right(), "--json")
    document = json.loads(done.stdout)
    Draft202012Validator(document_schema("selftest")).validate(document)
    assert document["judgement"]["verdict"] == "pass"
    assert document["selftest"]["seed"] == 3


def test_reports_are_written_beside_what_people_read(tmp_path: Path) -> None:
    done = run(tmp_path, right(), "--report", f"json={tmp_path}/a.json,markdown={tmp_path}/a.md")
    assert done.stdout.startswith("PASS  ")
    record = load_any(tmp_path / "a.json")
    assert isinstance(record, Selftest)
    assert (tmp_path / "a.json").read_text() == document_text(record, judge_selftest(record))
    assert (tmp_path / "a.md").read_text().startswith("### PASS: ")


def test_a_report_on_stdout_stands_there_alone_and_thresholds_are_recorded(tmp_path: Path) -> None:
    done = run(tmp_path, right(), "--report", "markdown=-", "--threshold", "transient_warn=7")
    assert done.stdout.startswith("### PASS: ")
    assert "--seed 3 draws the same ranks" in done.stdout
    (saved,) = (tmp_path / "state/gpubalance/selftests").iterdir()
    record = load_any(saved)
    assert record.settings["thresholds"].model_dump() == {"value": ["transient_warn=7"], "origin": "flag"}
    assert isinstance(record, Selftest)
    assert gates_of(record.run_of(record.passes[0]))["transient_warn"] == 0.07


def test_a_report_that_cannot_be_written_at_the_end_never_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpubalance.cli import reports_option, selftest_run

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    record = all_right()
    done = Selftested(record, judge_selftest(record))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(selftest_run, "selftest", lambda *_: done)
    monkeypatch.setattr(reports_option, "save_text", full)
    assert entry.run(["selftest", "--report", f"markdown={tmp_path}/a.md"]) == 3
    assert "the markdown report could not be written" in capsys.readouterr().err


def test_a_rank_that_dies_exits_with_3(tmp_path: Path) -> None:
    dying = {"*": [["phase", "passes"], ["kill", 9]]}
    done = run(tmp_path, {"ranks-0": {"*": healthy_crew(HEALTHY_FIRST)}, "ranks-1": dying})
    assert done.returncode == 3
    assert done.stdout.startswith("NO VERDICT  rank")


def test_a_signal_keeps_what_was_measured_and_leaves_no_process(tmp_path: Path) -> None:
    ready, out = tmp_path / "ready", tmp_path / "out.json"
    waiting = [*crew([one_pass(0)])[:-1], ["touch", str(ready)], ["sleep"]]
    script = {"ranks-0": {"*": healthy_crew(HEALTHY_FIRST)}, "ranks-1": {"*": waiting}}
    environment = {**command_environment(XDG_STATE_HOME=str(tmp_path)), **write_script(tmp_path, script)}
    process = subprocess.Popen(
        command("--out", str(out)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        eventually(ready.exists)
        everybody = eventually(lambda: (found := children_of(process.pid)) and len(found) >= 3 and found)
        os.kill(process.pid, signal.SIGTERM)
        stdout, _ = process.communicate(timeout=20)
        eventually(lambda: not alive(everybody), seconds=10)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert stdout.startswith(b"NO VERDICT  interrupted by signal 15")
    record = load_any(out)
    assert isinstance(record, Selftest)
    assert {each.number for each in record.passes} >= {0, 1}
    assert record.interrupted_by == signal.SIGTERM


WRONG_USE = {
    "a row that there is not": (("--rows", "heat"), "row 'heat' is not known"),
    "healthy as a row": (("--rows", "healthy"), "row 'healthy' is not known"),
    "an empty row": (("--rows", "compute,"), "empty entry"),
    "a margin upside down": (("--margin", "10:5"), "margin"),
    "no margin": (("--margin", "ten"), "not WARN:FAIL"),
    "no repeats": (("--repeat", "0"), "repeat must lie between 1 and 1000"),
    "fewer than no healthy passes": (("--healthy", "-1"), "healthy must lie between 0 and 1000"),
    "a seed below 0": (("--seed", "-1"), "seed must lie between 0"),
    "no device": (("--device", "tpu"), "device 'tpu' is not known"),
    "no ranks": (("--nproc", "0"), "nproc must be above 0"),
    "GPUs on the CPU": (("--device", "cpu", "--devices", "0"), "--devices names GPUs"),
    "more ranks than cores": (("--device", "cpu", "--nproc", "4000"), "ranks asked"),
    "a folder to save to": (("--out", "/"), "is a folder"),
    "a report that it has not": (("--report", "html=a.html"), "a selftest has no html report"),
    "a report that nobody has": (("--report", "pdf=a.pdf"), "report format 'pdf' is not known"),
    "two on stdout": (("--report", "markdown=-", "--json"), "stdout holds one document, not markdown and --json"),
    "a threshold of bench": (("--threshold", "busbw_warn=5"), "threshold 'busbw_warn' is not known here"),
    "no duration": (("--stall-timeout", "soon"), "is not a duration"),
}


@pytest.mark.parametrize(("flags", "message"), WRONG_USE.values(), ids=WRONG_USE.keys())
def test_wrong_use_exits_with_2_before_any_rank_starts(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(["selftest", *([] if "--device" in flags else ["--device", "cpu"]), "--force", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_one_measurement_at_a_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gpubalance.launch.lock._NAME", f"\0gpubalance-test-{os.getpid()}")
    lock = MeasuringLock()
    lock.acquire(force=False)
    try:
        assert entry.run(["selftest", "--device", "cpu"]) == 3
    finally:
        lock.release()
    assert "another gpubalance" in capsys.readouterr().err


def test_one_device_gets_no_verdict_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert entry.run(["selftest", "--device", "cpu", "--nproc", "1", "--force"]) == 3
    assert capsys.readouterr().out.startswith("NO VERDICT  one device: it has no peers")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "selftest.json"
    record = right_and_wrong()
    path.write_text(document_text(record, judge_selftest(record)))
    return path


@pytest.mark.parametrize(
    ("form", "begin"),
    [("terminal", "FAIL  1 of 3"), ("json", "{"), ("markdown", "### FAIL: 1 of 3"), ("svg", "<svg")],
)
def test_a_saved_selftest_is_reported_again(saved: Path, form: str, begin: str, capsys: Any) -> None:
    assert entry.run(["report", str(saved), "--to", form]) == 1
    assert capsys.readouterr().out.lstrip().startswith(begin)


def test_the_json_of_a_saved_selftest_is_the_file(saved: Path, capsys: Any) -> None:
    entry.run(["report", str(saved), "--to", "json"])
    assert capsys.readouterr().out == saved.read_text()


@pytest.mark.parametrize("form", ["junit", "html", "csv", "prometheus", "jsonl", "github", "nagios"])
def test_forms_that_a_selftest_has_not(saved: Path, form: str, capsys: Any) -> None:
    assert entry.run(["report", str(saved), "--to", form]) == 2
    assert f"a selftest has no {form}" in capsys.readouterr().err


def test_nagios_codes_of_a_saved_selftest(tmp_path: Path, saved: Path) -> None:
    assert entry.run(["report", str(saved), "--exit-style", "nagios"]) == 2
    stopped = all_right().model_copy(update={"interrupted_by": 2})
    path = tmp_path / "stopped.json"
    path.write_text(document_text(stopped, judge_selftest(stopped)))
    assert entry.run(["report", str(path), "--exit-style", "nagios"]) == 3
    assert entry.run(["report", str(path)]) == 130


def test_commands_that_compare_runs_refuse_a_selftest(saved: Path, capsys: Any) -> None:
    from gpubalance.errors import UsageError

    with pytest.raises(UsageError, match="is a selftest, not a run or a probe"):
        load_record(saved)
    assert entry.run(["compare", str(saved), str(saved)]) == 2
    assert "selftest" in capsys.readouterr().err
