"""Exit codes and streams, one by one, through real processes of the command line (ranks are scripted)."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubalance.cli import entry
from gpubalance.record.file import load_run
from gpubalance.testing.profiles import h200_node
from tests.support import HEALTHY, command_environment, run_cli, scripted_bench_command, slow, write_script

Completed = subprocess.CompletedProcess[bytes]


def bench(
    folder: Path, script: dict[str, Any], *arguments: str, profile: dict[str, Any] | None = None, **env: str
) -> Completed:
    """`gpubalance bench --workload ddp` on two stand-in H200s, to its end."""
    path = folder / "profile.json"
    path.write_text(json.dumps(profile or h200_node()))
    environment = {**command_environment(XDG_STATE_HOME=str(folder / "state")), **write_script(folder, script), **env}
    command = scripted_bench_command("--workload", "ddp", *arguments, stand_in=path)
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=100)


def failing() -> dict[str, Any]:
    return {"ranks-0": {"0": HEALTHY, "1": slow(120.0)}, "ranks-1": {"0": slow(120.0), "1": HEALTHY}}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Completed, Path]:
    """A run that passes, and the folder that is its state's."""
    folder = tmp_path_factory.mktemp("healthy")
    return bench(folder, {"*": HEALTHY}, GPUBALANCE_BENCH_SEED="7"), folder / "state"


@pytest.fixture(scope="module")
def as_json(tmp_path_factory: pytest.TempPathFactory) -> Completed:
    """A run that passes and answers in JSON, where all around it print what they like."""
    noisy = [["print", "NCCL version 2.28.9+cuda13.0"], *HEALTHY]
    return bench(
        tmp_path_factory.mktemp("json"), {"*": noisy}, "--json",
        NCCL_DEBUG="INFO", PYTHONWARNINGS="always", FORCE_COLOR="1", PYTHONIOENCODING="ascii",
    )  # fmt: skip


def test_pass_is_0_and_the_report_stands_alone_on_stdout(healthy: tuple[Completed, Path]) -> None:
    done, _ = healthy
    assert done.returncode == 0
    assert b"PASS" in done.stdout
    assert b"[" not in done.stdout.split(b"\n")[0]
    assert b"each device alone" in done.stderr


def test_a_warning_passes_unless_asked_otherwise(tmp_path: Path) -> None:
    script = {"0": HEALTHY, "1": slow(108.0)}
    assert bench(tmp_path, script).returncode == 0
    assert bench(tmp_path, script, "--fail-on", "warn").returncode == 1


def test_fail_is_1_and_never_when_nothing_may_fail(tmp_path: Path) -> None:
    done = bench(tmp_path, failing())
    assert done.returncode == 1
    verdicts = [line for line in done.stdout.decode().splitlines() if line.startswith("FAIL")]
    assert len(verdicts) == 1
    assert verdicts[0].startswith("FAIL  rank 1 is 20 % slower than rank 0 and costs 16.7 %")
    assert bench(tmp_path, failing(), "--fail-on", "never").returncode == 0


def test_no_verdict_is_3(tmp_path: Path) -> None:
    assert bench(tmp_path, {"0": HEALTHY, "1": [["phase", "ddp"], ["exit", 0]]}).returncode == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--no-such-flag"],
        ["bench", "--nproc", "0"],
        ["bench", "--nproc", "many"],
        ["bench", "--inject", "compute:rank=1"],
        ["bench", "--budget", "soon"],
        ["bench", "--margin", "10:5"],
        ["bench", "--workload", "ddp,nonsense"],
        ["bench", "--model", "resnet"],
        ["bench", "--sample-interval", "0.001"],
        ["report", "/nonexistent/run.json"],
        ["nonsense"],
    ],
)
def test_wrong_use_is_2_with_a_sentence_and_no_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip()
    assert "Traceback" not in err


def test_wrong_use_is_2_to_whoever_started_it() -> None:
    done = run_cli("bench", "--no-such-flag")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--no-such-flag" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_expected_failure_shows_a_traceback_only_on_demand(tmp_path: Path) -> None:
    assert "Traceback" not in run_cli("report", str(tmp_path / "none.json")).stderr
    assert "Traceback" in run_cli("--debug", "report", str(tmp_path / "none.json")).stderr


def test_a_gpu_that_should_be_there_but_is_not_is_3_and_never_a_cpu_run() -> None:
    done = run_cli("bench", env=command_environment(CUDA_VISIBLE_DEVICES="0"))
    assert done.returncode == 3
    assert "CUDA_VISIBLE_DEVICES=0" in done.stderr
    assert run_cli("bench", "--expect-gpus", "2").returncode == 3
    assert run_cli("bench", "--device", "cuda").returncode == 3


