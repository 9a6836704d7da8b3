"""Real inspector processes over a stand-in driver: what hangs, dies or is lost costs its own GPU and no other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.launch.start import child_environment
from gpubalance.node.details import read_links, read_peers, read_values
from gpubalance.node.nvml import Nvml
from gpubalance.record.probe import DeviceDetail
from gpubalance.sampling.inspection import GRACE_S, START_LIMIT_S, _Task, inspect_devices
from gpubalance.testing.profiles import h200_node, profile
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]
FOR_EVER_S = 600
LIMIT_S = 2.0
"""Enough for a healthy GPU on a busy machine."""


def inspected(folder: Path, node: dict[str, Any], **limits: float) -> list[DeviceDetail]:
    """What the inspectors of this node say; none of them is left behind."""
    path = folder / "profile.json"
    path.write_text(json.dumps(node))
    environment = child_environment(dict(os.environ), ())
    details = inspect_devices(folder, len(node["devices"]), environment, path, **limits)
    assert [left for left in psutil.Process().children() if "gpubalance.sampling.inspector" in _command(left)] == []
    return details


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def with_fault(**fault: Any) -> dict[str, Any]:
    return {**h200_node(), "faults": [fault]}


def read_here(nvml: Nvml, index: int, count: int) -> DeviceDetail:
    values, missing = read_values(nvml, index)
    links, unread = read_links(nvml, index)
    return DeviceDetail(
        nvml_index=index, values=values, missing=missing | unread, links=links, peers=read_peers(nvml, index, count)
    )


def assert_intact(opened: Opened, detail: DeviceDetail) -> None:
    """The detail of a healthy H200 of two."""
    nvml, _ = opened(h200_node())
    assert detail == read_here(nvml, detail.nvml_index, 2)
    assert detail.failed is None


@pytest.mark.parametrize("name", ["h200x2", "geforce4090x2"])
def test_details_are_what_each_gpu_says_in_nvmls_order(opened: Opened, tmp_path: Path, name: str) -> None:
    nvml, _ = opened(profile(name))
    assert inspected(tmp_path, profile(name)) == [read_here(nvml, index, 2) for index in (0, 1)]


def test_a_node_without_gpus_has_no_details(tmp_path: Path) -> None:
    assert inspected(tmp_path, h200_node(0)) == []


def test_a_call_that_never_returns_is_named_and_the_other_gpu_is_intact(opened: Opened, tmp_path: Path) -> None:
    node = with_fault(call="nvmlDeviceGetVbiosVersion", device=1, delay_s=FOR_EVER_S)
    healthy, hung = inspected(tmp_path, node, call_limit_s=LIMIT_S)
    assert_intact(opened, healthy)
    assert hung == DeviceDetail(nvml_index=1, failed="nvmlDeviceGetVbiosVersion did not return within 2 s")


def test_what_was_said_before_the_hang_is_kept(opened: Opened, tmp_path: Path) -> None:
    node = with_fault(call="nvmlDeviceGetTopologyCommonAncestor", device=0, delay_s=FOR_EVER_S)
    hung, healthy = inspected(tmp_path, node, call_limit_s=LIMIT_S)
    assert_intact(opened, healthy)
    assert hung.failed == "nvmlDeviceGetTopologyCommonAncestor did not return within 2 s"
    before = read_here(opened(h200_node())[0], 0, 2)
    assert hung == before.model_copy(update={"failed": hung.failed, "peers": []})


def test_a_driver_that_never_opens_is_named_for_every_gpu(tmp_path: Path) -> None:
    details = inspected(tmp_path, with_fault(call="nvmlInitWithFlags", delay_s=FOR_EVER_S), init_limit_s=LIMIT_S)
    assert [detail.failed for detail in details] == ["nvmlInitWithFlags did not return within 2 s"] * 2


def test_a_process_that_is_stopped_whole_is_given_up_without_its_help(opened: Opened, tmp_path: Path) -> None:
    node = with_fault(call="nvmlDeviceGetNvLinkState", device=1, signal=signal.SIGSTOP)
    healthy, stopped = inspected(tmp_path, node, call_limit_s=LIMIT_S)
    assert_intact(opened, healthy)
    assert stopped.failed == "the process that asks it was silent for 2 s"
    assert stopped.values == healthy.values
    assert stopped.links == []


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ({"exit": 7}, "the process that asked it ended with 7"),
        ({"exit": 0}, "the process that asked it ended with 0"),
        ({"signal": signal.SIGKILL}, "the process that asked it ended with -9"),
        ({"signal": signal.SIGSEGV}, "the process that asked it ended with -11 in nvmlDeviceGetVbiosVersion"),
    ],
)
def test_a_process_that_dies_is_said_with_its_code(
    opened: Opened, tmp_path: Path, fault: dict[str, int], failed: str
) -> None:
    node = with_fault(call="nvmlDeviceGetVbiosVersion", device=0, **fault)
    died, healthy = inspected(tmp_path, node)
    assert_intact(opened, healthy)
    assert died == DeviceDetail(nvml_index=0, failed=failed)


def test_a_driver_that_cannot_be_opened_is_the_reason(tmp_path: Path) -> None:
    details = inspected(tmp_path, with_fault(call="nvmlInitWithFlags", error=9))
    assert [detail.failed for detail in details] == ["NVML cannot be opened: DRIVER_NOT_LOADED"] * 2
    assert [detail.values for detail in details] == [{}, {}]


def test_a_lost_gpu_says_so_in_every_value_and_has_not_failed(opened: Opened, tmp_path: Path) -> None:
    node = with_fault(call="nvmlDeviceGetHandleByIndex_v2", device=1, error=15)
    healthy, lost = inspected(tmp_path, node)
    assert lost.failed is None
    assert set(lost.values.values()) == {None}
    assert set(lost.missing.values()) == {"GPU_IS_LOST"}
    assert set(lost.values) | {"nvlink_active"} == set(lost.missing)
    assert healthy.values == read_here(opened(h200_node())[0], 0, 2).values
    assert set(healthy.peers[0].missing.values()) == {"GPU_IS_LOST"}


def test_a_second_look_does_not_hear_the_first(tmp_path: Path) -> None:
    assert inspected(tmp_path, h200_node(1))[0].failed is None
    node = {**h200_node(1), "faults": [{"call": "nvmlDeviceGetUtilizationRates", "exit": 3}]}
    assert inspected(tmp_path, node) == [DeviceDetail(nvml_index=0, failed="the process that asked it ended with 3")]


@pytest.mark.parametrize(
    ("said", "limit_s"),
    [
        (set(), START_LIMIT_S),
        ({"begin"}, 20.0),
        ({"begin", "opened"}, 5.0),
        ({"begin", "opened", "values"}, 5.0),
        ({"begin", "opened", "values", "links", "peers"}, 5.0),
    ],
)
def test_each_stage_has_its_own_limit(tmp_path: Path, said: set[str], limit_s: float) -> None:
    task = _Task(tmp_path, 1, {}, None, call_limit_s=5.0, init_limit_s=20.0)
    assert task.limit_s(said) == limit_s
    assert limit_s > GRACE_S
