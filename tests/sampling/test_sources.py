"""What a tick reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gpubalance.node.nvml import Nvml
from gpubalance.node.readings import TICK
from gpubalance.sampling.gpm import METRICS
from gpubalance.sampling.sources import GpuSource, HostSource
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]
NOBODY = 2**22 + 1
"""A pid beyond the kernel's PID_MAX_LIMIT."""


def test_a_tick_reads_each_gpu_in_the_order_of_the_plan(opened: Opened) -> None:
    profile = h200_node(3)
    for index, device in enumerate(profile["devices"]):
        device["PowerUsage"] = 100_000 * (index + 1)
    nvml, _ = opened(profile)
    rows, news = GpuSource(nvml, [2, 0], [0, 1]).tick()
    assert [row["power_w"] for row in rows] == [300.0, 100.0]
    assert all(set(row) == {r.key for r in TICK if not r.instead_of} | set(METRICS) for row in rows)
    assert news == {}


def test_a_reason_is_told_once_for_each_device_and_field(opened: Opened) -> None:
    faults = [
        {"call": "nvmlDeviceGetTemperature", "device": 1, "error": 4},
        {"call": "nvmlDeviceGetPowerUsage", "device": 1, "error": 4, "after": 2},
    ]
    nvml, _ = opened({**h200_node(2), "faults": faults})
    source = GpuSource(nvml, [0, 1], [0, 1])
    told = [source.tick()[1] for _ in range(5)]
    assert told == [{1: {"temperature_c": "NO_PERMISSION"}}, {}, {1: {"power_w": "NO_PERMISSION"}}, {}, {}]


def test_reasons_belong_to_the_device_of_the_plan_and_not_to_the_nvml_index(opened: Opened) -> None:
    fault = {"call": "nvmlDeviceGetTemperature", "device": 2, "error": 4}
    nvml, _ = opened({**h200_node(3), "faults": [fault]})
    assert GpuSource(nvml, [1, 2], [0, 1]).tick()[1] == {1: {"temperature_c": "NO_PERMISSION"}}


def test_a_gpu_without_gpm_has_a_reason_for_each_metric(opened: Opened) -> None:
    profile = h200_node(2)
    del profile["devices"][1]["Gpm"]
    nvml, _ = opened(profile)
    rows, news = GpuSource(nvml, [0, 1], [0, 1]).tick()
    assert news == {1: dict.fromkeys(METRICS, "NOT_SUPPORTED")}
    assert rows[0]["gpm_sm_percent"] == 70.0
    assert rows[1]["gpm_sm_percent"] is None


def test_a_refused_metric_has_a_reason(opened: Opened) -> None:
    profile = h200_node(1)
    profile["devices"][0]["Gpm"]["2"] = float("nan")
    nvml, _ = opened(profile)
    assert GpuSource(nvml, [0], [0]).tick()[1] == {0: {"gpm_sm_percent": "SENTINEL"}}


def test_processes_carry_the_device_of_the_plan(opened: Opened) -> None:
    profile = h200_node(2)
    profile["devices"][1]["ComputeRunningProcesses"] = [{"pid": 4711, "usedGpuMemory": 2**30}]
    nvml, _ = opened(profile)
    listed = GpuSource(nvml, [1], [0]).processes()
    assert listed == [{"device": 0, "pid": 4711, "memory_used_bytes": 1073741824}]


def test_without_a_gpu_each_rank_is_its_own_process() -> None:
    source = HostSource([0, 1])
    source.set_ranks({0: os.getpid(), 1: NOBODY})
    rows, news = source.tick()
    assert news == {}
    resident = rows[0]["resident_bytes"]
    assert resident is not None
    assert resident > 2**20
    assert rows[0]["cpu_percent"] is not None
    assert rows[1] == {"cpu_percent": None, "resident_bytes": None}
    assert source.processes() == []


def test_before_the_ranks_are_known_their_values_are_null() -> None:
    assert HostSource([0]).tick() == ([{"cpu_percent": None, "resident_bytes": None}], {})