def test_json_is_one_strict_document_whatever_the_environment_prints(as_json: Completed) -> None:
    assert as_json.returncode == 0
    document = json.loads(as_json.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert set(document) == {"schema_version", "judgement", "run"}
    assert document["judgement"]["verdict"] == "pass"
    assert as_json.stdout.count(b"\n") == 1
    assert b"\x1b" not in as_json.stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_reads_it(as_json: Completed) -> None:
    read = subprocess.run(["jq", "-r", ".judgement.verdict"], input=as_json.stdout, capture_output=True, check=True)
    assert read.stdout == b"pass\n"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_the_report_survives_any_encoding_and_carries_no_escape_codes_off_a_terminal(
    tmp_path: Path, encoding: str
) -> None:
    profile = h200_node()
    profile["devices"][0]["Name"] = profile["devices"][1]["Name"] = "NVIDIA Übertragung"
    done = bench(tmp_path, {"*": HEALTHY}, profile=profile, PYTHONIOENCODING=encoding, FORCE_COLOR="1")
    assert done.returncode == 0
    assert b"bertragung" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr


def test_the_record_is_saved_where_asked_and_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    bench(tmp_path, {"*": HEALTHY}, "--out", str(out))
    run = load_run(out)
    assert run.settings["out"].value == str(out)
    assert run.settings["workloads"].origin == "flag"
    again = run_cli("report", str(out))
    assert again.returncode == 0
    assert "PASS" in again.stdout


def test_the_record_goes_to_the_state_folder_by_default(healthy: tuple[Completed, Path]) -> None:
    saved = list((healthy[1] / "gpubalance/runs").iterdir())
    assert len(saved) == 1
    assert load_run(saved[0]).plan.backend == "nccl"


def test_settings_come_from_variables_too_and_the_record_says_so(healthy: tuple[Completed, Path]) -> None:
    (saved,) = (healthy[1] / "gpubalance/runs").iterdir()
    setting = load_run(saved).settings["seed"]
    assert (setting.value, setting.origin) == (7, "GPUBALANCE_BENCH_SEED")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = bench(tmp_path, {"*": HEALTHY}, "--out", str(folder / "run.json"))
    assert done.returncode == 2


@pytest.mark.parametrize("place", ["/proc/run.json", "/nonexistent/run.json", "/dev", "-"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, place: str) -> None:
    done = bench(tmp_path, {"*": HEALTHY}, "--out", place)
    assert done.returncode == 2
    assert done.stdout == b""
    assert place.encode() in done.stderr


MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]


def on_mount(folder: Path, options: str, script: dict[str, Any]) -> Completed:
    """`gpubalance bench --out FOLDER/small/run.json` where FOLDER/small is a file system of its own."""
    place = folder / "small"
    place.mkdir()
    if subprocess.run([*MOUNT, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    profile = folder / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    inside = f'mount -t tmpfs -o {options} none {place} && exec "$@"'
    command = scripted_bench_command("--workload", "ddp", "--out", str(place / "run.json"), stand_in=profile)
    environment = {**command_environment(XDG_STATE_HOME=str(folder)), **write_script(folder, script)}
    return subprocess.run(
        [*MOUNT, "sh", "-c", inside, "sh", *command], env=environment, capture_output=True, check=False, timeout=100
    )


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a mount namespace")
def test_a_full_disk_never_passes_but_the_report_is_shown(tmp_path: Path) -> None:
    done = on_mount(tmp_path, "size=16k", {"*": HEALTHY})
    assert done.returncode == 3
    assert b"PASS" in done.stdout
    assert b"Not saved" in done.stdout
    assert b"No space left on device" in done.stderr


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a mount namespace")
def test_a_read_only_file_system_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = on_mount(tmp_path, "ro", {"*": HEALTHY})
    assert done.returncode == 2
    assert b"Read-only file system" in done.stderr
    assert done.stdout == b""


def test_closed_stdout_never_passes(tmp_path: Path) -> None:
    environment = {**command_environment(XDG_STATE_HOME=str(tmp_path)), **write_script(tmp_path, {"*": HEALTHY})}
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    command = scripted_bench_command("--workload", "ddp", stand_in=profile)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], env=environment, stderr=subprocess.PIPE, check=False, timeout=100
    )
    assert done.returncode == 3


def test_a_reader_that_left_is_no_pass_and_no_traceback(healthy: tuple[Completed, Path]) -> None:
    (out,) = (healthy[1] / "gpubalance/runs").iterdir()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "gpubalance", "report", str(out)],
        env=command_environment(), stdout=writer, stderr=subprocess.PIPE, check=False, timeout=100,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_version_and_help_say_what_they_should() -> None:
    assert run_cli("--version").stdout.startswith("gpubalance 0.")
    shown = run_cli("bench", "--help").stdout
    assert "Example: gpubalance bench --nproc 8" in shown
    assert run_cli().returncode == 2 or "Usage" in run_cli().stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gpubalance.cli import entry; entry.run(['bench', '--help'])\n"
        "heavy = {'torch', 'numpy', 'pandas', 'psutil', 'pynvml', 'gpubalance.record.run'} & set(sys.modules)\n"
        "print('heavy', sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "heavy []"


def test_a_report_needs_neither_torch_nor_nvml(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    bench(tmp_path, {"*": HEALTHY}, "--out", str(out))
    code = (
        f"import sys; from gpubalance.cli import entry; code = entry.run(['report', {str(out)!r}])\n"
        "print('heavy', sorted({'torch', 'pynvml', 'pandas'} & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "heavy [] 0"
