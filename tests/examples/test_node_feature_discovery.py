"""The feature file of Node Feature Discovery, made from kept records."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.examples.helpers import EXAMPLES, Stage
from tests.support import ROOT

SCRIPT = EXAMPLES / "node-feature-discovery/gpubalance-nfd"
LABEL = re.compile(r"[a-z][a-z.-]*=[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")

Write = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Run the script with the real `gpubalance report`; its exit code and all files in the folder."""
    stage = Stage(tmp_path)
    stage.command("gpubalance", f'#!/bin/sh\nexec "{sys.executable}" -m gpubalance "$@"\n')
    folder = tmp_path / "features.d"
    folder.mkdir()

    def run(record: Path, hours: str = "24") -> tuple[int, dict[str, str]]:
        done = stage.run("/bin/sh", SCRIPT, record, folder, hours, PYTHONPATH=str(ROOT))
        return done.returncode, {path.name: path.read_text() for path in folder.iterdir()}

    return run


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EXAMPLES / name).read_text())
    return loaded


def test_a_probe_becomes_labels_that_expire_with_the_look_not_with_the_file(write: Write) -> None:
    code, files = write(EXAMPLES / "probes/h200x2-healthy.json")
    began = datetime.fromisoformat(document("probes/h200x2-healthy.json")["probe"]["started_at"])
    expiry = (began + timedelta(hours=24)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert code == 0
    assert files == {
        "gpubalance-probe": f"# +expiry-time={expiry}\ngpubalance.probe-verdict=pass\ngpubalance.probe-gpus=2\n"
    }


def test_a_run_has_its_balance_as_well_rounded_down(write: Write) -> None:
    _, files = write(EXAMPLES / "runs/h200x2-healthy.json", "1")
    _, *labels = files["gpubalance-bench"].splitlines()
    assert labels == ["gpubalance.bench-verdict=pass", "gpubalance.bench-gpus=2", "gpubalance.balance=99"]
    assert all(LABEL.fullmatch(label) for label in labels)


def test_a_run_that_measured_no_balance_has_no_such_label(write: Write, tmp_path: Path) -> None:
    saved = document("runs/h200x2-healthy.json")
    saved["run"]["ddp"] = []
    (tmp_path / "run.json").write_text(json.dumps(saved))
    code, files = write(tmp_path / "run.json")
    assert code == 0
    assert "balance" not in files["gpubalance-bench"].replace("gpubalance", "")
    assert "gpubalance.bench-verdict=inconclusive" in files["gpubalance-bench"]


@pytest.mark.parametrize(("key", "value"), [("probe", {"simulated": "h200x2"}), ("run", {"injected": ["sleep"]})])
def test_what_says_nothing_about_the_node_leaves_no_file(
    write: Write, tmp_path: Path, key: str, value: dict[str, Any]
) -> None:
    saved = document(f"{key}s/h200x2-healthy.json")
    saved[key] |= value
    (tmp_path / "record.json").write_text(json.dumps(saved))
    code, files = write(tmp_path / "record.json")
    assert code != 0
    assert files == {}


def test_a_file_that_is_no_record_leaves_the_old_labels(write: Write, tmp_path: Path) -> None:
    _, before = write(EXAMPLES / "probes/h200x2-healthy.json")
    (tmp_path / "record.json").write_text("{}")
    code, after = write(tmp_path / "record.json")
    assert code == 2
    assert after == before
