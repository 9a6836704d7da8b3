"""Times of whole commands, printed: `pytest -m benchmark -s tests/benchmarks`. Nothing passes or fails by them."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import pytest

from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.support import command_environment, run_cli

pytestmark = pytest.mark.benchmark


def time_command(*arguments: str, repeats: int = 5) -> None:
    environment = command_environment()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run_cli(*arguments, env=environment)
        seconds.append(time.perf_counter() - begin)
    print(f"\ngpubalance {' '.join(arguments)}: median {statistics.median(seconds):.2f} s, max {max(seconds):.2f} s")


def test_help() -> None:
    time_command("--help")
    time_command("bench", "--help")


def test_report_of_a_saved_run(tmp_path: Path) -> None:
    run = make_run([make_attempt(steady([100.0] * 8, noise=0.01, steps=31))])
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schema_version": 1, "run": run.model_dump(mode="json")}))
    time_command("report", str(path))
    time_command("report", str(path), "--to", "json")
    time_command("report", str(path), "--to", "csv")


def test_the_whole_bench() -> None:
    time_command("bench", repeats=1)
