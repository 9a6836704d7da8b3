"""`gpubalance compare` with a log as one side, as it is typed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import entry
from gpubalance.reports.document import document_text
from tests.analysis.test_foreign import MIB, our_row, run_of
from tests.readers.helpers import COPIES, DATA, REAL, copies_document, json_document
from tests.reports.helpers import KEPT

HEALTHY = str(KEPT["h200x2-healthy"])
LOG, COPY_LOG = str(DATA / "nccl-tests-h200x2.txt"), str(DATA / "nvbandwidth-h200x2.txt")


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run 10 % slower than the log at 32 MiB."""
    path = tmp_path / "run.json"
    record = run_of(our_row(32 * MIB, 138.04 / 0.9), our_row(64 * MIB, 251.0))
    path.write_text(document_text(record, judge(record)))
    return str(path)


def test_exit_codes_by_the_users_rule_and_by_which_side_is_new(run: str) -> None:
    assert entry.run(["compare", LOG, run]) == 0  # a warning
    assert entry.run(["compare", LOG, run, "--fail-on", "busbw:5%"]) == 1
    assert entry.run(["compare", LOG, run, "--fail-on", "busbw:12%"]) == 0
    assert entry.run(["compare", run, LOG, "--fail-on", "busbw:5%"]) == 0
    assert entry.run(["compare", HEALTHY, COPY_LOG, "--fail-on", "h2d:2%"]) == 0
    assert entry.run(["compare", HEALTHY, LOG]) == 3  # nothing large enough in common


def test_json_of_both_tools_by_content_whatever_the_name(run: str, tmp_path: Path) -> None:
    one, other = tmp_path / "a.txt", tmp_path / "b.log"
    one.write_text(json.dumps(json_document()))
    other.write_text(json.dumps(copies_document()))
    assert entry.run(["compare", str(one), run, "--fail-on", "busbw:1%"]) == 0
    assert entry.run(["compare", str(other), HEALTHY, "--fail-on", "h2d:1%"]) == 0


WRONG = {
    "two logs": (LOG, COPY_LOG),
    "a log against a baseline": ("auto", LOG),
    "a rule about something else": (LOG, HEALTHY, "--fail-on", "score:2"),
    "peer copies of two runs": (HEALTHY, HEALTHY, "--fail-on", "p2p:1%"),
    "two forms": (LOG, HEALTHY, "--json", "--markdown"),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_wrong_use_is_2_in_one_sentence(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["", "prose\n", "all_reduce_perf: not found\n", "\0"])
def test_no_result_is_2_and_never_0(text: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    for sides in ((str(log), run), (run, str(log))):
        assert entry.run(["compare", *sides]) == 2
        assert str(log) in capsys.readouterr().err


def test_the_log_may_come_from_a_pipe(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(REAL)))
    assert entry.run(["compare", "-", run, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judgement"]["comparison"]["tool"] == "nccl-tests"


def test_markdown_of_a_log_and_of_two_runs(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["compare", LOG, run, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### WARN: all\\_reduce 32 MiB in place: bus bandwidth 10 % worse")
    assert entry.run(["compare", HEALTHY, HEALTHY, "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### PASS: ")
    assert "| of | base | new | change | interval | real |" in out
    assert COPIES
