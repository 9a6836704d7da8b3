"""Facts and verdict of 100, 1,000 and 10,000 ranks, printed: `pytest -m benchmark -s tests/benchmarks`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, command_environment

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("share", [0.0, 0.4], ids=["healthy", "40 % slow in two attempts"])
@pytest.mark.parametrize("ranks", [100, 1_000, 10_000])
def test_facts_and_verdict(ranks: int, share: float) -> None:
    script = Path(__file__).with_name("analysis_scale.py")
    environment = {**command_environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(ranks), str(share)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    print(
        f"\n{ranks} ranks x 24 blocks, {100 * share:.0f} % slow: {seen['seconds']:.2f} s, "
        f"{1e6 * seen['cpu_seconds'] / ranks:.0f} us of CPU a rank; "
        f"peak {seen['peak_bytes'] / 1e9:.2f} GB, of which the record {seen['record_peak_bytes'] / 1e9:.2f} GB"
    )
