"""The plugin of node-problem-detector: its exit codes, its one line, its configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.helpers import EXAMPLES, Stage

FOLDER = EXAMPLES / "node-problem-detector"
PLUGIN = FOLDER / "gpubalance-npd"


@pytest.mark.parametrize(
    ("code", "out", "ends", "line"),
    [
        (0, "PASS  2 GPUs healthy\n\n50 checks\n", 0, "PASS  2 GPUs healthy"),
        (0, "WARN  GPU 0 has x8\n", 0, "WARN  GPU 0 has x8"),
        (1, "FAIL  GPU 3 has errors\n", 1, "FAIL  GPU 3 has errors"),
        (1, "F" * 500, 1, "F" * 160),
        (3, "NO VERDICT  the driver is silent\n", 2, "NO VERDICT  the driver is silent"),
        (2, "", 2, "NO VERDICT  probe ended with exit code 2"),
        (127, "", 2, "NO VERDICT  probe ended with exit code 127"),
        (143, "", 2, "NO VERDICT  probe ended with exit code 143"),
    ],
)
def test_exit_codes_are_those_of_the_detector(tmp_path: Path, code: int, out: str, ends: int, line: str) -> None:
    stage = Stage(tmp_path)
    stage.answers("look", code, out)
    done = stage.run("/bin/sh", PLUGIN)
    assert (done.returncode, done.stdout, done.stderr) == (ends, f"{line}\n", "")
    assert stage.calls("gpubalance") == ["probe --skip C5,C6,S6,U1"]


def test_a_probe_that_hangs_is_unknown(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.hangs("look")
    done = stage.run("/bin/sh", PLUGIN, "0.2")
    assert (done.returncode, done.stdout) == (2, "NO VERDICT  probe did not end in 0.2 s\n")


def test_the_configuration_is_one_that_the_detector_accepts() -> None:
    """What its own validation asks for: a known plugin, rules within the global timeout, a default condition."""
    config = json.loads((FOLDER / "gpubalance-monitor.json").read_text())
    assert config["plugin"] == "custom"
    (rule,) = config["rules"]
    assert rule["type"] == "permanent"
    assert rule["condition"] in [condition["type"] for condition in config["conditions"]]
    assert Path(rule["path"]).name == PLUGIN.name
    seconds = [int(text.removesuffix("s")) for text in (rule["timeout"], config["pluginConfig"]["timeout"])]
    own_limit = int(rule["args"][0])
    assert own_limit + 2 < seconds[0] <= seconds[1]
    assert config["pluginConfig"]["max_output_length"] == 160
