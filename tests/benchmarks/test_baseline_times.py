"""Times of baselines and of the last verdict, printed: `pytest -m benchmark -s tests/benchmarks`."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpubalance.analysis.facts import compute_facts
from gpubalance.analysis.snapshot import saved_run_of
from gpubalance.record.baselines import all_baselines, save_baseline
from gpubalance.record.history import LastVerdict, save_last_verdict
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import KEPT, kept
from tests.support import command_environment, run_cli

pytestmark = pytest.mark.benchmark

RUNS = 1000


def fill(home: Path) -> None:
    run = kept("h200x2-healthy")
    saved = saved_run_of(run, compute_facts(run, 0.05, 0.10), "pass")
    for number in range(RUNS):
        save_baseline(home, "default", saved.model_copy(update={"run_id": str(number)}))


def test_reading_a_thousand_saved_runs(tmp_path: Path) -> None:
    home = tmp_path / "gpubalance"
    fill(home)
    begin = time.perf_counter()
    (baseline,) = all_baselines(home)
    seconds = time.perf_counter() - begin
    kilobytes = sum(path.stat().st_size for path in home.rglob("*.json")) / len(baseline.runs) / 1000
    print(f"\n{len(baseline.runs)} saved runs of {kilobytes:.1f} kB: {seconds:.2f} s")


def test_comparing_with_a_thousand_saved_runs(tmp_path: Path) -> None:
    fill(tmp_path / "gpubalance")
    begin = time.perf_counter()
    result = run_cli(
        "compare", "auto", str(KEPT["h200x2-healthy"]), env=command_environment(XDG_STATE_HOME=str(tmp_path))
    )
    print(f"\ncompare with {RUNS} runs: {time.perf_counter() - begin:.2f} s, exit {result.returncode}")


def test_facts_of_eight_ranks() -> None:
    run = make_run([make_attempt(steady([100.0] * 8, noise=0.01, steps=31))])
    facts = compute_facts(run, 0.05, 0.10)
    begin = time.perf_counter()
    saved = saved_run_of(run, facts, "pass")
    milliseconds = 1000 * (time.perf_counter() - begin)
    print(f"\nfacts of 8 ranks: {milliseconds:.0f} ms, {len(saved.model_dump_json(exclude_none=True)) / 1000:.1f} kB")


def test_the_last_verdict(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc).isoformat()
    last = LastVerdict("bench", socket.gethostname(), "run", now, "pass", "all well", 0, None, None, "0.1.0")
    save_last_verdict(tmp_path / "gpubalance", last)
    environment = command_environment(XDG_STATE_HOME=str(tmp_path))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        result = run_cli("verdict", env=environment)
        times.append(time.perf_counter() - begin)
    print(f"\ngpubalance verdict: {sorted(times)[2]:.2f} s, exit {result.returncode}")
