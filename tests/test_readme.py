"""What the README shows is what the program prints."""

from __future__ import annotations

import re

import pytest

from gpubalance.analysis.stragglers import blocks_needed
from gpubalance.analysis.trust import ALIKE
from gpubalance.checks import trust
from gpubalance.checks.probing.verdict import CHECKS, judge_probe
from gpubalance.checks.quality import BUSY_HOST
from gpubalance.checks.verdict import judge
from gpubalance.record.file import load_record, load_run
from gpubalance.record.probe import Probe
from gpubalance.reports.probe_report import probe_lines
from gpubalance.reports.rank_table import MOST_RANKS
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.profiles import names
from gpubalance.thresholds import THRESHOLDS, Threshold, plain
from tests.analysis import test_balance as cases
from tests.support import ROOT, command_environment, run_cli

README = (ROOT / "README.md").read_text()
RUNS = ROOT / "examples/runs"


def block(name: str) -> str:
    """The code block that follows a marker such as <!-- help: bench -->."""
    match = re.search(rf"<!-- {re.escape(name)} -->\n+```text\n(.*?)```", README, re.DOTALL)
    assert match is not None, f"README has no block {name!r}"
    return match[1]


def section_from(start: str) -> str:
    """What stands between this text and the next heading."""
    begin = README.index(start)
    return re.split(r"^#+ ", README[begin + len(start) :], maxsplit=1, flags=re.MULTILINE)[0]


OTHERS = [
    "selftest",
    "report",
    "compare",
    "baseline save",
    "baseline show",
    "baseline forget",
    "verdict",
    "schema",
    "config",
]


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
    table = section_from("<!-- checks -->")
    rows = re.findall(r"^\| ([A-Z]\d+)(\*?) \| (.*) \| (.*) \|$", table, re.MULTILINE)
    assert rows == [(check.id, "*" * check.required, check.title, check.source) for check in CHECKS]
    assert f"It runs {len(CHECKS)} checks" in README.replace("\n", " ")


def default_of(threshold: Threshold) -> str:
    """10 (CPU 50) %."""
    cpu = "" if threshold.cpu_default is None else f" (CPU {plain(threshold.cpu_default)})"
    return f"{plain(threshold.default)}{cpu} {threshold.unit}"


def test_every_threshold_is_in_the_table_with_its_default_and_check() -> None:
    table = section_from("<!-- thresholds -->")
    rows = re.findall(r"^\| ([a-z_]+) \| (.*) \| (.*) \| ((?:bench|probe|selftest|, )+) \|$", table, re.MULTILINE)
    assert rows == [(each.name, default_of(each), each.check, ", ".join(each.commands)) for each in THRESHOLDS]


def test_every_profile_is_named() -> None:
    text = README.replace("\n", " ")
    assert f"({', '.join(names())}, or a file of your own)" in text


@pytest.mark.parametrize("name", re.findall(r"\(examples/([^)]+)\)", README))
def test_files_that_the_readme_points_to_exist(name: str) -> None:
    assert (ROOT / "examples" / name).exists()


def test_every_exit_code_of_the_program_is_in_the_table() -> None:
    table = section_from("## Exit codes")
    rows = re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE)
    codes = {int(code) for row in rows for code in row.split(",")}
    assert codes == {0, 1, 2, 3, 129, 130, 143}


WORKED = {
    "8 equal": cases.even,
    "8, one +20 %": lambda: cases.with_slow([3], 1.2),
    "64, one +20 %": lambda: cases.with_slow([3], 1.2, 64),
    "8, four +20 %": lambda: cases.with_slow([4, 5, 6, 7], 1.2),
    "8, +20 % on another rank each step": cases.slow_at_random,
    "8, one +100 % every 10th step": lambda: cases.slow_in(slice(0, None, 10), 2),
    "8, one +20 % in 60 % of the steps": lambda: cases.slow_in(slice(0, 12), 1.2),
    "8, one 20 % faster": lambda: cases.with_slow([3], 0.8),
    "8, all +20 %": lambda: cases.even() * 1.2,
    "2, one +20 %": lambda: cases.with_slow([1], 1.2, 2),
}


def test_the_worked_examples_are_what_analysis_computes_from_raw_steps() -> None:
    table = README[README.index("<!-- worked -->") :].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    shown = {name: tuple(numbers) for name, *numbers, _ in rows}
    scores = {name: cases.score(make()) for name, make in WORKED.items()}
    assert shown == {
        name: (f"{score.score:.1f}", f"{score.persistent:.1f}", f"{score.transient:.1f}")
        for name, score in scores.items()
    }


def test_the_blocks_that_name_somebody_are_those_of_the_sign_test() -> None:
    text = " ".join(README.split())
    assert "(19 of 24 for two ranks, 20 for four to eight, 21 for 16 to 64, all 24 for 10,000)" in text
    counts = {2: 19, 4: 20, 8: 20, 16: 21, 64: 21, 10_000: 24}
    assert {ranks: blocks_needed(ranks, 24) for ranks in counts} == counts
    assert "fewer than 8 blocks (two ranks)" in text
    assert [blocks_needed(2, blocks) for blocks in (7, 8)] == [None, 8]


def test_numbers_of_trust_in_the_readme_are_those_of_the_checks() -> None:
    text = " ".join(README.split())
    assert f"less than {100 * trust.CORE_SHARE:.0f} % of their compute" in text
    assert f"more than {trust.PREEMPTED_PER_S:.0f} times a second" in text
    assert f"correlation above {ALIKE}, and above chance" in text
    assert f"blocks of fewer than {trust.FEWEST_STEPS} steps" in text
    assert (trust.LATE_SHARE, BUSY_HOST, MOST_RANKS) == (0.25, 0.30, 16)  # a quarter, 30 %, more than 16 ranks


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


def test_every_row_of_the_selftest_is_in_its_table() -> None:
    from gpubalance.checks.selftest.rows import HEALTHY, KINDS

    section = section_from("## Does it name known faults here?")
    assert set(re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE)) == set(KINDS) - {HEALTHY}
