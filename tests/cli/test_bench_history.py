"""What a bench leaves behind for later, and what it is held against: the last verdict, baselines."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import bench_run
from gpubalance.cli.bench_run import run_bench
from gpubalance.errors import UsageError
from gpubalance.record.history import last_verdict_path, load_last_verdicts
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.session.bench import Finished
from gpubalance.session.compare import save_runs
from gpubalance.settings import BenchSettings
from tests.reports.helpers import pair

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
        monkeypatch.setattr(bench_run, "bench", lambda _settings, _display: Finished(run, judge(run)))

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
