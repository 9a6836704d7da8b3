"""Tests for more GPUs than are here are skipped and say why, before anything is started. Needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, command_environment


def collected(folder: Path, listed: str, code: int = 0) -> str:
    """What pytest says of the tests that need real GPUs, with an nvidia-smi that answers this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{listed}'\nexit {code}\n")
    program.chmod(0o755)
    environment = command_environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", "gpu and gpus", "-p", "no:cacheprovider", "tests/gpu"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(("listed", "count"), [("GPU 0: NVIDIA H200 (UUID: GPU-1)\\n", 1), ("", 0)])
def test_what_needs_two_gpus_is_skipped_with_fewer(tmp_path: Path, listed: str, count: int) -> None:
    said = collected(tmp_path, listed)
    assert f"needs 2 GPUs, nvidia-smi lists {count}" in said
    assert "failed" not in said
    assert "error" not in said


def test_every_test_about_balance_needs_two() -> None:
    """Two ranks are started by nothing that runs with one GPU, apart from the tests that put two ranks on one."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "gpu and not gpus", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, env=command_environment(), capture_output=True, text=True, check=False)
    names = {line.partition("::")[2].partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert names
    assert all("one_gpu" in name or "a_rank_stopped_inside_a_collective_of_nccl" in name for name in names), names


def test_collection_imports_no_torch() -> None:
    code = (
        "import sys, pytest\n"
        "pytest.main(['-q', '--collect-only', '-m', 'gpu', 'tests/gpu'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False).returncode == 0
