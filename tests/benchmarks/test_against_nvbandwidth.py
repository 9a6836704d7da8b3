"""What the comparison makes of nvbandwidth: one GPU, a library that is missing, a program that is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.against_nvbandwidth import (
    CannotCompareError,
    compared,
    in_turns,
    rates_in,
    run_theirs,
    version_of,
)
from tests.support import ROOT, command_environment

LOADER = "nvbandwidth: error while loading shared libraries: libnvidia-ml.so.1: cannot open shared object file"


def program(folder: Path, said: str = "", error: str = "", code: int = 0) -> Path:
    path = folder / "nvbandwidth"
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{said}\nEOF\ncat >&2 <<'EOF'\n{error}\nEOF\nexit {code}\n")
    path.chmod(0o755)
    return path


def document(*cases: dict[str, object]) -> str:
    return "nvbandwidth Version: v0.8\n" + json.dumps({"nvbandwidth": {"testcases": list(cases)}})


HOST = {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.1", "54.9"]]}
PEER = {
    "name": "device_to_device_memcpy_write_ce",
    "status": "Passed",
    "bandwidth_matrix": [["N/A", "390.1"], ["391.2", "N/A"]],
}
WAIVED = {"name": "device_to_device_memcpy_write_ce", "status": "Waived"}


def test_copies_are_named_by_source_and_target() -> None:
    assert rates_in(document(PEER, HOST)) == {
        "peer 0 -> 1": 390.1, "peer 1 -> 0": 391.2, "to device 0": 55.1, "to device 1": 54.9,
    }  # fmt: skip


def test_a_test_that_was_left_out_leaves_the_others() -> None:
    assert rates_in(document(WAIVED, HOST)) == {"to device 0": 55.1, "to device 1": 54.9}
    assert rates_in(document({"name": "a_test_of_tomorrow", "bandwidth_matrix": [["1"]]}, HOST)) == rates_in(
        document(HOST)
    )


def test_its_exit_code_does_not_hide_what_it_measured(tmp_path: Path) -> None:
    assert run_theirs(program(tmp_path, document(WAIVED, HOST), code=1)) == {"to device 0": 55.1, "to device 1": 54.9}


@pytest.mark.parametrize(
    ("said", "error", "code", "words"),
    [
        ("", LOADER, 127, "cannot be started: the shared library libnvidia-ml.so.1 is missing"),
        ("", "sh: not found", 127, "cannot be started: sh: not found"),
        ("", "CUDA_ERROR_NO_DEVICE", 1, "ended with exit code 1 and said: CUDA_ERROR_NO_DEVICE"),
        ("no device", "", 0, "printed no JSON but: no device"),
        ("{broken", "", 0, "printed no JSON but: {broken"),
    ],
)
def test_what_went_wrong_is_said(tmp_path: Path, said: str, error: str, code: int, words: str) -> None:
    with pytest.raises(CannotCompareError) as caught:
        run_theirs(program(tmp_path, said, error, code))
    assert words in str(caught.value)


def test_a_program_that_is_not_there_or_not_executable_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotCompareError, match="No such file"):
        version_of(tmp_path / "nowhere")
    (tmp_path / "plain").write_text("text")
    with pytest.raises(CannotCompareError, match=r"Permission denied|Exec format"):
        version_of(tmp_path / "plain")


def test_the_command_ends_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.against_nvbandwidth", str(program(tmp_path, "", LOADER, 127))]
    done = subprocess.run(command, cwd=ROOT, env=command_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("the shared library libnvidia-ml.so.1 is missing")
    assert "Traceback" not in done.stderr


def test_rounds_end_at_the_deadline_but_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.against_nvbandwidth.run_ours", lambda: {"to device 0": 55.0})
    ours, theirs = in_turns(program(tmp_path, document(HOST)), 5, deadline_s=0.0)
    (row,) = compared(ours, theirs)
    assert (row["gpubalance_gb_per_s"], row["nvbandwidth_gb_per_s"]) == ([55.0], [55.1])
