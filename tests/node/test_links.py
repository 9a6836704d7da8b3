"""NVLinks that are up, and the GPUs that are reached over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.node.devices import list_devices
from gpubalance.node.nvml import Nvml
from gpubalance.record.node import Device
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]


def first_of(opened: Opened, count: int = 2, **first: Any) -> Device:
    profile = h200_node(count)
    profile["devices"][0] |= first
    devices = list_devices(opened(profile)[0])
    assert not isinstance(devices, str)
    return devices[0]


def links(device: Device) -> tuple[Any, Any]:
    return device.readings["nvlinks_up"], device.readings["nvlink_peers"]


def test_a_healthy_gpu_has_all_links_up_and_reaches_all_others(opened: Opened) -> None:
    device = first_of(opened, 4)
    assert links(device) == (18, "1,2,3")
    assert device.missing == {}


def test_a_link_that_is_down_is_not_counted(opened: Opened) -> None:
    down = {**{str(link): 1 for link in range(18)}, "7": 0}
    assert links(first_of(opened, NvLinkState=down)) == (17, "1")


def test_a_gpu_whose_links_are_all_down_reaches_nobody(opened: Opened) -> None:
    assert links(first_of(opened, NvLinkState={str(link): 0 for link in range(18)})) == (0, "")


def test_a_card_without_nvlink_has_none_and_says_why(opened: Opened) -> None:
    device = first_of(opened, NvLinkState={}, FieldValues={})
    assert links(device) == (None, None)
    assert device.missing["nvlinks_up"] == device.missing["nvlink_peers"]


def test_peers_that_are_reached_another_way_do_not_count(opened: Opened) -> None:
    assert links(first_of(opened, P2PStatus={"*": 5})) == (18, "")


@pytest.mark.parametrize("value", [2**32 - 1, 2**64 - 1])
def test_an_answer_that_stands_for_no_value_is_none(opened: Opened, value: int) -> None:
    device = first_of(opened, P2PStatus={"*": value})
    assert (links(device), device.missing["nvlink_peers"]) == ((18, None), "SENTINEL")


def test_a_peer_that_is_lost_hides_no_other(opened: Opened) -> None:
    profile = {**h200_node(4), "faults": [{"call": "nvmlDeviceGetHandleByIndex_v2", "device": 2, "error": 15}]}
    devices = list_devices(opened(profile)[0])
    assert not isinstance(devices, str)
    assert [links(device) for device in devices] == [(18, "1,3"), (18, "0,3"), (None, None), (18, "0,1")]
