"""What other tools said of a kept run's machine, read by the command that the folder shows."""

from __future__ import annotations

import json

import pytest

from tests.support import ROOT, run_cli

FOLDER = ROOT / "examples/interconnect"


def test_the_command_of_the_readme_says_what_the_readme_says() -> None:
    done = run_cli("compare", "h200-nvbandwidth.json", "../runs/h200x1-healthy.json", "--fail-on", "h2d:2%", cwd=FOLDER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS  the run has 99.9 % to 100.5 % of the bandwidth of nvbandwidth (3 values)")
    assert "PASS: 99.9 % to 100.5 % of nvbandwidth's bandwidth" in (FOLDER / "README.md").read_text()


def test_the_medians_of_the_readme_are_those_of_the_rounds() -> None:
    rows = json.loads((FOLDER / "h200-beside-nvbandwidth.json").read_text())["rows"]
    for row in rows:
        ours, theirs = (sorted(row[f"{who}_gb_per_s"])[2] for who in ("gpubalance", "nvbandwidth"))
        assert row["ratio"] == pytest.approx(ours / theirs)
    ratios = {row["copy"]: f"{row['ratio']:.4f}" for row in rows}
    assert ratios == {"to device 0": "0.9985", "from device 0": "0.9994"}
    assert "0.9985 to the device, 0.9994 from it" in (FOLDER / "README.md").read_text()
