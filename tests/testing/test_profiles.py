"""Every simulated node can be looked at through the real binding, and shows what it is said to show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpubalance.errors import UsageError
from gpubalance.node.details import read_links, read_peers, read_values
from gpubalance.node.nvml import Nvml, open_nvml
from gpubalance.node.snapshot import take_snapshot
from gpubalance.record.node import Node
from gpubalance.record.probe import DeviceDetail
from gpubalance.testing.profiles import H200, SYSTEM, h200_node, load_profile, names, profile
from gpubalance.testing.profiles.node import words
from gpubalance.testing.stand_in_nvml import installed

COUNTS = {
    "h200x2": 2, "h200x8": 8, "h100x8": 8, "b200x8": 8, "a100x8": 8, "geforce4090x2": 2, "gb10": 1, "mig": 8, "wsl": 1,
    "vgpu": 1, "lost_card": 8, "no_rights": 2, "sick": 8,
}  # fmt: skip
HEALTHY = ("h200x2", "h200x8", "h100x8", "b200x8", "a100x8", "geforce4090x2", "gb10", "wsl", "vgpu")
HEALTH = {
    "ecc_uncorrected": 0, "ecc_uncorrected_aggregate": 0, "rows_remap_pending": 0, "rows_remap_failed": 0,
    "rows_remapped_uncorrectable": 0, "sram_uncorrected_aggregate": 0, "sram_threshold_exceeded": 0,
    "retired_pages_pending": 0, "row_banks_low": 0, "row_banks_none": 0, "recovery_action": 0, "inforom_valid": 1,
    "channel_repair_pending": 0, "tpc_repair_pending": 0, "nvlink_recovery_failed": 0, "power_violation_ns": 0,
    "thermal_violation_ns": 0, "fabric_state": "COMPLETED", "fabric_status": 0,
}  # fmt: skip
"""What a healthy GPU answers, if it answers at all."""


@pytest.fixture(autouse=True)
def all_devices_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def look(name: str) -> tuple[Node, list[DeviceDetail]]:
    with installed(profile(name)):
        nvml = open_nvml()
        assert isinstance(nvml, Nvml)
        node = take_snapshot(nvml, 0.25)
        return node, [detail_of(nvml, index, len(node.devices)) for index in range(len(node.devices))]


def detail_of(nvml: Nvml, index: int, count: int) -> DeviceDetail:
    values, missing = read_values(nvml, index)
    links, unread = read_links(nvml, index)
    return DeviceDetail(
        nvml_index=index, values=values, missing=missing | unread, links=links, peers=read_peers(nvml, index, count)
    )


def plain(reason: str) -> str:
    return reason.removeprefix("SKIPPED after ")


def bandwidth_gb_per_s(readings: dict[str, Any]) -> float:
    """Two transfers a clock over the whole bus."""
    return float(readings["memory_clock_max_mhz"] * 2 * readings["memory_bus_width_bits"] / 8 / 1000)


def test_all_names_are_known() -> None:
    assert set(names()) == set(COUNTS)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names())


@pytest.mark.parametrize("name", COUNTS)
def test_a_profile_is_plain_json_and_fresh_each_time(name: str) -> None:
    before = json.dumps(profile(name))
    spoiled = profile(name)
    for gpu in spoiled["devices"]:
        for value in gpu.values():
            if isinstance(value, dict):
                value.clear()
    assert json.dumps(profile(name)) == before
    assert json.loads(before) == profile(name)


@pytest.mark.parametrize("name", COUNTS)
def test_every_node_has_its_gpus_each_with_names_of_its_own(name: str) -> None:
    node, details = look(name)
    assert node.nvml_error is None
    assert len(node.devices) == len(details) == COUNTS[name]
    alive = [device for device in node.devices if "uuid" not in device.missing]
    assert len(alive) == COUNTS[name] - (name == "lost_card")
    for names_of in (lambda d: d.uuid, lambda d: d.pci_bus_id, lambda d: d.minor_number):
        assert len({names_of(device) for device in alive} - {None}) == len(alive)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_says_nothing_that_is_not_healthy(name: str) -> None:
    node, details = look(name)
    for device, detail in zip(node.devices, details, strict=True):
        said = {key: detail.values[key] for key in HEALTH if detail.values[key] is not None}
        assert said == {key: HEALTH[key] for key in said}
        assert {plain(reason) for reason in (device.missing | detail.missing).values()} <= {"NOT_SUPPORTED"}
        assert all(link.active for link in detail.links)
        assert detail.values["event_reasons"] in (0, 1)
        assert device.readings["power_limit_w"] == device.readings["power_default_limit_w"]
    assert len({json.dumps(detail.values | {"cpu_affinity": None}) for detail in details}) == 1


@pytest.mark.parametrize("name", COUNTS)
def test_how_two_gpus_stand_is_the_same_from_both_sides(name: str) -> None:
    _, details = look(name)
    seen = {(d.nvml_index, p.nvml_index): (p.topology, p.p2p) for d in details for p in d.peers}
    assert len(seen) == COUNTS[name] * (COUNTS[name] - 1)
    assert all(seen[other, one] == stand for (one, other), stand in seen.items())


@pytest.mark.parametrize(
    ("name", "gb_per_s", "cores", "links", "version"),
    [
        ("h200x8", 4814.3, 16896, 18, 6),  # 3201 MHz x 2 x 6016 bits / 8
        ("h100x8", 3352.3, 16896, 18, 6),
        ("b200x8", 8183.8, 18944, 18, 7),
        ("a100x8", 2039.0, 6912, 12, 4),
    ],
)
def test_servers_have_the_memory_and_the_links_of_their_model(
    name: str, gb_per_s: float, cores: int, links: int, version: int
) -> None:
    node, details = look(name)
    for device, detail in zip(node.devices, details, strict=True):
        assert bandwidth_gb_per_s(device.readings) == pytest.approx(gb_per_s, abs=0.05)
        assert device.readings["cuda_cores"] == cores
        assert device.readings["nvlink_count"] == len(detail.links) == links
        assert {link.version for link in detail.links} == {version}
        assert {status for peer in detail.peers for status in peer.p2p.values()} == {"OK"}
    assert len({detail.values["cpu_affinity"] for detail in details}) == 2


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "gb10"])
def test_used_and_free_and_reserved_memory_are_the_whole(name: str) -> None:
    node, _ = look(name)
    for device in node.devices:
        parts = [device.readings[f"memory_{part}_bytes"] for part in ("used_before", "free_before", "reserved")]
        assert None in parts or sum(parts) == device.memory_total_bytes


def test_geforce_cards_have_no_ecc_no_nvlink_no_mig_and_no_way_to_each_other() -> None:
    node, details = look("geforce4090x2")
    absent = ("ecc_mode", "mig_mode", "nvlink_count")
    assert [[plain(d.missing[key]) for key in absent] for d in node.devices] == [["NOT_SUPPORTED"] * 3] * 2
    assert [detail.links for detail in details] == [[], []]
    assert {s for d in details for p in d.peers for s in p.p2p.values()} == {"CHIPSET_NOT_SUPPORTED"}
    assert {detail.values["pcie_generation"] for detail in details} == {1}
    assert not any("Gpm" in gpu for gpu in profile("geforce4090x2")["devices"])


def test_a_unified_part_refuses_its_memory_and_nothing_stands_in_for_it() -> None:
    node, (detail,) = look("gb10")
    (device,) = node.devices
    assert device.memory_total_bytes is None
    for key in ("memory_used_before_bytes", "memory_free_before_bytes", "memory_reserved_bytes"):
        assert device.readings[key] is None
        assert plain(device.missing[key]) == "NOT_SUPPORTED"
    assert "memory_used_v1_bytes" not in detail.values
    assert device.name == "NVIDIA GB10"
    assert detail.values["utilization_percent"] == 0


def test_a_unified_part_whose_memory_is_zero_with_success_has_no_total() -> None:
    node = profile("gb10")
    node["devices"][0] |= {key: {"total": 0, "free": 0, "used": 0} for key in ("MemoryInfo", "MemoryInfo_v2")}
    with installed(node):
        nvml = open_nvml()
        assert isinstance(nvml, Nvml)
        (device,) = take_snapshot(nvml, None).devices
    assert device.memory_total_bytes is None
    assert device.missing["memory_total_bytes"] == "SENTINEL"


def test_two_of_eight_with_mig_refuse_utilization_and_memory_and_six_are_whole() -> None:
    node, details = look("mig")
    assert [d.nvml_index for d in node.devices if d.mig_enabled] == [2, 5]
    for device, detail in zip(node.devices, details, strict=True):
        refused = {**device.missing, **detail.missing}
        utilization = [refused.get(f"utilization_{when}percent") for when in ("", "before_")]
        memory = [refused.get(f"memory_{part}_bytes") for part in ("total", "used_before", "used")]
        if device.mig_enabled:
            assert [plain(reason or "") for reason in utilization] == ["NOT_SUPPORTED"] * 2
            assert memory == ["NO_PERMISSION"] * 3
            assert device.readings["utilization_before_percent"] is None
        else:
            assert utilization == [None] * 2
            assert memory == [None] * 3
    whole = {p.nvml_index for p in details[0].peers if set(p.p2p.values()) == {"OK"}}
    assert whole == {1, 3, 4, 6, 7}


def test_under_wsl_there_is_memory_but_no_utilization_and_no_link() -> None:
    node, (detail,) = look("wsl")
    assert node.processes == []
    assert detail.values["memory_used_bytes"] == 2 * 2**20
    for key in ("utilization_percent", "pcie_generation", "pcie_width", "pcie_generation_gpu_max"):
        assert plain(detail.missing[key]) == "NOT_SUPPORTED"


def test_a_slice_of_a_gpu_knows_its_memory_and_neither_heat_nor_health() -> None:
    _, (detail,) = look("vgpu")
    assert detail.values["virtualization_mode"] == 2
    assert detail.values["memory_used_bytes"] == 0
    for key in ("temperature_c", "power_w", "ecc_uncorrected", "rows_remap_pending", "temperature_margin_c"):
        assert plain(detail.missing[key]) == "NOT_SUPPORTED"


def test_a_lost_card_is_counted_and_says_nothing_else() -> None:
    node, details = look("lost_card")
    lost, detail = node.devices[5], details[5]
    assert lost.name == "unknown (GPU_IS_LOST)"
    assert set(lost.missing.values()) | set(detail.missing.values()) == {"GPU_IS_LOST"}
    assert set(lost.readings.values()) | set(detail.values.values()) == {None}
    for index in (0, 1, 2, 3, 4, 6, 7):
        assert node.devices[index].missing == {}
        assert "GPU_IS_LOST" not in details[index].missing.values()


def test_without_rights_the_counters_are_refused_and_readings_are_not() -> None:
    node, details = look("no_rights")
    healthy, _ = look("h200x2")
    assert node.devices == healthy.devices
    for detail in details:
        refused = {key for key, reason in detail.missing.items() if reason == "NO_PERMISSION"}
        assert {"ecc_uncorrected", "pcie_replays", "nvlink_replays", "rows_remap_pending", "energy_mj"} <= refused
        assert {"temperature_c", "power_w", "event_reasons", "pcie_width", "fabric_state"}.isdisjoint(refused)


def test_each_sick_gpu_has_one_fault_and_two_are_healthy() -> None:
    node, details = look("sick")
    healthy, of_healthy = look("h100x8")
    differ = [
        {key for key, value in detail.values.items() if value != before.values[key]}
        | {"links" for _ in [0] if detail.links != before.links}
        | {key for key, value in device.readings.items() if value != was.readings[key]}
        for device, was, detail, before in zip(node.devices, healthy.devices, details, of_healthy, strict=True)
    ]
    assert differ == [
        {"ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate"},
        {"rows_remapped_uncorrectable", "rows_remap_pending", "recovery_action"},
        {"rows_remapped_correctable", "rows_remapped_uncorrectable", "rows_remap_failed", "row_banks_max",
         "row_banks_none"},
        {"links"},
        {"event_reasons", "sm_clock_mhz"},
        {"power_limit_w", "power_set_limit_w"},
        set(),
        set(),
    ]  # fmt: skip
    assert [link.link for link in details[3].links if not link.active] == [4, 5, 10, 11]
    assert details[4].values["event_reasons"] == 0x88


@pytest.mark.parametrize(
    ("name", "near"),
    [("h200x3", "h200x"), ("lost-card", "lost_card"), ("MIG", None), ("a100", "a100x8"), ("nothing of the sort", None)],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(name: str, near: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        profile(name)
    assert caught.value.message.startswith(f"there is no simulated node {name!r}")
    assert ("did you mean" in caught.value.message) == (near is not None)
    assert near is None or f"did you mean '{near}" in caught.value.message
    assert caught.value.next_step is not None
    assert all(known in caught.value.next_step for known in names())


def test_a_name_is_loaded_as_a_profile() -> None:
    assert load_profile("h200x2") == profile("h200x2") == h200_node()
    with pytest.raises(UsageError, match="did you mean 'gb10'"):
        load_profile("gb11")


def test_a_file_is_loaded_as_a_profile(tmp_path: Path) -> None:
    for path in (tmp_path / "node.json", tmp_path / "without_ending"):
        path.write_text(json.dumps(h200_node(3)))
        assert load_profile(str(path)) == h200_node(3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "is not JSON"),
        (b"\xf8\x92\xff", "is not JSON"),
        (b"[]", "is not a simulated node"),
        (b'{"devices": []}', "is not a simulated node"),
        (b'{"system": {}, "devices": {}}', "is not a simulated node"),
    ],
)
def test_a_file_that_is_no_profile_is_said(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "node.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_profile(str(path))
    assert caught.value.message.startswith(f"{path} {message}")


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 0)], [1]),
        ([(0, 31)], [0xFFFFFFFF]),
        ([(0, 63)], [2**64 - 1]),
        ([(64, 64)], [0, 1]),
        ([(1, 2), (65, 65)], [6, 2]),
    ],
)
def test_a_mask_has_a_bit_for_each_cpu(ranges: list[tuple[int, int]], expected: list[int]) -> None:
    assert words(*ranges) == expected


def test_the_h200_stands_as_it_was_read() -> None:
    assert (H200["Name"], H200["VbiosVersion"], H200["PowerUsage"]) == ("NVIDIA H200", "96.00.A5.00.1A", 79408)
    assert SYSTEM["DriverVersion"] == "580.159.04"
