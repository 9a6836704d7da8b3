"""The whole command on real GPUs: `pytest -m gpu`. Needs two for anything about balance."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubalance.record.file import load_run
from gpubalance.record.run import Run
from tests.support import alive, children_of, command_environment, eventually, run_cli

pytestmark = pytest.mark.gpu

QUICK = ("bench", "--nproc", "2")


def bench(folder: Path, *arguments: str, **env: str) -> tuple[int, Run, dict[str, Any]]:
    done = run_cli(*QUICK, "--json", *arguments, env=command_environment(XDG_STATE_HOME=str(folder), **env))
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return done.returncode, Run.model_validate(document["run"]), document["judgement"]


def finding(judgement: dict[str, Any], name: str) -> dict[str, Any]:
    return next(f for f in judgement["findings"] if f["id"] == name)


@pytest.mark.gpus(2)
def test_a_healthy_pair_passes_and_every_part_is_there(tmp_path: Path) -> None:
    code, run, judgement = bench(tmp_path, NCCL_DEBUG="INFO", PYTHONWARNINGS="always")
    assert code == 0, judgement["sentence"]
    assert not run.errors
    assert [info.device_uuid for info in run.ranks[:2]] == [device.uuid for device in run.plan.devices]
    assert finding(judgement, "same_bits")["state"] == "pass"
    assert {row.wrong_elements for row in run.collectives} == {0}
    assert run.data_parallel is not None
    assert run.samples.health is not None
    assert run.samples.health.died_with is None
    assert run.samples.health.hung_in is None
    pids = [process.pid for process in run.samples.processes if process.rank is not None]
    ranks = {info.pid for info in run.ranks if info.attempt == 0}
    own = [pid for pid in pids if pid in ranks and pids.count(pid) == 1]
    assert len(own) >= 2, "each rank's process must appear on exactly one GPU"
    levels = judgement["facts"]["utilization"]["useful"]
    assert all(0.3 < level <= 1 for level in levels)


@pytest.mark.gpus(2)
def test_links_bring_the_right_bytes_at_nvlinks_speed_and_both_ways_overlap(tmp_path: Path) -> None:
    code, run, judgement = bench(tmp_path, "--workload", "links")
    assert code == 0, judgement["sentence"]
    assert run.links is not None
    assert run.links.complete
    assert {(peer.wrong_bytes, peer.wrong_on_host_bytes) for peer in run.links.peers} == {(0, 0)}
    for peer in run.links.peers:
        assert peer.both_ways_gb_per_s is not None
        assert peer.both_ways_gb_per_s > 0.8 * max(peer.looks_gb_per_s)
    for copies in run.links.devices:
        assert copies.to_device_gb_per_s is not None
        assert copies.together_to_device_gb_per_s is not None


def test_links_of_one_gpu_are_memory_and_host(tmp_path: Path) -> None:
    command = ("bench", "--nproc", "1", "--workload", "links", "--json")
    done = run_cli(*command, env=command_environment(XDG_STATE_HOME=str(tmp_path)))
    run = Run.model_validate(json.loads(done.stdout)["run"])
    assert run.links is not None
    assert (run.links.peers, run.links.missing["peers"]) == ([], "one device has no peer")
    assert done.returncode == 0


@pytest.mark.gpus(2)
@pytest.mark.parametrize("rank", [0, 1])
def test_twenty_percent_on_either_rank_is_named_confirmed_and_device_time(tmp_path: Path, rank: int) -> None:
    code, run, judgement = bench(tmp_path, "--workload", "solo,ddp", "--inject", f"compute:rank={rank},percent=20")
    straggler = finding(judgement, "straggler")
    assert code == 1
    assert straggler["subject"].startswith(f"rank {rank} on cuda:{rank}")
    assert any(line.startswith("device time") for line in straggler["evidence"])
    assert len(run.ddp) == 2


@pytest.mark.gpus(2)
def test_a_sleeping_host_is_named_as_host_time(tmp_path: Path) -> None:
    code, _, judgement = bench(tmp_path, "--workload", "solo,ddp", "--inject", "sleep:rank=1,ms=3")
    assert code == 1
    assert any(line.startswith("host time") for line in finding(judgement, "straggler")["evidence"])


@pytest.mark.gpus(2)
def test_more_data_is_no_slow_device(tmp_path: Path) -> None:
    code, _, judgement = bench(tmp_path, "--workload", "solo,ddp", "--inject", "data:rank=1,factor=1.5")
    assert code == 0
    assert finding(judgement, "straggler")["state"] == "pass"
    assert finding(judgement, "data_imbalance")["state"] == "warn"


@pytest.mark.gpus(2)
def test_taken_memory_is_skew(tmp_path: Path) -> None:
    code, _, judgement = bench(tmp_path, "--workload", "ddp", "--inject", "memory:rank=0,percent=60")
    assert code == 1
    assert finding(judgement, "memory_skew")["state"] == "fail"


@pytest.mark.gpus(2)
def test_a_rank_stopped_inside_a_collective_is_named_and_nobody_is_left(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubalance", *QUICK, "--workload", "ddp", "--stall-timeout", "8s", "--out", str(out)],
        env=command_environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: next(tmp_path.glob("gpubalance-*/ranks-0-rank1.jsonl"), None))
    eventually(lambda: log.read_bytes().count(b'"event": "block"') >= 2, seconds=90)
    os.kill(json.loads(log.read_text().splitlines()[0])["pid"], signal.SIGSTOP)
    everybody = children_of(process.pid)
    process.communicate(timeout=90)
    run = load_run(out)
    cause = next(error for error in run.errors if error.first_cause)
    assert process.returncode == 3
    assert (cause.rank, cause.kind, cause.phase) == (1, "stalled", "ddp")
    assert cause.message.endswith("its process is stopped (state T, by SIGSTOP)")
    assert run.hang is not None
    assert run.hang.ranks[0].stack is not None
    assert run.hang.ras is not None or run.hang.ras_missing
    assert run.hang.gathered_in_s < 5
    assert run.bisection is not None
    assert run.bisection.left_out == "the process of rank 1 was stopped from outside"
    eventually(lambda: not alive(everybody), seconds=10)


@pytest.mark.gpus(2)
def test_torchrun_on_gpus(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "gpubalance", "bench", "--workload", "ddp", "--out", str(out)],
        env=command_environment(TMPDIR=str(tmp_path)), capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    run = load_run(out)
    assert run.plan.launcher == "torchrun", done.stderr
    assert run.plan.backend == "nccl"
    assert done.returncode == 0, done.stdout


def test_one_gpu_alone_trains_and_is_held_against_its_limits(tmp_path: Path) -> None:
    done = run_cli("bench", "--nproc", "1", "--json", env=command_environment(XDG_STATE_HOME=str(tmp_path)))
    document = json.loads(done.stdout)
    run = Run.model_validate(document["run"])
    assert not run.errors
    assert [len(rank.fenced) for rank in run.ddp[0].ranks] == [24]
    assert finding(document["judgement"], "device_speed")["state"] == "pass"
    assert done.returncode == 0


@pytest.mark.gpus(2)
def test_what_a_left_over_variable_costs_is_a_number(tmp_path: Path) -> None:
    code, run, _ = bench(tmp_path, "--workload", "solo,ddp", "--what-if", "p2p")
    assert code == 0
    (found,) = run.experiments
    assert [(arm.value, arm.missing) for arm in found.arms] == [("0", None), ("1", None)]
    assert {row.wrong_elements for arm in found.arms for row in arm.rows} == {0}
    on, off = (arm.rows[-1].bus_bandwidth_gb_per_s for arm in found.arms)
    assert on > off
