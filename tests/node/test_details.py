"""What a GPU tells about its health and links, in the units of its keys, each part by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.node.details import DETAILS, FABRIC_STATES, P2P_STATUS, TOPOLOGY, cpu_list, read_links, read_peers
from gpubalance.node.details import read_values as read
from gpubalance.node.nvml import Answer, Nvml, open_nvml
from gpubalance.testing.profiles import h200_node, profile
from gpubalance.testing.profiles.node import words
from gpubalance.testing.stand_in_nvml import StandIn, installed

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]

OF_AN_H200 = {
    "memory_temperature_c": 37,
    "power_set_limit_w": 700.0,
    "application_clock_mhz": 1980,
    "pcie_generation_gpu_max": 5,
    "ecc_corrected_aggregate": 0,
    "ecc_uncorrected_aggregate": 0,
    "rows_remapped_correctable": 0,
    "rows_remap_pending": 0,
    "rows_remap_failed": 0,
    "recovery_action": 0,
    "virtualization_mode": 1,
    "brand": 14,
    "architecture": 9,
    "vbios_version": "96.00.A5.00.1A",
    "temperature_margin_c": 52,
    "inforom_valid": 1,
    "channel_repair_pending": 0,
    "tpc_repair_pending": 0,
    "row_banks_max": 3072,
    "row_banks_high": 0,
    "row_banks_partial": 0,
    "row_banks_low": 0,
    "row_banks_none": 0,
    "sram_uncorrected_aggregate": 0,
    "sram_corrected_aggregate": 0,
    "sram_threshold_exceeded": 0,
    "fabric_state": "COMPLETED",
    "fabric_status": 0,
    "fabric_health_mask": 0,
    "cpu_affinity": "0-31",
}
REFUSED_BY_AN_H200 = {
    "temperature_slowdown_c", "retired_pages_single_bit", "retired_pages_double_bit", "retired_pages_pending",
    "nvlink_recovery_failed", "numa_node",
}  # fmt: skip


def with_values(**values: Any) -> dict[str, Any]:
    """Two H200s, the first of which answers so; None: not at all."""
    node = h200_node()
    node["devices"][0] |= {key: value for key, value in values.items() if value is not None}
    for key in [key for key, value in values.items() if value is None]:
        del node["devices"][0][key]
    return node


def test_a_healthy_h200_tells_everything_that_it_has(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    values, missing = read(nvml, 0)
    assert {key: values[key] for key in OF_AN_H200} == OF_AN_H200
    assert values["temperature_c"] == 35
    assert values["energy_mj"] == 2570179
    assert missing == dict.fromkeys(REFUSED_BY_AN_H200, "NOT_SUPPORTED")
    assert {key for key, value in values.items() if value is None} == REFUSED_BY_AN_H200


@pytest.mark.parametrize(
    ("answers", "key", "value"),
    [
        ({"TemperatureThreshold": {"0": 92, "1": 89}}, "temperature_slowdown_c", 89),
        ({"FieldValues": {"82": 61}}, "memory_temperature_c", 61),
        ({"FieldValues": {"230": 2}}, "recovery_action", 2),
        ({"FieldValues": {"214": 7}}, "nvlink_recovery_failed", 7),
        ({"PowerManagementLimit": 450500}, "power_set_limit_w", 450.5),  # 450500 mW
        ({"ApplicationsClock": {"0": 1, "1": 1275, "2": 2}}, "application_clock_mhz", 1275),
        ({"GpuMaxPcieLinkGeneration": 6}, "pcie_generation_gpu_max", 6),
        ({"TotalEccErrors": {"0,1": 9, "1,1": 4}}, "ecc_corrected_aggregate", 9),
        ({"TotalEccErrors": {"0,1": 9, "1,1": 4}}, "ecc_uncorrected_aggregate", 4),
        ({"RemappedRows": [5, 4, 1, 0]}, "rows_remapped_correctable", 5),
        ({"RemappedRows": [5, 4, 1, 0]}, "rows_remap_pending", 1),
        ({"RemappedRows": [5, 4, 0, 1]}, "rows_remap_failed", 1),
        ({"RetiredPages": {"0": [4096, 8192], "1": [12288]}}, "retired_pages_single_bit", 2),
        ({"RetiredPages": {"0": [4096, 8192], "1": [12288]}}, "retired_pages_double_bit", 1),
        ({"RetiredPages": {"0": list(range(70)), "1": []}}, "retired_pages_single_bit", 70),
        ({"RetiredPages": {"0": list(range(70)), "1": []}}, "retired_pages_double_bit", 0),
        ({"RetiredPagesPendingStatus": 1}, "retired_pages_pending", 1),
        ({"NumaNodeId": 3}, "numa_node", 3),
        ({"VirtualizationMode": 2}, "virtualization_mode", 2),
        ({"MarginTemperature": {"marginTemperature": -8}}, "temperature_margin_c", -8),
        ({"MarginTemperature": {"marginTemperature": 0}}, "temperature_margin_c", 0),
        ({"ValidateInforom": 14}, "inforom_valid", 0),  # NVML_ERROR_CORRUPTED_INFOROM
        ({"RepairStatus": {"bChannelRepairPending": 1}}, "channel_repair_pending", 1),
        ({"RepairStatus": {"bTpcRepairPending": 1}}, "tpc_repair_pending", 1),
        ({"RowRemapperHistogram": {"max": 638, "none": 2}}, "row_banks_none", 2),
        ({"SramEccErrorStatus": {"aggregateUncParity": 3, "aggregateUncSecDed": 2}}, "sram_uncorrected_aggregate", 5),
        ({"SramEccErrorStatus": {"aggregateCor": 2**40}}, "sram_corrected_aggregate", 2**40),
        ({"SramEccErrorStatus": {"bThresholdExceeded": 1}}, "sram_threshold_exceeded", 1),
        ({"GpuFabricInfoV": {"state": 2, "status": 0, "healthMask": 0}}, "fabric_state", "IN_PROGRESS"),
        ({"GpuFabricInfoV": {"state": 9, "status": 0, "healthMask": 0}}, "fabric_state", "UNKNOWN_9"),
        ({"GpuFabricInfoV": {"state": 3, "status": 6, "healthMask": 0x22A}}, "fabric_status", 6),
        ({"GpuFabricInfoV": {"state": 3, "status": 0, "healthMask": 0x22A}}, "fabric_health_mask", 554),
        ({"CpuAffinity": [0, 3]}, "cpu_affinity", "64-65"),
        ({"CpuAffinity": [2**64 - 1]}, "cpu_affinity", "0-63"),
    ],
)  # fmt: skip
def test_an_answer_is_read_in_the_unit_of_its_key(
    opened: Opened, answers: dict[str, Any], key: str, value: object
) -> None:
    nvml, _ = opened(with_values(**answers))
    values, missing = read(nvml, 0)
    assert values[key] == value
    assert key not in missing
    assert read(nvml, 1)[0].get(key) == OF_AN_H200.get(key)


@pytest.mark.parametrize(
    ("answers", "key"),
    [
        ({"MarginTemperature": {"marginTemperature": -1}}, "temperature_margin_c"),  # all bits set
        ({"MarginTemperature": {"marginTemperature": 1000}}, "temperature_margin_c"),
        ({"MarginTemperature": {"marginTemperature": -1000}}, "temperature_margin_c"),
        ({"NumaNodeId": -1}, "numa_node"),
        ({"CpuAffinity": []}, "cpu_affinity"),  # near no CPU at all
        ({"SramEccErrorStatus": {"aggregateUncParity": 2**64 - 1}}, "sram_uncorrected_aggregate"),
        ({"SramEccErrorStatus": {"aggregateUncSecDed": 2**64 - 1}}, "sram_uncorrected_aggregate"),
        ({"FieldValues": {"230": 101}}, "recovery_action"),
        ({"RemappedRows": [0, 0, 2, 0]}, "rows_remap_pending"),
    ],
)
def test_a_number_that_cannot_be_is_no_value(opened: Opened, answers: dict[str, Any], key: str) -> None:
    nvml, _ = opened(with_values(**answers))
    values, missing = read(nvml, 0)
    assert values[key] is None
    assert missing[key] == "SENTINEL"


@pytest.mark.parametrize("largest", [999, -999, -2])
def test_a_margin_below_and_above_the_limit_is_a_margin(opened: Opened, largest: int) -> None:
    nvml, _ = opened(with_values(MarginTemperature={"marginTemperature": largest}))
    assert read(nvml, 0)[0]["temperature_margin_c"] == largest


@pytest.mark.parametrize(
    ("field", "key"),
    [("82", "memory_temperature_c"), ("230", "recovery_action"), ("161", "nvlink_replays")],
)
def test_one_refused_field_leaves_the_others(opened: Opened, field: str, key: str) -> None:
    before = read(opened(h200_node())[0], 0)[0]
    node = h200_node()
    node["devices"][0]["FieldValues"][field] = {"error": 4}
    values, missing = read(opened(node)[0], 0)
    assert values == {**before, key: None}
    assert missing[key] == "NO_PERMISSION"


@pytest.mark.parametrize("name", ["c_nvmlEccSramErrorStatus_v1_t", "c_nvmlGpuFabricInfo_v2_t"])
def test_a_struct_that_an_old_binding_lacks_is_a_reason(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    nvml, _ = opened(h200_node())
    known = nvml.constant
    monkeypatch.setattr(nvml, "constant", lambda wanted: None if wanted == name else known(wanted))
    keys = {key for key, reason in read(nvml, 0)[1].items() if reason == "FUNCTION_NOT_FOUND"}
    assert keys == {key for key in OF_AN_H200 if key.startswith("sram_" if "Sram" in name else "fabric_")}


def test_no_key_stands_in_two_places(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    keys = [reading.key for reading in DETAILS]
    assert len(set(keys)) == len(keys)
    assert set(keys) < set(read(nvml, 0)[0])


@pytest.mark.parametrize("state", FABRIC_STATES)
def test_each_fabric_state_has_its_name(opened: Opened, state: int) -> None:
    nvml, _ = opened(with_values(GpuFabricInfoV={"state": state}))
    assert read(nvml, 0)[0]["fabric_state"] == FABRIC_STATES[state]


@pytest.mark.parametrize(
    ("cpus", "text"),
    [([], ""), ([0], "0"), ([0, 1], "0-1"), ([0, 2], "0,2"), ([5, 0, 1, 2], "0-2,5"), ([1, 2, 4, 5, 9], "1-2,4-5,9")],
)
def test_cpus_are_written_as_the_kernel_writes_them(cpus: list[int], text: str) -> None:
    assert cpu_list(cpus) == text


@given(st.sets(st.integers(0, 4095)))
def test_no_cpu_is_lost_and_none_is_invented(cpus: set[int]) -> None:
    parts = [part.split("-") for part in cpu_list(list(cpus)).split(",") if part]
    assert [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)] == sorted(cpus)


def test_a_mask_of_two_sockets_is_read_whole(opened: Opened) -> None:
    nvml, _ = opened(with_values(CpuAffinity=words((0, 55), (112, 167))))
    assert read(nvml, 0)[0]["cpu_affinity"] == "0-55,112-167"


UP = {"active": True, "version": 6}


def test_all_links_of_a_healthy_gpu_are_up(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    assert read_links(nvml, 0) == ([{"link": link, **UP} for link in range(18)], {})


def test_a_link_that_is_down_is_listed_as_down(opened: Opened) -> None:
    nvml, _ = opened(with_values(NvLinkState={"3": 0, "*": 1}))
    links, missing = read_links(nvml, 0)
    assert [link["link"] for link in links if not link["active"]] == [3]
    assert missing == {}


def test_a_gpu_with_twelve_links_has_twelve(opened: Opened) -> None:
    nvml, stand_in = opened(profile("a100x8"))
    assert read_links(nvml, 5) == ([{"link": link, "active": True, "version": 4} for link in range(12)], {})
    assert stand_in.calls["nvmlDeviceGetNvLinkState", 5] == 12


@pytest.mark.parametrize("count", [None, {"error": 4}, 0xFFFFFFFF, 19])
def test_without_a_count_the_links_are_those_that_answer(opened: Opened, count: Any) -> None:
    node = profile("a100x8")
    fields = node["devices"][0]["FieldValues"]
    del fields["91"]
    fields |= {} if count is None else {"91": count}
    nvml, _ = opened(node)
    links, missing = read_links(nvml, 0)
    assert [link["link"] for link in links] == list(range(12))
    assert missing == {}


@pytest.mark.parametrize(
    ("count", "links"), [(0, []), (1, [{"link": 0, **UP}]), (18, [{"link": link, **UP} for link in range(18)])]
)
def test_no_more_links_are_asked_than_there_are(opened: Opened, count: int, links: list[dict[str, Any]]) -> None:
    nvml, stand_in = opened(with_values(FieldValues={"91": count}))
    assert read_links(nvml, 0) == (links, {})
    assert stand_in.calls["nvmlDeviceGetNvLinkState", 0] == count


@pytest.mark.parametrize("name", ["geforce4090x2", "gb10", "wsl", "vgpu"])
def test_a_gpu_without_nvlink_has_no_links_by_its_own_word(opened: Opened, name: str) -> None:
    nvml, stand_in = opened(profile(name))
    assert read_links(nvml, 0) == ([], {"nvlink_active": "NOT_SUPPORTED"})
    assert stand_in.calls["nvmlDeviceGetNvLinkState", 0] == 1


def test_a_link_whose_state_is_refused_is_listed_without_state(opened: Opened) -> None:
    nvml, _ = opened(with_values(NvLinkState={"7": {"error": 4}, "*": 1}))
    links, missing = read_links(nvml, 0)
    assert links[7] == {"link": 7, "active": None, "version": None}
    assert links[6] == {"link": 6, **UP}
    assert links[8] == {"link": 8, **UP}
    assert missing == {"nvlink_active": "NO_PERMISSION", "nvlink_version": "NO_PERMISSION"}


def test_a_node_of_one_gpu_has_no_peers(opened: Opened) -> None:
    nvml, _ = opened(h200_node(1))
    assert read_peers(nvml, 0, 1) == []


def test_peers_are_all_the_others(opened: Opened) -> None:
    nvml, _ = opened(h200_node(4))
    assert [peer["nvml_index"] for peer in read_peers(nvml, 2, 4)] == [0, 1, 3]


@pytest.mark.parametrize("status", P2P_STATUS)
def test_each_kind_of_access_has_its_own_status(opened: Opened, status: int) -> None:
    nvml, _ = opened(with_values(P2PStatus={"1,0": status, "1,1": 0, "1,2": 5, "1,3": 1}))
    (peer,) = read_peers(nvml, 0, 2)
    assert peer["p2p"] == {
        "read": P2P_STATUS[status],
        "write": "OK",
        "nvlink": "NOT_SUPPORTED",
        "atomics": "CHIPSET_NOT_SUPPORTED",
    }
    assert peer["missing"] == {}


@pytest.mark.parametrize("level", TOPOLOGY)
def test_each_level_has_its_name(opened: Opened, level: int) -> None:
    nvml, _ = opened(with_values(TopologyCommonAncestor={"1": level}))
    assert read_peers(nvml, 0, 2)[0]["topology"] == TOPOLOGY[level]


def test_a_level_and_a_status_without_a_name_keep_their_numbers(opened: Opened) -> None:
    nvml, _ = opened(with_values(TopologyCommonAncestor={"1": 60}, P2PStatus={"*": 9}))
    (peer,) = read_peers(nvml, 0, 2)
    assert (peer["topology"], peer["p2p"]["write"]) == ("LEVEL_60", "STATUS_9")


def test_one_refused_kind_leaves_the_others(opened: Opened) -> None:
    nvml, _ = opened(with_values(P2PStatus={"1,2": {"error": 999}, "*": 0}))
    (peer,) = read_peers(nvml, 0, 2)
    assert peer["p2p"] == {"read": "OK", "write": "OK", "nvlink": None, "atomics": "OK"}
    assert peer["missing"] == {"p2p_nvlink": "UNKNOWN"}
    assert peer["topology"] == "HOSTBRIDGE"


def test_a_lost_peer_costs_its_own_row_only(opened: Opened) -> None:
    nvml, _ = opened(profile("lost_card"))
    peers = {peer["nvml_index"]: peer for peer in read_peers(nvml, 0, 8)}
    assert set(peers[5]["missing"].values()) == {"GPU_IS_LOST"}
    assert set(peers[5]["p2p"].values()) == {peers[5]["topology"]} == {None}
    assert all(not peers[index]["missing"] for index in (1, 2, 3, 4, 6, 7))


def test_gpus_of_one_socket_are_nearer_than_those_of_two(opened: Opened) -> None:
    nvml, _ = opened(profile("h100x8"))
    assert [peer["topology"] for peer in read_peers(nvml, 2, 8)] == ["NODE"] * 3 + ["SYSTEM"] * 4


def test_a_pair_refused_for_good_is_not_asked_again_and_another_pair_is(opened: Opened) -> None:
    nvml, stand_in = opened({**h200_node(3), "faults": [{"call": "nvmlDeviceGetP2PStatus", "device": 0, "error": 3}]})
    answers = [nvml.ask_pair("DeviceGetP2PStatus", 0, other, kind) for other, kind in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert [answer.reason for answer in answers] == ["NOT_SUPPORTED", "SKIPPED after NOT_SUPPORTED"] + [
        "NOT_SUPPORTED"
    ] * 2
    assert stand_in.calls["nvmlDeviceGetP2PStatus", 0] == 3
    assert nvml.ask_pair("DeviceGetP2PStatus", 1, 0, 0) == Answer(0)


@pytest.mark.parametrize("fault", [[], [{"call": "nvmlDeviceGetHandleByIndex_v2", "device": 1, "error": 15}]])
def test_a_call_on_two_gpus_is_noted_before_and_taken_back_after(fault: list[dict[str, Any]]) -> None:
    notes: list[tuple[str, int | None]] = []
    with installed({**h200_node(), "faults": fault}):
        nvml = open_nvml(lambda call, device: notes.append((call, device)))
        assert isinstance(nvml, Nvml)
        nvml.ask_pair("DeviceGetP2PStatus", 0, 1, 0)
    handles = [("DeviceGetHandleByIndex", 0), ("DeviceGetHandleByIndex", 1)]
    made = [] if fault else [("DeviceGetP2PStatus", 0)]
    assert [note for note in notes if note[1] is not None] == handles + made
    assert notes[-1] == ("", None)
