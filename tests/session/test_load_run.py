"""One child a GPU: each has its own deadline, and one that fails or hangs costs nobody else anything."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.launch.start import child_environment
from gpubalance.record.node import Device, Node, Process
from gpubalance.record.probe import DeviceLoad, Load
from gpubalance.record.samples import Samples
from gpubalance.session.load_run import left_alone, load_record, run_children
from tests.support import SCRIPTED, alive, make_job, write_script

SPEED = {
    "gemm_tflops": 700.0, "memory_copy_gb_per_s": 4000.0,
    "host_to_device_gb_per_s": 55.0, "device_to_host_gb_per_s": 55.0,
}  # fmt: skip
GOOD: list[list[Any]] = [
    ["phase", "load"],
    ["event", "stage", {"stage": "matmul"}],
    ["event", "matmul", {"max_error": 0.4}],
    ["event", "bits", {"digest": "ab", "repeats": 50, "differing": 0}],
    ["event", "window", {"name": "load speed", "edge": "begin"}],
    ["event", "probe", SPEED],
    ["event", "window", {"name": "load speed", "edge": "end"}],
    ["event", "stage", {"stage": "done"}],
    ["end"],
]


def loaded(folder: Path, script: dict[str, Any], ranks: int = 3, limit_s: float = 60.0) -> Load:
    environment = child_environment({**os.environ, **write_script(folder, script)}, ())
    job = make_job(folder, ranks, crew="load", phases=("load",))
    children = run_children(job, environment, SCRIPTED, limit_s)
    pids = [psutil.Process(c.process.pid) for c in children if psutil.pid_exists(c.process.pid)]
    assert alive(pids) == []
    return load_record(children, list(range(ranks)), {}, Samples(), 0.0)


def test_what_a_child_measured_is_kept_with_its_windows(tmp_path: Path) -> None:
    result = loaded(tmp_path, {"*": GOOD}, ranks=1).results[0]
    assert (result.stage, result.error, result.matmul_max_error) == ("done", None, 0.4)
    assert (result.repeats, result.repeats_differing, result.output_digest) == (50, 0, "ab")
    assert result.speed is not None
    assert result.speed.gemm_tflops == 700.0
    begin, end = result.windows["load speed"]
    assert begin <= end


def test_the_common_stretch_reaches_from_the_first_to_the_last(tmp_path: Path) -> None:
    load = loaded(tmp_path, {"*": GOOD})
    windows = [result.windows["load speed"] for result in load.results]
    assert [phase.name for phase in load.phases] == ["load speed"]
    assert load.phases[0].begin_s == min(window[0] for window in windows)
    assert load.phases[0].end_s == max(window[1] for window in windows)


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([["phase", "load"], ["raise", "bad kernel"]], "exception", "bad kernel"),
        ([["phase", "load"], ["out_of_memory", "2.1 GiB"]], "out_of_memory", "2.1 GiB"),
        ([["phase", "load"], ["kill", int(signal.SIGKILL)]], "killed", "signal 9"),
        ([["phase", "load"], ["exit", 7]], "exited", "ended with 7"),
    ],
)
def test_one_that_fails_is_said_and_the_others_go_on(
    tmp_path: Path, steps: list[list[Any]], kind: str, words: str
) -> None:
    first, broken, last = loaded(tmp_path, {"1": steps, "*": GOOD}).results
    assert (first.stage, last.stage) == ("done", "done")
    assert (first.error, last.error) == (None, None)
    assert broken.error_kind == kind
    assert broken.error is not None
    assert words in broken.error


def test_one_that_hangs_is_killed_alone_with_its_stage(tmp_path: Path) -> None:
    script = {"1": [["phase", "load"], ["event", "stage", {"stage": "bits"}], ["sleep"]], "*": GOOD}
    first, hung, last = loaded(tmp_path, script, limit_s=4.0).results
    assert (first.stage, last.stage) == ("done", "done")
    assert (hung.error_kind, hung.stage) == ("stalled", "bits")


def device(**values: Any) -> Device:
    base: dict[str, Any] = {
        "kind": "cuda", "name": "NVIDIA H200", "uuid": "GPU-1", "nvml_index": 0, "cuda_ordinal": 0,
        "readings": {"memory_used_before_bytes": 0, "utilization_before_percent": 0},
    }  # fmt: skip
    return Device(**{**base, **values})


def node(*processes: Process) -> Node:
    return Node(hostname="n", kernel="k", gpu_evidence=[], cpu_count=1, cpu_effective=1, processes=list(processes))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, None),
        ({"missing": {"uuid": "GPU_IS_LOST"}, "uuid": None}, "it is lost"),
        ({"cuda_ordinal": None}, "it is hidden by CUDA_VISIBLE_DEVICES"),
        ({"uuid": None, "missing": {"uuid": "UNKNOWN"}}, "its UUID could not be read"),
        ({"mig_enabled": True}, "it is in MIG mode"),
        ({"readings": {"utilization_before_percent": 90}}, "it is 90 % busy"),
    ],
)
def test_who_is_left_alone_and_why(values: dict[str, Any], reason: str | None) -> None:
    assert left_alone(device(**values), node(), force=False) == reason


def test_a_gpu_in_use_is_left_alone_unless_forced() -> None:
    busy = node(Process(nvml_index=0, pid=123, memory_used_bytes=2**30, owner="alice"))
    assert left_alone(device(), busy, force=False) == "it is in use by pid 123 (alice), 1.0 GiB"
    assert left_alone(device(), busy, force=True) is None


def test_skipped_gpus_follow_those_that_worked() -> None:
    load = load_record([], [], {3: "it is lost"}, Samples(), 0.0)
    assert load.devices == [3]
    assert load.results == [DeviceLoad(device=0, stage="start", seconds=0.0, skipped="it is lost")]
