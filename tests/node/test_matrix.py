"""Every call that a look at a node makes, refused in every way: no error, a valid document, and only the fields of that
call are null, each with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from gpubalance.node.details import read_links, read_peers, read_values
from gpubalance.node.nvml import Nvml, open_nvml
from gpubalance.node.snapshot import take_snapshot
from gpubalance.record.base import Record
from gpubalance.record.node import Node
from gpubalance.record.probe import DeviceDetail
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn, installed

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]
Look = list[tuple[dict[str, Any], dict[str, str]]]

P2P = {"p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics"}
FIELDS: dict[str, set[str]] = {
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetUUID": {"uuid"},
    "nvmlDeviceGetPciInfo_v3": {"pci_bus_id"},
    "nvmlDeviceGetMinorNumber": {"minor_number"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"processes"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"power_default_limit_w"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max_mhz", "memory_clock_max_mhz"},
    "nvmlDeviceGetMemoryBusWidth": {"memory_bus_width_bits"},
    "nvmlDeviceGetNumGpuCores": {"cuda_cores"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability_major", "compute_capability_minor"},
    "nvmlDeviceGetComputeMode": {"compute_mode"},
    "nvmlDeviceGetMigMode": {"mig_mode", "mig_enabled"},
    "nvmlDeviceGetEccMode": {"ecc_mode"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"pcie_generation_max"},
    "nvmlDeviceGetMaxPcieLinkWidth": {"pcie_width_max"},
    "nvmlDeviceGetUtilizationRates": {
        "utilization_before_percent", "utilization_percent", "memory_utilization_percent",
    },
    "nvmlDeviceGetMemoryInfo_v2": {
        "memory_used_before_bytes", "memory_free_before_bytes", "memory_reserved_bytes", "memory_used_bytes",
    },
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"event_reasons"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_generation"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_width"},
    "nvmlDeviceGetViolationStatus": {"power_violation_ns", "thermal_violation_ns"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_mj"},
    "nvmlDeviceGetTotalEccErrors": {
        "ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate",
    },
    "nvmlDeviceGetPcieReplayCounter": {"pcie_replays"},
    "nvmlDeviceGetRemappedRows": {
        "rows_remapped_correctable", "rows_remapped_uncorrectable", "rows_remap_pending", "rows_remap_failed",
    },
    "nvmlDeviceGetTemperatureThreshold": {"temperature_slowdown_c"},
    "nvmlDeviceGetPowerManagementLimit": {"power_set_limit_w"},
    "nvmlDeviceGetApplicationsClock": {"application_clock_mhz"},
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": {"pcie_generation_gpu_max"},
    "nvmlDeviceGetRetiredPages": {"retired_pages_single_bit", "retired_pages_double_bit"},
    "nvmlDeviceGetRetiredPagesPendingStatus": {"retired_pages_pending"},
    "nvmlDeviceGetNumaNodeId": {"numa_node"},
    "nvmlDeviceGetVirtualizationMode": {"virtualization_mode"},
    "nvmlDeviceGetBrand": {"brand"},
    "nvmlDeviceGetArchitecture": {"architecture"},
    "nvmlDeviceGetFieldValues": {
        "memory_temperature_c", "nvlink_count", "nvlink_crc_errors", "nvlink_recoveries", "nvlink_recovery_failed",
        "nvlink_replays", "nvlink_speed_mb_per_s", "recovery_action",
    },
    "nvmlDeviceGetVbiosVersion": {"vbios_version"},
    "nvmlDeviceGetMarginTemperature": {"temperature_margin_c"},
    "nvmlDeviceValidateInforom": {"inforom_valid"},
    "nvmlDeviceGetRepairStatus": {"channel_repair_pending", "tpc_repair_pending"},
    "nvmlDeviceGetRowRemapperHistogram": {
        "row_banks_max", "row_banks_high", "row_banks_partial", "row_banks_low", "row_banks_none",
    },
    "nvmlDeviceGetSramEccErrorStatus": {
        "sram_uncorrected_aggregate", "sram_corrected_aggregate", "sram_threshold_exceeded",
    },
    "nvmlDeviceGetGpuFabricInfoV": {"fabric_state", "fabric_status", "fabric_health_mask"},
    "nvmlDeviceGetCpuAffinity": {"cpu_affinity"},
    "nvmlDeviceGetNvLinkState": {"nvlink_active", "nvlink_version"},
    "nvmlDeviceGetNvLinkVersion": {"nvlink_version"},
    "nvmlDeviceGetTopologyCommonAncestor": {"topology"},
    "nvmlDeviceGetP2PStatus": P2P,
}  # fmt: skip
"""Calls on a device, and the fields that each of them alone can fill."""

ELSEWHERE = {
    "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion",
}  # fmt: skip
TEXTS = ["nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetVbiosVersion"]
NUMBERS = sorted(
    set(FIELDS)
    - {*TEXTS, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceValidateInforom"}
    - {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetRetiredPages"}  # lists: their entries are values
)
REFUSALS = {3: "NOT_SUPPORTED", 4: "NO_PERMISSION", 15: "GPU_IS_LOST", 999: "UNKNOWN"}
DERIVED = {"mig_enabled"}
"""Null together with another field, whose reason stands for both."""

STAND_FOR_NO_VALUE = [0xFFFFFFFF, 2**63 - 1, 2**64 - 1]


@pytest.fixture(autouse=True)
def all_devices_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def talkative(**more: Any) -> dict[str, Any]:
    """Two GPUs that answer every call that we know."""
    profile = h200_node()
    for gpu in profile["devices"]:
        gpu |= {"TemperatureThreshold": {"1": 89}, "RetiredPages": {"0": [4096, 8192], "1": []}, "NumaNodeId": 0}
        gpu |= {"RetiredPagesPendingStatus": 0, "CurrentClocksThrottleReasons": 1}
        gpu["FieldValues"] |= {"214": 0}
    return {**profile, **more}


def through_json(record: Record) -> dict[str, Any]:
    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    text = record.model_dump_json()
    assert type(record).model_validate_json(text) == record
    return dict(json.loads(text, parse_constant=refuse))


def detail_of(nvml: Nvml, index: int, count: int) -> DeviceDetail:
    values, missing = read_values(nvml, index)
    links, unread = read_links(nvml, index)
    return DeviceDetail(
        nvml_index=index,
        values=values,
        missing={**missing, **unread},
        links=links,
        peers=read_peers(nvml, index, count),
    )


def side_by_side(node: dict[str, Any], detail: dict[str, Any], index: int) -> tuple[dict[str, Any], dict[str, str]]:
    """All that is known of one of two GPUs, and why the rest is not."""
    device, peer = node["devices"][index], detail["peers"][0]
    unlisted = node["missing"].get(f"processes on NVML index {index}")
    values = {
        **{key: value for key, value in device.items() if key not in ("readings", "missing")},
        **device["readings"],
        **detail["values"],
        "nvlink_active": {link["active"] for link in detail["links"]},
        "nvlink_version": {link["version"] for link in detail["links"]},
        "links": len(detail["links"]),
        "topology": peer["topology"],
        **{f"p2p_{kind}": status for kind, status in peer["p2p"].items()},
        "processes": None if unlisted else [p for p in node["processes"] if p["nvml_index"] == index],
    }
    listed = {} if unlisted is None else {"processes": unlisted}
    missing = {**device["missing"], **detail["missing"], **peer["missing"], **listed}
    return values, {key: reason.removeprefix("SKIPPED after ") for key, reason in missing.items()}


def look(opened: Opened, profile: dict[str, Any]) -> Look:
    return look_through(opened(profile)[0])


def look_through(nvml: Nvml) -> Look:
    snapshot: Node = take_snapshot(nvml, 0.25)
    details = [detail_of(nvml, index, 2) for index in (0, 1)]
    node = through_json(snapshot)
    return [side_by_side(node, through_json(detail), index) for index, detail in enumerate(details)]


@pytest.fixture(scope="module")
def healthy() -> Look:
    """Two GPUs that answer everything."""
    with installed(talkative()):
        nvml = open_nvml()
        assert isinstance(nvml, Nvml)
        return look_through(nvml)


def nothing(key: str, reason: str) -> Any:
    if key in ("nvlink_active", "nvlink_version"):
        return {None}
    if key == "name":
        return "unknown (undecodable name)" if reason == "UNDECODABLE" else f"unknown ({reason})"
    return None


def assert_only_its_fields_are_missing(found: Look, healthy: Look, call: str, reason: str) -> None:
    """On GPU 1; GPU 0 has everything."""
    other, (values, missing) = found
    fields = FIELDS[call]
    assert values == {**healthy[1][0], **{key: nothing(key, reason) for key in fields}}
    assert missing == dict.fromkeys(fields - DERIVED, reason)
    assert other == healthy[0]


def test_the_matrix_covers_every_call_of_a_look_and_every_field(opened: Opened, healthy: Look) -> None:
    nvml, stand_in = opened(talkative())
    take_snapshot(nvml, None)
    detail_of(nvml, 1, 2)
    assert {name for name, device in stand_in.calls if device == 1} == set(FIELDS)
    assert {name for name, device in stand_in.calls if device is None} == ELSEWHERE
    values, missing = healthy[1]
    not_asked = {"kind", "nvml_index", "cuda_ordinal", "cpu_cores", "links", "peers", "memory_total_bytes"}
    assert set(values) == set().union(*FIELDS.values()) | not_asked
    assert missing == {}


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", FIELDS)
def test_a_refused_call_leaves_every_other_field(opened: Opened, healthy: Look, call: str, code: int) -> None:
    found = look(opened, talkative(faults=[{"call": call, "device": 1, "error": code}]))
    assert_only_its_fields_are_missing(found, healthy, call, REFUSALS[code])


@pytest.mark.parametrize("number", STAND_FOR_NO_VALUE, ids=hex)
@pytest.mark.parametrize("call", NUMBERS)
def test_a_number_that_stands_for_no_value_is_none(opened: Opened, healthy: Look, call: str, number: int) -> None:
    found = look(opened, talkative(faults=[{"call": call, "device": 1, "value": number}]))
    assert_only_its_fields_are_missing(found, healthy, call, "SENTINEL")


@pytest.mark.parametrize("call", TEXTS)
def test_bytes_that_are_not_text_are_no_value(opened: Opened, healthy: Look, call: str) -> None:
    found = look(opened, talkative(faults=[{"call": call, "device": 1, "bytes": "f892ff"}]))
    assert_only_its_fields_are_missing(found, healthy, call, "UNDECODABLE")


@pytest.mark.parametrize(
    "call", sorted(set(FIELDS) - {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2"})
)
def test_a_driver_without_the_call_leaves_every_other_field(opened: Opened, healthy: Look, call: str) -> None:
    fields = FIELDS[call]
    for (before, _), (values, missing) in zip(healthy, look(opened, talkative(absent=[call])), strict=True):
        assert values == {**before, **{key: nothing(key, "FUNCTION_NOT_FOUND") for key in fields}}
        assert missing == dict.fromkeys(fields - DERIVED, "FUNCTION_NOT_FOUND")


def test_a_driver_that_knows_the_reasons_by_their_older_name_gives_them(opened: Opened, healthy: Look) -> None:
    assert look(opened, talkative(absent=["nvmlDeviceGetCurrentClocksEventReasons"])) == healthy


def test_a_driver_without_the_newer_memory_call_answers_under_another_key(opened: Opened, healthy: Look) -> None:
    values, missing = look(opened, talkative(absent=["nvmlDeviceGetMemoryInfo_v2"]))[1]
    fields = FIELDS["nvmlDeviceGetMemoryInfo_v2"]
    assert values == {**healthy[1][0], **dict.fromkeys(fields), "memory_used_v1_bytes": 644939776}
    assert missing == dict.fromkeys(fields, "FUNCTION_NOT_FOUND")


@pytest.mark.parametrize("code", REFUSALS)
def test_a_gpu_whose_handle_is_refused_has_nothing_but_reasons(opened: Opened, healthy: Look, code: int) -> None:
    fault = {"call": "nvmlDeviceGetHandleByIndex_v2", "device": 1, "error": code}
    (other, unknown), (values, missing) = look(opened, talkative(faults=[fault]))
    assert set(missing.values()) == {REFUSALS[code]}
    assert values["links"] == 0
    assert not any(values[key] for key in set().union(*FIELDS.values()) - {"name"})
    assert other == {**healthy[0][0], **dict.fromkeys({"topology", *P2P})}
    assert unknown == dict.fromkeys({"topology", *P2P}, REFUSALS[code])


@pytest.mark.parametrize("code", REFUSALS)
def test_a_node_that_refuses_everything_is_a_valid_document(opened: Opened, code: int) -> None:
    for values, missing in look(opened, talkative(faults=[{"call": "*", "device": d, "error": code} for d in (0, 1)])):
        assert set(missing.values()) == {REFUSALS[code]}
        assert not any(values[key] for key in set().union(*FIELDS.values()) - {"name"})


@pytest.mark.parametrize("number", STAND_FOR_NO_VALUE, ids=hex)
def test_numbers_that_stand_for_no_value_in_a_list_of_processes_are_no_memory(opened: Opened, number: int) -> None:
    profile = talkative(faults=[{"call": "nvmlDeviceGetComputeRunningProcesses_v3", "device": 1, "value": number}])
    profile["devices"][1]["ComputeRunningProcesses"] = [{"pid": 42, "usedGpuMemory": 4096}]
    (process,) = look(opened, profile)[1][0]["processes"]
    assert process["memory_used_bytes"] is None
