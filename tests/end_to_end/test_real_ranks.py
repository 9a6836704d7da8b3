"""Real ranks with real torch over gloo on the CPU: a run of each family."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.record.collectives import NAMES, bus_factor
from gpubalance.record.file import load_run
from gpubalance.record.run import Run
from tests.end_to_end.commands import SHORT, SMALL, TORCHRUN
from tests.support import COMMAND, command_environment, run_cli

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores"),
]


COLLECTIVES = (
    "--collectives", "all_reduce,all_gather,reduce_scatter,alltoall,broadcast,reduce,sendrecv",
    "--sizes", "8,1000,64K", "--jitter",
)  # fmt: skip
"""All seven, at sizes that need rounding."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A whole run to its end, in an environment that steers and disturbs what it can."""
    state = tmp_path_factory.mktemp("state")
    environment = command_environment(
        NCCL_DEBUG="INFO", PYTHONWARNINGS="always", FORCE_COLOR="1", PYTHONIOENCODING="ascii",
        TORCH_CPP_LOG_LEVEL="INFO", TORCH_DISTRIBUTED_DEBUG="INFO", XDG_STATE_HOME=str(state),
        RANK="3", WORLD_SIZE="8", MASTER_ADDR="10.255.255.1", MASTER_PORT="1",
    )  # fmt: skip
    return run_cli(*SMALL, *COLLECTIVES, "--json", env=environment)


