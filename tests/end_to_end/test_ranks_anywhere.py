"""Real ranks over gloo whose times nobody looks at: they measure whatever else runs, so that other tests may."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpubalance.launch.start import RANK_MODULE
from gpubalance.record.file import load_run
from gpubalance.testing.profiles import h200_node
from tests.end_to_end.commands import SHORT, SMALL, TORCHRUN
from tests.support import BOUND, COMMAND, alive, bench_command, children_of, command_environment, eventually, run_cli

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")


def test_a_step_of_srun_is_adopted_and_rank_0_reports_once(tmp_path: Path) -> None:
    """Without Slurm: two processes with the variables of its tasks, each bound to a core of its own. There is no store
    but that of rank 0's parent.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    out = tmp_path / "run.json"
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "2"}  # fmt: skip
    arguments = ("bench", "--device", "cpu", "--batch", "64", "--workload", "collectives", "--sizes", "8K",
                 "--out", str(out))  # fmt: skip
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", BOUND, str(cores[1 - rank]), *COMMAND, *arguments],
            env=command_environment(TMPDIR=str(tmp_path), SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **step),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (1, 0)
    ]
    (nothing, silence), (shown, _) = (task.communicate(timeout=200) for task in tasks)
    run = load_run(out)
    assert (tasks[0].returncode, nothing, silence) == (0, "", "")
    assert shown.count("launcher: slurm (2 ranks, 1 node)") == 1
    assert (run.plan.launcher, run.errors) == ("slurm", [])
    assert [device.cpu_cores for device in run.plan.devices] == [[cores[1]], [cores[0]]]
    assert run.node.cpu_cores == cores
    assert {(row.ranks, row.wrong_elements) for row in run.collectives} == {(2, 0)}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("gpubalance-")] == []


def test_nobody_outlives_a_torchrun_that_is_killed(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [*TORCHRUN, "bench", "--device", "cpu", "--batch", "64", "--workload", "ddp"],
        env=command_environment(TMPDIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = eventually(lambda: next(tmp_path.glob("gpubalance-*/ranks-0-rank1.jsonl"), None), seconds=60)
    eventually(lambda: b'"phase_begin"' in log.read_bytes(), seconds=60)
    everybody = children_of(launcher.pid)
    assert len(everybody) >= 4  # two parents, two ranks; the sensor makes five
    launcher.kill()
    launcher.wait()
    eventually(lambda: not alive(everybody), seconds=10)


def test_a_rank_killed_in_the_middle_of_ddp_is_named_and_its_blocks_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    process = subprocess.Popen(
        [*COMMAND, *SMALL, "--workload", "ddp", "--out", str(out)],
        env=command_environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: next(tmp_path.glob("gpubalance-*/ranks-0-rank1.jsonl"), None))
    eventually(lambda: log.read_bytes().count(b'"event": "block"') >= 3, seconds=60)
    hello = json.loads(log.read_text().splitlines()[0])
    os.kill(hello["pid"], signal.SIGKILL)
    everybody = children_of(process.pid)
    stdout, _ = process.communicate(timeout=60)
    run = load_run(out)
    cause = next(error for error in run.errors if error.first_cause)
    assert process.returncode == 3
    assert (cause.rank, cause.kind, cause.phase) == (1, "killed", "ddp")
    assert b"rank 1 killed by SIGKILL" in stdout
    assert len(run.ddp[0].ranks[1].fenced) >= 3
    eventually(lambda: not alive(everybody), seconds=10)


def test_a_rank_that_never_comes_back_is_named_within_its_deadline(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    fault = ("--inject", "sleep:rank=1,ms=3600000")
    done = run_cli(*SMALL, "--workload", "ddp", *fault, "--stall-timeout", "12s", "--out", str(out))
    run = load_run(out)
    cause = next(error for error in run.errors if error.first_cause)
    assert done.returncode == 3
    assert (cause.rank, cause.kind, cause.phase) == (1, "stalled", "ddp")
    assert ": its process sleeps (state S), in in_forward (workloads/inject.py:" in cause.message
    assert run.bisection is not None
    assert run.bisection.repeated is False
    assert "the failure was rank 1's own" in done.stdout.replace("\n      ", " ")


@pytest.mark.skipif(shutil.which("unshare") is None or os.getuid() != 0, reason="needs a namespace of its own")
def test_a_host_name_that_does_not_resolve_is_no_obstacle(tmp_path: Path) -> None:
    inside = 'ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null; hostname nosuchhost-xyz; exec "$@"'
    bench = [*COMMAND, *SMALL, "--workload", "ddp"]
    done = subprocess.run(
        ["unshare", "-n", "-u", "sh", "-c", inside, "sh", *bench],
        env=command_environment(XDG_STATE_HOME=str(tmp_path), **SHORT),
        capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("namespaces are not allowed here")
    assert "balance" in done.stdout, done.stderr
    assert "nosuchhost" not in done.stdout


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a namespace of its own")
def test_an_unknown_uid_without_a_home_can_measure(tmp_path: Path) -> None:
    here = command_environment(TMPDIR=str(tmp_path), **SHORT)
    environment = {name: value for name, value in here.items() if name not in ("HOME", "XDG_STATE_HOME")}
    who = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if subprocess.run([*who, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("user namespaces are not allowed here")
    done = subprocess.run(
        [*who, *COMMAND, *SMALL, "--workload", "ddp"],
        env=environment, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert "balance" in done.stdout, done.stderr
    assert "Not saved" in done.stdout


def test_gpus_that_torch_cannot_use_are_no_verdict_and_never_a_cpu_run(tmp_path: Path) -> None:
    """Two GPUs by NVML (a stand-in), and a torch that has no CUDA or no driver to use it with."""
    if torch_sees_gpus():
        pytest.skip("this torch can use a GPU")
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    command = bench_command("--workload", "ddp", stand_in=profile, module=RANK_MODULE)
    environment = command_environment(XDG_STATE_HOME=str(tmp_path))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 3, done.stderr
    assert "NO VERDICT  2 GPUs found, but torch" in done.stdout


def torch_sees_gpus() -> bool:
    code = "import torch, sys; sys.exit(torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode != 0
