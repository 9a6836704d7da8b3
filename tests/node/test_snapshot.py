"""The whole node as one document, whatever the driver refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from gpubalance.node import host
from gpubalance.node.nvml import Nvml
from gpubalance.node.snapshot import take_snapshot
from gpubalance.record.node import Node
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]

OF_DEVICE = {
    "Name": {"name"},
    "UUID": {"uuid"},
    "PciInfo_v3": {"pci_bus_id"},
    "MinorNumber": {"minor_number"},
    "EnforcedPowerLimit": {"power_limit_w"},
    "PowerManagementDefaultLimit": {"power_default_limit_w"},
    "MaxClockInfo": {"sm_clock_max_mhz", "memory_clock_max_mhz"},
    "MemoryBusWidth": {"memory_bus_width_bits"},
    "NumGpuCores": {"cuda_cores"},
    "CudaComputeCapability": {"compute_capability_major", "compute_capability_minor"},
    "ComputeMode": {"compute_mode"},
    "MigMode": {"mig_mode"},
    "EccMode": {"ecc_mode"},
    "PersistenceMode": {"persistence_mode"},
    "MaxPcieLinkGeneration": {"pcie_generation_max"},
    "MaxPcieLinkWidth": {"pcie_width_max"},
    "FieldValues": {"nvlink_count", "nvlink_speed_mb_per_s"},
    "UtilizationRates": {"utilization_before_percent"},
    "MemoryInfo_v2": {"memory_used_before_bytes", "memory_free_before_bytes", "memory_reserved_bytes"},
    "ComputeRunningProcesses_v3": set(),
}
"""Calls on a device, and the fields that each of them fills."""

OF_SYSTEM = {
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlSystemGetNVMLVersion": "nvml_version",
    "nvmlSystemGetCudaDriverVersion": "cuda_driver_version",
}
REFUSALS = {3: "NOT_SUPPORTED", 4: "NO_PERMISSION", 15: "GPU_IS_LOST", 999: "UNKNOWN"}
NUMBERS = {
    call
    for call in OF_DEVICE
    if call not in ("Name", "UUID", "PciInfo_v3", "FieldValues", "ComputeRunningProcesses_v3")
}
NOT_OF_THE_DRIVER = {"memory_available_bytes", "shm_free_bytes"}
"""What changes by itself between two looks."""


@pytest.fixture(autouse=True)
def all_devices_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def strict_json(node: Node) -> dict[str, Any]:
    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return dict(json.loads(node.model_dump_json(), parse_constant=refuse))


def snapshot(opened: Opened, profile: dict[str, Any]) -> dict[str, Any]:
    nvml, _ = opened(profile)
    node = strict_json(take_snapshot(nvml, 0.25))
    return {key: value for key, value in node.items() if key not in NOT_OF_THE_DRIVER}


def flat(device: dict[str, Any]) -> dict[str, Any]:
    """Fields and readings of a device side by side."""
    return {**{key: value for key, value in device.items() if key not in ("readings", "missing")}, **device["readings"]}


def follows_from(fields: set[str]) -> set[str]:
    """Fields that are null when these are."""
    return fields | ({"mig_enabled"} if "mig_mode" in fields else set())


def assert_only_these_are_missing(
    opened: Opened, profile: dict[str, Any], call: str, reason: str, *, unnamed: str = ""
) -> None:
    healthy, node = snapshot(opened, h200_node()), snapshot(opened, profile)
    fields = OF_DEVICE[call]
    device, before = flat(node["devices"][1]), flat(healthy["devices"][1])
    null = follows_from(fields)
    for key in before:
        assert device[key] == ((unnamed if key == "name" else None) if key in null else before[key])
    missing = node["devices"][1]["missing"]
    assert {key: text.removeprefix("SKIPPED after ") for key, text in missing.items()} == dict.fromkeys(fields, reason)
    assert node["devices"][0] == healthy["devices"][0]
    lists = {"processes on NVML index 1": reason} if call == "ComputeRunningProcesses_v3" else {}
    assert node == {**healthy, "devices": node["devices"], "missing": lists}


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", OF_DEVICE)
def test_one_refused_call_leaves_a_valid_document_with_every_other_field(opened: Opened, call: str, code: int) -> None:
    fault = {"call": f"nvmlDeviceGet{call}", "device": 1, "error": code}
    reason = REFUSALS[code]
    profile = {**h200_node(), "faults": [fault]}
    assert_only_these_are_missing(opened, profile, call, reason, unnamed=f"unknown ({reason})")


@pytest.mark.parametrize("number", [0xFFFFFFFF, 2**63 - 1, 2**64 - 1], ids=hex)
@pytest.mark.parametrize("call", sorted(NUMBERS))
def test_a_number_that_stands_for_no_value_leaves_a_valid_document(opened: Opened, call: str, number: int) -> None:
    fault = {"call": f"nvmlDeviceGet{call}", "device": 1, "value": number}
    assert_only_these_are_missing(opened, {**h200_node(), "faults": [fault]}, call, "SENTINEL")


@pytest.mark.parametrize("call", ["Name", "UUID"])
def test_bytes_that_are_not_text_leave_a_valid_document(opened: Opened, call: str) -> None:
    fault = {"call": f"nvmlDeviceGet{call}", "device": 1, "bytes": "f892ff"}
    profile = {**h200_node(), "faults": [fault]}
    assert_only_these_are_missing(opened, profile, call, "UNDECODABLE", unnamed="unknown (undecodable name)")


@pytest.mark.parametrize("absent", [f"nvmlDeviceGet{call}" for call in OF_DEVICE])
def test_an_old_driver_without_a_call_leaves_a_valid_document(opened: Opened, absent: str) -> None:
    node = snapshot(opened, {**h200_node(), "absent": [absent]})
    fields = OF_DEVICE[absent.removeprefix("nvmlDeviceGet")]
    for device in node["devices"]:
        values = flat(device)
        assert {key for key, value in values.items() if value is None} == follows_from(fields) - {"name"}
        assert set(device["missing"]) == fields


def test_the_matrix_covers_every_call_of_a_snapshot(opened: Opened) -> None:
    nvml, stand_in = opened(h200_node())
    take_snapshot(nvml, None)
    on_devices = {name.removeprefix("nvmlDeviceGet") for name, device in stand_in.calls if device is not None}
    elsewhere = {name for name, device in stand_in.calls if device is None}
    assert on_devices == set(OF_DEVICE)
    assert elsewhere == {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", *OF_SYSTEM}


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", OF_SYSTEM)
def test_a_refused_version_is_null_with_its_reason_and_all_devices_are_intact(
    opened: Opened, call: str, code: int
) -> None:
    node = snapshot(opened, {**h200_node(), "faults": [{"call": call, "error": code}]})
    key = OF_SYSTEM[call]
    assert node == {**snapshot(opened, h200_node()), key: None, "missing": {key: REFUSALS[code]}}


@pytest.mark.parametrize("call", ["nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"])
def test_a_version_that_is_not_text_is_null_with_its_reason(opened: Opened, call: str) -> None:
    node = snapshot(opened, {**h200_node(), "faults": [{"call": call, "bytes": "f892ff"}]})
    assert node[OF_SYSTEM[call]] is None
    assert node["missing"] == {OF_SYSTEM[call]: "UNDECODABLE"}


@pytest.mark.parametrize("number", [0xFFFFFFFF, 2**63 - 1, 2**64 - 1], ids=hex)
def test_a_cuda_version_that_stands_for_none_is_null_with_its_reason(opened: Opened, number: int) -> None:
    fault = {"call": "nvmlSystemGetCudaDriverVersion", "value": number}
    node = snapshot(opened, {**h200_node(), "faults": [fault]})
    assert node["cuda_driver_version"] is None
    assert node["missing"] == {"cuda_driver_version": "SENTINEL"}


@pytest.mark.parametrize(("number", "text"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4")])
def test_the_cuda_version_of_the_driver_is_written_as_people_write_it(opened: Opened, number: int, text: str) -> None:
    profile = h200_node()
    profile["system"]["CudaDriverVersion"] = number
    assert snapshot(opened, profile)["cuda_driver_version"] == text


@pytest.mark.parametrize("code", REFUSALS)
def test_gpus_that_cannot_be_counted_are_an_error_of_nvml_and_not_a_node_without_gpus(
    opened: Opened, code: int
) -> None:
    node = snapshot(opened, {**h200_node(), "faults": [{"call": "nvmlDeviceGetCount_v2", "error": code}]})
    assert node["nvml_error"] == REFUSALS[code]
    assert node["devices"] == []


@pytest.mark.parametrize("code", REFUSALS)
def test_a_node_whose_handles_are_all_refused_still_has_its_devices(opened: Opened, code: int) -> None:
    node = snapshot(opened, {**h200_node(), "faults": [{"call": "nvmlDeviceGetHandleByIndex_v2", "error": code}]})
    assert [device["nvml_index"] for device in node["devices"]] == [0, 1]
    reasons = {text for device in node["devices"] for text in device["missing"].values()}
    assert {text.removeprefix("SKIPPED after ") for text in reasons} == {REFUSALS[code]}


def test_a_node_where_every_sensor_answers_unknown_error_is_a_valid_document_full_of_reasons(opened: Opened) -> None:
    faults = [{"call": "*", "device": index, "error": 999} for index in (0, 1)]
    node = snapshot(opened, {**h200_node(), "faults": faults})
    for device in node["devices"]:
        assert set(device["readings"].values()) == {None}
        assert set(device["missing"].values()) == {"UNKNOWN"}
        assert device["name"] == "unknown (UNKNOWN)"


def test_without_nvml_the_reason_stands_where_the_devices_would_be() -> None:
    node = take_snapshot("LIB_RM_VERSION_MISMATCH", None)
    assert node.nvml_error == "LIB_RM_VERSION_MISMATCH"
    assert node.devices == []
    assert node.visibility is None
    assert strict_json(node)["cpu_busy_before"] is None


def test_cuda_ordinals_follow_the_variable_and_hidden_gpus_have_none(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,7")
    nvml, _ = opened(h200_node(4))
    node = take_snapshot(nvml, None)
    assert [device.cuda_ordinal for device in node.devices] == [None, 1, None, 0]
    assert node.visibility is not None
    assert node.visibility.asked == "3,1,7"
    assert node.visibility.visible == [3, 1]
    assert [(d.entry, d.reason) for d in node.visibility.dropped] == [("7", "there are only 4 GPUs")]


def test_gpus_are_joined_by_uuid_and_never_by_position(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000002")
    nvml, _ = opened(h200_node(2))
    node = take_snapshot(nvml, None)
    assert [(device.nvml_index, device.cuda_ordinal) for device in node.devices] == [(0, None), (1, 0)]


def test_processes_of_all_gpus_are_named_where_they_can_be_seen(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "process_owner", lambda pid: ("python", "ada") if pid == 42 else (None, None))
    profile = h200_node()
    profile["devices"][0]["ComputeRunningProcesses"] = [{"pid": 42, "usedGpuMemory": 2**30}]
    profile["devices"][1]["ComputeRunningProcesses"] = [{"pid": 4194999}]
    nvml, _ = opened(profile)
    found = [(p.nvml_index, p.pid, p.memory_used_bytes, p.name, p.owner) for p in take_snapshot(nvml, None).processes]
    assert found == [(0, 42, 1073741824, "python", "ada"), (1, 4194999, None, None, None)]


def test_no_variable_outside_the_known_ones_enters_the_record(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-to-be-seen")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    nvml, _ = opened(h200_node())
    node = take_snapshot(nvml, None)
    assert node.environment["NCCL_DEBUG"] == "INFO"
    assert "never-to-be-seen" not in node.model_dump_json()