@pytest.fixture(scope="module")
def beside_a_stranger(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Run]:
    """Collectives in bfloat16 while somebody listens on the usual port: exit code, report, record."""
    listener = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 29500)); print('up', flush=True); sys.stdin.read()"
    )
    stranger = subprocess.Popen(
        [sys.executable, "-c", listener], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert stranger.stdout is not None
    stranger.stdout.readline()
    folder = tmp_path_factory.mktemp("stranger")
    out = folder / "run.json"
    try:
        environment = command_environment(MASTER_PORT="29500", XDG_STATE_HOME=str(folder))
        asked = ("--workload", "collectives", *COLLECTIVES, "--dtype", "bfloat16", "--out", str(out))
        done = run_cli(*SMALL, *asked, env=environment)
        assert psutil.Process(stranger.pid).is_running()
    finally:
        stranger.communicate()
    return done.returncode, done.stdout, load_run(out)


def test_a_whole_run_is_one_valid_document_under_a_hostile_environment(
    whole: subprocess.CompletedProcess[str],
) -> None:
    document: dict[str, Any] = json.loads(whole.stdout)
    run = Run.model_validate(document["run"])
    assert whole.returncode in (0, 3), whole.stderr
    assert not run.errors
    (note,) = run.plan.notes
    assert note.startswith("RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment ignored")
    assert [phase.name for phase in run.phases if phase.end_s is not None][:4] == ["join", "solo", "ddp", "collectives"]
    assert [len(rank.fenced) for rank in run.ddp[0].ranks] == [24, 24]
    assert len({solo.output_digest for solo in run.solo}) == 1
    assert {row.wrong_elements for row in run.collectives} == {0}
    assert {row.collective for row in run.collectives} >= {"all_reduce", "all_gather"}
    assert {skip.what for skip in run.skipped} >= {"data_parallel", "links"}
    assert document["judgement"]["facts"]["utilization"]["score"] is None
    assert document["judgement"]["facts"]["memory"]["score"] is None
    for rank, samples in zip(run.ddp[0].ranks, run.samples.devices, strict=True):
        own = min(100 * use.cpu_s / use.wall_s for use in rank.host)  # by the rank's own clock; it waits besides
        assert max(value for value in samples.columns["cpu_percent"] if value is not None) > own > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_collective_moves_the_right_data_over_gloo(dtype: str, request: pytest.FixtureRequest) -> None:
    """What this torch cannot do over gloo is skipped by its word."""
    if dtype == "float32":
        run = Run.model_validate(json.loads(request.getfixturevalue("whole").stdout)["run"])
    else:
        _, _, run = request.getfixturevalue("beside_a_stranger")
    assert not run.errors
    assert {row.wrong_elements for row in run.collectives} == {0}
    assert {(row.backend, row.mode, row.dtype, row.ranks) for row in run.collectives} == {("gloo", "eager", dtype, 2)}
    refused = {skip.what.split()[0] for skip in run.skipped if skip.what.endswith(f"of {dtype} over gloo")}
    assert {row.collective for row in run.collectives} == set(NAMES) - refused
    assert {"all_reduce", "broadcast", "send_recv"} <= set(NAMES) - refused
    gathered = [row for row in run.collectives if row.collective == "all_gather"]
    assert [row.size_bytes for row in gathered] == [992, 65536] * (len(gathered) // 2)  # 8 rounds to nothing
    for row in run.collectives:
        assert row.jitter is not None
        assert row.host_time_us is not None
        algorithm, bus = row.algorithm_bandwidth_gb_per_s, row.bus_bandwidth_gb_per_s
        assert algorithm == pytest.approx(row.size_bytes / row.time_us / 1e3)
        assert bus == pytest.approx(algorithm * bus_factor(row.collective, 2))


def test_a_fault_is_named_confirmed_and_fails(tmp_path: Path) -> None:
    """On a machine that others use a run may be too noisy for a verdict, and says so; then another one is made."""
    for attempt in range(3):
        out = tmp_path / f"run{attempt}.json"
        fault = ("--inject", "compute:rank=1,percent=150")
        done = run_cli(*SMALL, "--workload", "ddp", *fault, "--out", str(out), env=command_environment(**SHORT))
        run = load_run(out)
        assert run.injected == ["compute:rank=1,percent=150"]
        assert not re.search(r"rank 0 (is|was) [0-9.]+ % slower", done.stdout)
        if done.returncode != 3:
            break
    assert done.returncode == 1, done.stdout
    assert re.search(r"rank 1 is [0-9.]+ % slower", done.stdout)
    assert [attempt.attempt for attempt in run.ddp] == [0, 1]


def test_torchrun_is_adopted_confirms_in_fresh_ranks_and_rank_0_reports_once(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    fault = ("--inject", "compute:rank=1,percent=150")
    done = subprocess.run(
        [*TORCHRUN, "bench", "--device", "cpu", "--batch", "64", "--workload", "ddp", *fault, "--out", str(out)],
        env=command_environment(TMPDIR=str(tmp_path), **SHORT),
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    run = load_run(out)
    assert run.plan.launcher == "torchrun"
    assert not run.errors
    assert done.stdout.count("gpubalance 0.") == 1
    assert done.stdout.count("Saved:") == 1
    if "too noisy" not in done.stdout:  # what a busy machine gives; the other launchers' tests look at the verdict
        assert [attempt.attempt for attempt in run.ddp] == [0, 1]
        assert "rank 1 " in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("gpubalance-")] == []


def test_a_stranger_on_the_usual_port_is_never_met(beside_a_stranger: tuple[int, str, Run]) -> None:
    code, report, run = beside_a_stranger
    assert code == 0, report
    assert not run.errors


def test_two_at_once_are_not_measured_against_each_other(tmp_path: Path) -> None:
    environment = command_environment(XDG_STATE_HOME=str(tmp_path))
    del environment["GPUBALANCE_BENCH_FORCE"]
    first = subprocess.Popen(
        [*COMMAND, *SMALL, "--workload", "solo"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert first.stderr is not None
    first.stderr.readline()
    second = run_cli(*SMALL, "--workload", "solo", env=environment)
    assert second.returncode == 3
    assert f"another gpubalance (pid {first.pid}) is measuring here" in second.stderr
    first.terminate()
    first.communicate(timeout=60)


def test_one_rank_alone_trains_and_has_no_peers_to_be_judged_by(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    one = ["bench", "--device", "cpu", "--nproc", "1", "--batch", "32", "--workload", "ddp", "--out", str(out)]
    done = run_cli(*one, env=command_environment(XDG_STATE_HOME=str(tmp_path), **SHORT))
    run = load_run(out)
    assert not run.errors
    assert [len(rank.fenced) for rank in run.ddp[0].ranks] == [24]
    assert (done.returncode, "one device has no peers" in done.stdout.replace("\n            ", " ")) == (3, True)
