"""The pytest snippet, run by pytest against runs that are kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.helpers import EXAMPLES, Stage
from tests.support import ROOT

SNIPPET = EXAMPLES / "pytest/test_node.py"


def outcome(folder: Path, script: str) -> dict[str, str]:
    """Test -> PASSED, FAILED or ERROR, with this script as gpubalance."""
    stage = Stage(folder)
    stage.recorder("gpubalance", script)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--rootdir", str(folder), str(SNIPPET)]
    path = f"{stage.commands}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "-c", "/dev/null", "--import-mode=importlib"],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert stage.calls("gpubalance") == ["bench --json"]  # once for all tests
    return {name: state for state, name in re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+)", done.stdout, re.MULTILINE)}


def replay(run: str) -> str:
    return f'exec "{sys.executable}" -m gpubalance report "{EXAMPLES}/runs/{run}.json" --to json'


def test_a_healthy_node_passes_all(tmp_path: Path) -> None:
    assert set(outcome(tmp_path, replay("h200x2-healthy")).values()) == {"PASSED"}


def test_a_slow_rank_fails_what_it_should(tmp_path: Path) -> None:
    assert outcome(tmp_path, replay("h200x2-slow")) == {
        "test_the_node_can_train_evenly": "FAILED",
        "test_every_gpu_took_part": "PASSED",
        "test_little_throughput_is_lost": "FAILED",
        "test_all_reduce_moves_the_right_data": "FAILED",  # that run measured no collectives
    }


@pytest.mark.parametrize("script", ["exit 2", "echo nothing; exit 0", "exit 3"])
def test_no_document_is_an_error_and_never_a_pass(tmp_path: Path, script: str) -> None:
    assert set(outcome(tmp_path, script).values()) == {"ERROR"}
