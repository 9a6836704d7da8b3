"""What a bench leaves behind for later, and what it is held against: the last verdict, baselines."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import bench_run, entry
from gpubalance.cli.bench_run import run_bench
from gpubalance.errors import UsageError
from gpubalance.record.file import load_run
from gpubalance.record.history import last_verdict_path, load_last_verdicts
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.session.bench import Finished, bench
from gpubalance.session.compare import save_runs
from gpubalance.settings import BenchSettings
from gpubalance.testing.profiles import h200_node
from tests.reports.helpers import pair
from tests.support import HEALTHY, SCRIPTED, slow, write_script

Measure = Callable[[Run], None]
Streams = pytest.CaptureFixture[str]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/gpubalance"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, state: Path) -> Measure:
    """Have the measurement end with this run."""

    def put(run: Run) -> None:
        monkeypatch.setattr(bench_run, "bench", lambda *_: Finished(run, judge(run)))

    return put


def last(state: Path) -> list[tuple[str, int, str | None]]:
    return [(each.verdict, each.exit_code, each.record) for each in load_last_verdicts(state, socket.gethostname())]


def test_the_last_verdict_is_that_of_the_last_real_run(measured: Measure, state: Path) -> None:
    good, bad = pair(100.0, 100.0), pair(100.0, 120.0)
    record = str(state / "runs" / f"{good.run_id}.json")
    for run, expected in ((good, ("pass", 0, record)), (bad, ("fail", 1, record))):
        measured(run)
        run_bench(BenchSettings(), as_json=False)
        assert last(state) == [expected]
    measured(pair(100.0, 100.0, injected=["sleep:rank=1,ms=5"]))
    assert run_bench(BenchSettings(), as_json=False) == 0
    assert last(state) == [("fail", 1, record)]


def test_the_exit_code_is_as_asked(measured: Measure, state: Path) -> None:
    measured(pair(100.0, 108.0))
    run_bench(BenchSettings(fail_on="warn"), as_json=False)
    assert [code for _, code, _ in last(state)] == [1]


def test_a_verdict_that_cannot_be_kept_is_said_and_changes_nothing(
    measured: Measure, state: Path, capsys: Streams
) -> None:
    last_verdict_path(state, socket.gethostname(), "bench").mkdir(parents=True)
    measured(pair(100.0, 100.0))
    assert run_bench(BenchSettings(), as_json=False) == 0
    assert "the verdict could not be kept" in capsys.readouterr().err


def save(folder: Path, run: Run) -> str:
    path = folder / "base.json"
    path.write_text(document_text(run, judge(run)))
    save_runs([path], "default", {"XDG_STATE_HOME": str(folder / "state")})
    return str(path)


def test_a_baseline_turns_a_pass_into_what_history_says(
    measured: Measure, state: Path, tmp_path: Path, capsys: Streams
) -> None:
    path = save(tmp_path, pair(100.0, 100.0))
    measured(pair(120.0, 120.0))
    assert run_bench(BenchSettings(), as_json=False) == 0
    for baseline in ("auto", path):
        assert run_bench(BenchSettings(), as_json=False, baseline=baseline) == 3
        assert "\nNO VERDICT  GPU 0 is 20 % slower than it used to be" in capsys.readouterr().out
        assert [verdict for verdict, _, _ in last(state)] == ["inconclusive"]
    measured(pair(100.0, 100.0))
    assert run_bench(BenchSettings(), as_json=False, baseline="auto") == 0


@pytest.mark.parametrize("kept", [True, False], ids=["the baseline is there", "the baseline is gone"])
def test_a_saved_run_says_what_it_was_held_against_and_is_reported_as_it_was_judged(
    measured: Measure, state: Path, tmp_path: Path, capsys: Streams, kept: bool
) -> None:
    save(tmp_path, pair(100.0, 100.0))
    measured(pair(120.0, 120.0))
    out = tmp_path / "run.json"
    assert run_bench(BenchSettings(out=str(out)), as_json=False, baseline="auto") == 3
    printed = capsys.readouterr().out
    against = load_run(out).against
    assert against is not None
    assert (against.base, against.label, against.runs) == ("auto", "baseline default", [pair(100.0, 100.0).run_id])
    if not kept:
        shutil.rmtree(state)
    assert entry.run(["report", str(out)]) == 3
    assert capsys.readouterr().out == printed
    day = against.judged_at[:10]
    assert f"- as judged on {day} against baseline default\n" in printed
    words = " ".join(printed.split())
    assert f"Held against baseline default (1 run) on {day}; a report shows that judgement as it was made." in words
    assert entry.run(["report", str(out), "--to", "json"]) == 3
    assert capsys.readouterr().out == out.read_text()


def test_a_run_that_was_held_against_another_one_is_a_baseline_as_it_is_by_itself(
    measured: Measure, state: Path, tmp_path: Path
) -> None:
    save(tmp_path, pair(100.0, 100.0))
    measured(pair(120.0, 120.0))
    out = tmp_path / "run.json"
    assert run_bench(BenchSettings(out=str(out)), as_json=False, baseline="auto") == 3
    (saved,) = save_runs([out], "after-the-update", {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert saved.verdict.value == "pass"


@pytest.mark.parametrize("baseline", ["auto", None])
def test_a_baseline_is_missing(measured: Measure, baseline: str | None) -> None:
    measured(pair(100.0, 100.0))
    assert run_bench(BenchSettings(), as_json=False, baseline="auto") == 0
    assert run_bench(BenchSettings(), as_json=False, baseline=baseline, require_baseline=True) == 3


def test_a_wrong_baseline_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(bench_run, "bench", never)
    with pytest.raises(UsageError):
        run_bench(BenchSettings(), as_json=False, baseline="none.json")


Bench = Callable[..., tuple[int, Run]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> Bench:
    """`bench --workload ddp` with scripted ranks on two stand-in H200s, whose history is 100 ms: exit code, record."""
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    monkeypatch.setattr(bench_run, "bench", partial(bench, module=SCRIPTED, stand_in=profile))
    out = tmp_path / "run.json"

    def measure(first: list[Any], second: list[Any] = HEALTHY, **values: Any) -> tuple[int, Run]:
        script = {"ranks-0": {"*": first}, "ranks-1": {"*": second[2:]}}
        for name, value in write_script(tmp_path, script).items():
            monkeypatch.setenv(name, value)
        settings = BenchSettings(force=True, workloads=("ddp",), out=str(out))
        return run_bench(settings, as_json=False, **values), load_run(out)

    assert measure(HEALTHY)[0] == 0
    save_runs([out], "default", {"XDG_STATE_HOME": str(tmp_path / "state")})
    return measure


HISTORIES: dict[str, tuple[list[Any], list[Any], str | None, int, int, str]] = {
    # first pass, second pass, --baseline; passes, exit code, first words of the verdict
    "healthy": (HEALTHY, HEALTHY, "auto", 1, 0, "PASS  "),
    "evenly slower in both": (slow(120.0), slow(120.0), "auto", 2, 1, "FAIL  GPU 0 is 20 % slower than it used to be"),
    "in the first only": (slow(120.0), HEALTHY, "auto", 2, 3, "NO VERDICT  GPU 0 is 20 % slower than it used to be"),
    "a little slower": (slow(109.0), HEALTHY, "auto", 1, 0, "WARN  GPU 0 is 9 % slower than it used to be"),
    "nobody asks for history": (slow(120.0), slow(120.0), None, 1, 0, "PASS  "),
}


@pytest.mark.parametrize(
    ("first", "second", "baseline", "passes", "code", "words"), HISTORIES.values(), ids=HISTORIES.keys()
)
def test_a_node_that_is_evenly_slower_than_it_used_to_be_fails_when_a_second_pass_shows_it(
    scripted: Bench,
    capsys: Streams,
    first: list[Any],
    second: list[Any],
    baseline: str | None,
    passes: int,
    code: int,
    words: str,
) -> None:
    capsys.readouterr()
    ended, run = scripted(first, second, baseline=baseline)
    assert (ended, len(run.ddp)) == (code, passes)
    out, err = capsys.readouterr()
    assert f"\n{words}" in out
    again = "slower than it used to be: looking once more in fresh processes, ranks rotated\n"
    assert err.count(again) == passes - 1
