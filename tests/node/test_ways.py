"""How GPUs are joined, through the real binding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.analysis.link_classes import over_nvlink
from gpubalance.node.devices import list_devices
from gpubalance.node.nvml import Nvml
from gpubalance.node.snapshot import take_snapshot
from gpubalance.node.ways import with_ways
from gpubalance.record.node import Device
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]


def joined(opened: Opened, profile: dict[str, Any]) -> list[Device]:
    nvml, _ = opened(profile)
    devices = list_devices(nvml)
    assert not isinstance(devices, str)
    return with_ways(nvml, devices)


def remote(*bus_ids: str) -> dict[str, Any]:
    return {str(link): {"busId": f"0000{bus_id}"} for link, bus_id in enumerate(bus_ids)}


def test_links_that_are_up_and_what_lies_between(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][1]["NvLinkState"]["7"] = 0
    first, second = joined(opened, profile)
    assert (first.readings["nvlinks_active"], second.readings["nvlinks_active"]) == (18, 17)
    (peer,) = first.peers
    assert (peer.nvml_index, peer.topology, peer.p2p["nvlink"], peer.nvlinks) == (1, "HOSTBRIDGE", "OK", None)


def test_links_that_lead_straight_to_a_peer_are_counted(opened: Opened) -> None:
    profile = h200_node(3)
    ends = ["0000:07:00.0"] * 12 + ["0000:08:00.0"] * 6
    profile["devices"][0]["NvLinkRemotePciInfo_v2"] = remote(*ends)
    first, second, _ = joined(opened, profile)
    assert {peer.nvml_index: peer.nvlinks for peer in first.peers} == {1: 12, 2: 6}
    assert {peer.nvlinks for peer in second.peers} == {None}


def test_a_peer_that_is_lost_hides_no_other(opened: Opened) -> None:
    profile = {**h200_node(4), "faults": [{"call": "nvmlDeviceGetHandleByIndex_v2", "device": 2, "error": 15}]}
    devices = joined(opened, profile)
    assert [device.readings["nvlinks_active"] for device in devices] == [18, 18, None, 18]
    reached = [[peer.nvml_index for peer in device.peers if over_nvlink(peer)] for device in devices]
    assert reached == [[1, 3], [0, 3], [], [0, 1]]


@pytest.mark.parametrize("value", [2**32 - 1, 2**64 - 1])
def test_an_answer_that_stands_for_no_value_is_none(opened: Opened, value: int) -> None:
    profile = h200_node()
    profile["devices"][0]["P2PStatus"] = {"*": value}
    (peer,) = joined(opened, profile)[0].peers
    assert (peer.p2p["nvlink"], peer.missing["p2p_nvlink"]) == (None, "SENTINEL")


def test_links_to_switches_and_all_bits_set_lead_to_no_gpu(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0]["NvLinkRemotePciInfo_v2"] = remote(*["0000:c1:00.0"] * 18)
    profile["devices"][1]["NvLinkRemotePciInfo_v2"] = {"*": {"busId": "FFFFFFFF:FF:FF.F"}}
    assert [peer.nvlinks for device in joined(opened, profile) for peer in device.peers] == [None, None]


def test_a_gpu_without_nvlink_has_null_and_a_reason(opened: Opened) -> None:
    profile = h200_node()
    del profile["devices"][0]["NvLinkState"]
    profile["devices"][0]["FieldValues"]["91"] = 0
    first, _ = joined(opened, profile)
    assert first.readings["nvlinks_active"] is None
    assert first.missing["nvlinks_active"] == "NOT_SUPPORTED"


def test_a_link_that_does_not_tell_its_state_leaves_no_count(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0]["NvLinkState"]["3"] = {"error": 4}
    first, _ = joined(opened, profile)
    assert first.readings["nvlinks_active"] is None
    assert first.missing["nvlinks_active"] == "NO_PERMISSION"


OF_WAYS = {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
           "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus"}  # fmt: skip


def test_a_snapshot_asks_only_when_it_is_told_to_and_nothing_twice(opened: Opened) -> None:
    nvml, stand_in = opened(h200_node())
    assert all(not device.peers for device in take_snapshot(nvml, None).devices)
    without = Counter(stand_in.calls)
    stand_in.calls.clear()
    assert all(len(device.peers) == 1 for device in take_snapshot(nvml, None, ways=True).devices)
    more = Counter(stand_in.calls) - without
    assert {name for name, _ in more} == OF_WAYS
    assert not OF_WAYS & {name for name, _ in without}
    assert more["nvmlDeviceGetNvLinkState", 0] == 18
