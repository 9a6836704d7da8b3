"""What the README shows is what the program prints."""

from __future__ import annotations

import re

import pytest

from gpubalance.checks.probing.verdict import CHECKS, judge_probe
from gpubalance.checks.verdict import judge
from gpubalance.record.file import load_record, load_run
from gpubalance.record.probe import Probe
from gpubalance.reports.probe_report import probe_lines
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.profiles import names
from gpubalance.thresholds import THRESHOLDS, Threshold, plain
from tests.support import ROOT, command_environment, run_cli

README = (ROOT / "README.md").read_text()
RUNS = ROOT / "examples/runs"


def block(name: str) -> str:
    """The code block that follows a marker such as <!-- help: bench -->."""
    match = re.search(rf"<!-- {re.escape(name)} -->\n+```text\n(.*?)```", README, re.DOTALL)
    assert match is not None, f"README has no block {name!r}"
    return match[1]


OTHERS = ["report", "compare", "baseline save", "baseline show", "baseline forget", "verdict", "schema", "config"]


@pytest.mark.parametrize("command", OTHERS)
def test_the_help_in_the_readme_is_that_of_the_program(command: str) -> None:
    environment = command_environment(COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")
    assert block(f"help: {command}").rstrip() == run_cli(*command.split(), "--help", env=environment).stdout.rstrip()


@pytest.mark.parametrize("command", ["bench", "probe"])
def test_the_options_in_the_readme_are_those_of_the_program(command: str) -> None:
    environment = command_environment(COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")
    shown = run_cli(command, "--help", env=environment).stdout
    options = shown[shown.index("Options:") :].rstrip()
    assert block(f"help: {command}").rstrip() == options


def test_the_report_in_the_readme_is_the_report_of_a_run_that_is_kept() -> None:
    run = load_run(RUNS / "h200x2-slow.json")
    text = "".join(f"{line.text}\n" for line in report_lines(run, judge(run), "run.json"))
    assert block("report: h200x2-slow") == text


def test_the_probe_in_the_readme_is_that_of_a_look_that_is_kept() -> None:
    probe = load_record(ROOT / "examples/probes/h200x2-p2p-off.json")
    assert isinstance(probe, Probe)
    text = "".join(f"{line.text}\n" for line in probe_lines(probe, judge_probe(probe), None))
    assert block("report: h200x2-p2p-off") == text


def test_every_check_is_in_the_table_and_marked_when_it_is_required() -> None:
    table = README[README.index("<!-- checks -->") : README.index("### Options of `probe`")]
    rows = re.findall(r"^\| ([A-Z]\d+)(\*?) \| (.*) \| (.*) \|$", table, re.MULTILINE)
    assert rows == [(check.id, "*" * check.required, check.title, check.source) for check in CHECKS]
    assert f"It runs {len(CHECKS)} checks" in README.replace("\n", " ")


def default_of(threshold: Threshold) -> str:
    """10 (CPU 50) %."""
    cpu = "" if threshold.cpu_default is None else f" (CPU {plain(threshold.cpu_default)})"
    return f"{plain(threshold.default)}{cpu} {threshold.unit}"


def test_every_threshold_is_in_the_table_with_its_default_and_check() -> None:
    table = README[README.index("<!-- thresholds -->") : README.index("### From Python")]
    rows = re.findall(r"^\| ([a-z_]+) \| (.*) \| (.*) \| (bench|probe|bench, probe) \|$", table, re.MULTILINE)
    assert rows == [(each.name, default_of(each), each.check, ", ".join(each.commands)) for each in THRESHOLDS]


def test_every_profile_is_named() -> None:
    text = README.replace("\n", " ")
    assert f"({', '.join(names())}, or a file of your own)" in text


@pytest.mark.parametrize("name", re.findall(r"\(examples/([^)]+)\)", README))
def test_files_that_the_readme_points_to_exist(name: str) -> None:
    assert (ROOT / "examples" / name).exists()


def test_every_exit_code_of_the_program_is_in_the_table() -> None:
    table = README[README.index("## Exit codes") : README.index("## Options of `bench`")]
    rows = re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE)
    codes = {int(code) for row in rows for code in row.split(",")}
    assert codes == {0, 1, 2, 3, 129, 130, 143}


def test_the_score_of_the_worked_example_is_what_analysis_computes() -> None:
    from gpubalance.analysis.balance import balance_of
    from gpubalance.analysis.steps import arrays_of
    from gpubalance.testing.runs import make_attempt, steady

    steps = arrays_of(make_attempt(steady([100.0] * 7 + [120.0]), transfer_ms=20.0))
    assert "100 x 120/140 = 85.7" in README.replace("\n", " ")
    assert f"{balance_of(steps).score:.1f}" == "85.7"


def test_no_line_of_a_report_is_wider_than_80_columns_unless_a_word_is() -> None:
    for path in RUNS.glob("*.json"):
        run = load_run(path)
        for line in report_lines(run, judge(run), "run.json"):
            assert len(line.text) <= 80 or " " not in line.text.strip()


def test_kept_runs_hold_no_real_ids() -> None:
    uuid = re.compile(r"GPU-([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
    for path in [*RUNS.glob("*.json"), *(ROOT / "examples/probes").glob("*.json")]:
        found = set(uuid.findall(path.read_text()))
        assert found or path.stem == "cpu-only"
        assert all(first in ("11111111", "22222222") for first, *_ in found)
