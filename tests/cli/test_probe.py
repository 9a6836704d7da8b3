"""`gpubalance probe` as it is typed: streams, exit codes, refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubalance.cli import entry
from gpubalance.record.file import load_record
from gpubalance.record.probe import Probe
from gpubalance.testing.profiles import h200_node, names
from tests.support import command_environment, run_cli


def driver(folder: Path, **values: Any) -> str:
    path = folder / "driver.json"
    path.write_text(json.dumps({**h200_node(), **values}))
    return str(path)


def test_a_healthy_driver_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["probe", "--simulate", "h200x2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS  2 GPUs healthy")
    assert "Simulated: h200x2" in out


EXIT_CODES = {
    "healthy": ((), {}, 0),
    "an uncorrected error": ((), {"faults": [{"call": "nvmlDeviceGetTotalEccErrors", "device": 1, "value": 7}]}, 1),
    "a warning": ((), {"faults": [{"call": "nvmlDeviceGetPersistenceMode", "value": 0}]}, 0),
    "a warning that fails": (
        ("--fail-on", "warn"), {"faults": [{"call": "nvmlDeviceGetPersistenceMode", "value": 0}]}, 1,
    ),
    "a required answer that is refused": ((), {"faults": [{"call": "nvmlDeviceGetRemappedRows", "error": 4}]}, 3),
    "never": (("--fail-on", "never", "--expect-gpus", "8"), {}, 0),
    "fewer GPUs": (("--expect-gpus", "8"), {}, 1),
    "fewer links": (("--expect-nvlinks", "19"), {}, 1),
    "a strict check": (
        ("--require", "M6"), {"faults": [{"call": "nvmlDeviceGetRowRemapperHistogram", "error": 4}]}, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "values", "code"), EXIT_CODES.values(), ids=EXIT_CODES.keys())
def test_exit_codes(tmp_path: Path, flags: tuple[str, ...], values: dict[str, Any], code: int) -> None:
    assert entry.run(["probe", "--simulate", driver(tmp_path, **values), *flags]) == code


def test_a_driver_that_counts_gpus_and_refuses_everything_else_never_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [f"nvmlDeviceGet{name}" for name in (*h200_node()["devices"][0], "NvLinkState", "P2PStatus")]
    faults = [{"call": call, "error": 999} for call in calls]
    assert entry.run(["probe", "--simulate", driver(tmp_path, faults=faults)]) == 3
    assert capsys.readouterr().out.startswith("NO VERDICT  ")


@pytest.mark.parametrize(
    "flags",
    [
        ("--expect-gpus", "0"),
        ("--expect-nvlinks", "-1"),
        ("--only", "Z1"),
        ("--only", "M2,"),
        ("--skip", "S,M,X,P,N,T,U,A,C,Q"),
        ("--require", "nothing"),
        ("--simulate", "h200x3"),
        ("--simulate", "/nowhere/driver.json"),
        ("--simulate", "h200x2", "--load"),
        ("--fail-on", "sometimes"),
        ("--out", "/nowhere/probe.json"),
        ("--unknown",),
    ],
)
def test_wrong_use_is_two_and_says_what(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["probe", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip()


def test_an_unknown_profile_is_answered_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    entry.run(["probe", "--simulate", "h200x3"])
    error = capsys.readouterr().err
    assert "h200x2" in error


@pytest.mark.parametrize("name", names())
def test_every_profile_gives_a_report_whose_first_line_stands_alone(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = entry.run(["probe", "--simulate", name])
    first = capsys.readouterr().out.splitlines()[0]
    assert code in (0, 1, 3)
    assert len(first) <= 80
    assert first.split("  ")[0] in ("PASS", "WARN", "FAIL", "NO VERDICT")


def test_json_is_one_strict_document_whatever_else_is_printed() -> None:
    noisy = {"NCCL_DEBUG": "INFO", "PYTHONWARNINGS": "always", "FORCE_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    done = run_cli("probe", "--simulate", "sick", "--json", env=command_environment(**noisy))

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    document = json.loads(done.stdout, parse_constant=refuse)
    assert set(document) == {"schema_version", "judgement", "probe"}
    assert document["judgement"]["verdict"] == "fail"
    assert Probe.model_validate(document["probe"]).simulated == "sick"
    assert done.returncode == 1


def test_what_is_saved_can_be_reported_again_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.json"
    assert entry.run(["probe", "--simulate", "h200x2", "--out", str(path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert isinstance(load_record(path), Probe)
    code = (
        "import sys; from gpubalance.cli import entry; code = entry.run(['report', sys.argv[1]]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    again = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=command_environment(), capture_output=True, text=True, check=True
    )
    assert again.stdout.splitlines() == printed
    assert entry.run(["report", str(path), "--to", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_text())
    assert entry.run(["report", str(path), "--to", "svg"]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert entry.run(["report", str(path), "--to", "csv"]) == 2


def test_the_machine_without_a_gpu_gets_no_verdict_and_never_a_pass() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    done = run_cli("probe")
    assert done.returncode == 3
    assert done.stdout.startswith("NO VERDICT  no GPU on this machine")


def test_an_empty_environment_and_a_uid_without_a_name_change_nothing() -> None:
    bare = {"PYTHONPATH": command_environment()["PYTHONPATH"]}
    assert run_cli("probe", "--simulate", "h200x2", env=bare).returncode == 0
    who = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if shutil.which("unshare") is None or subprocess.run([*who, "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    command = [*who, sys.executable, "-m", "gpubalance", "probe", "--simulate", "h200x2"]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_variables_give_what_flags_give(tmp_path: Path) -> None:
    environment = command_environment(GPUBALANCE_PROBE_EXPECT_GPUS="8", GPUBALANCE_PROBE_SIMULATE="h200x2")
    done = run_cli("probe", "--json", env=environment)
    settings = json.loads(done.stdout)["probe"]["settings"]
    assert done.returncode == 1
    assert settings["expect_gpus"] == {"value": 8, "origin": "GPUBALANCE_PROBE_EXPECT_GPUS"}
