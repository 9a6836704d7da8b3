"""`gpubalance compare` and `gpubalance baseline` as they are typed: streams, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import entry
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from tests.reports.helpers import KEPT, pair
from tests.support import command_environment, run_cli

Streams = pytest.CaptureFixture[str]
HEALTHY, SLOW = str(KEPT["h200x2-healthy"]), str(KEPT["h200x2-slow"])


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/gpubalance"


def file(folder: Path, run: Run, name: str = "run") -> str:
    path = folder / f"{name}.json"
    path.write_text(document_text(run, judge(run)))
    return str(path)


CODES = {
    "the same": ((HEALTHY, HEALTHY), 0),
    "a slow device": ((HEALTHY, SLOW), 1),
    "within the rules": ((HEALTHY, HEALTHY, "--fail-on", "busbw:5%", "--fail-on", "score:2"), 0),
    "not measured": ((HEALTHY, HEALTHY, "--fail-on", "step:5%", "--fail-on", "busbw:0%"), 0),
    "one side has it alone": ((SLOW, HEALTHY, "--fail-on", "busbw:5%"), 3),
    "no baseline": (("auto", HEALTHY), 0),
    "no baseline where one is required": (("auto", HEALTHY, "--require-baseline"), 3),
    "no such metric": ((HEALTHY, HEALTHY, "--fail-on", "luck:5%"), 2),
    "no such file": ((HEALTHY, "none.json"), 2),
    "one argument": ((HEALTHY,), 2),
    "no such name": (("auto:..", HEALTHY), 2),
}


@pytest.mark.parametrize(("arguments", "code"), CODES.values(), ids=CODES.keys())
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    assert entry.run(["compare", *arguments]) == code


def test_what_is_not_comparable_is_3_with_the_reason_unless_forced(tmp_path: Path, capsys: Streams) -> None:
    other = file(tmp_path, pair(100.0, 100.0, 100.0))
    assert entry.run(["compare", HEALTHY, other]) == 3
    assert capsys.readouterr().out.startswith("NO VERDICT  not comparable: different devices")
    assert entry.run(["compare", HEALTHY, other, "--force"]) == 0
    assert "by force" in capsys.readouterr().out


def test_a_worse_run_fails_by_the_rule_and_a_better_one_passes(tmp_path: Path) -> None:
    fast, slow = file(tmp_path, pair(100.0, 100.0), "fast"), file(tmp_path, pair(106.0, 106.0), "slow")
    rules = ["--fail-on", "compute:5%"]
    assert entry.run(["compare", fast, slow]) == 0
    assert entry.run(["compare", fast, slow, *rules]) == 1
    assert entry.run(["compare", slow, fast, *rules]) == 0


def test_as_json_stdout_is_one_document(capsys: Streams) -> None:
    assert entry.run(["compare", HEALTHY, SLOW, "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["judgement"]["verdict"] == "fail"
    assert (out.count("\n"), err) == (1, "")


def test_save_show_compare_forget(state: Path, capsys: Streams) -> None:
    assert entry.run(["baseline", "save", HEALTHY]) == 0
    key = capsys.readouterr().out.split()[0]
    assert entry.run(["baseline", "show"]) == 0
    assert capsys.readouterr().out.startswith(f"{key} default: 1 run, 2026-11-30")
    assert entry.run(["baseline", "show", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baselines"][0]["key"] == key
    assert entry.run(["compare", "auto", HEALTHY, "--require-baseline"]) == 0
    assert capsys.readouterr().out.startswith("PASS  nothing that was judged got worse")
    assert entry.run(["baseline", "forget", key]) == 0
    assert capsys.readouterr().out == "1 baseline forgotten\n"
    assert list(state.rglob("*.json")) == []


def test_names_are_shown_and_forgotten_apart(capsys: Streams) -> None:
    for name in ("one", "two"):
        assert entry.run(["baseline", "save", HEALTHY, "--name", name]) == 0
    assert entry.run(["baseline", "forget", "--name", "one"]) == 0
    capsys.readouterr()
    assert entry.run(["baseline", "show", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["baselines"]] == ["two"]
    assert entry.run(["baseline", "show", "--name", "one"]) == 0
    assert capsys.readouterr().out.startswith("no baseline is saved")
    assert entry.run(["baseline", "forget", "--all"]) == 0


REFUSED = {
    "nothing to save": ("save",),
    "a fault was injected": ("save", SLOW),
    "no such file": ("save", "none.json"),
    "no name": ("save", HEALTHY, "--name", "a/b"),
    "nothing to forget": ("forget",),
    "no such key": ("forget", "0123456789ab"),
    "a path instead of a key": ("forget", "../.."),
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED.keys())
def test_refusals_are_wrong_use(state: Path, arguments: tuple[str, ...]) -> None:
    assert entry.run(["baseline", *arguments]) == 2
    assert not state.exists()


def test_a_run_that_failed_is_saved_with_a_warning(tmp_path: Path, capsys: Streams) -> None:
    assert entry.run(["baseline", "save", file(tmp_path, pair(100.0, 120.0))]) == 0
    assert "held against a node that was not well" in capsys.readouterr().err


def test_what_cannot_be_written_is_no_verdict(state: Path) -> None:
    state.parent.write_text("in the way")
    assert entry.run(["baseline", "save", HEALTHY]) == 3


def test_without_a_home_nothing_is_saved_and_nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    codes = [entry.run(["baseline", *words]) for words in (["save", HEALTHY], ["show"], ["forget", "--all"])]
    assert codes == [2, 0, 0]


def test_torch_and_pandas_are_not_imported() -> None:
    result = run_cli(
        "compare", HEALTHY, HEALTHY, env=command_environment(PYTHONVERBOSE="", PYTHONPROFILEIMPORTTIME="1")
    )
    assert result.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "numpy" in imported
    assert {"torch", "pandas"} & imported == set()
