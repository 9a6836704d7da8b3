"""Xid events: the driver's own word that something went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.node.nvml import Nvml
from gpubalance.sampling.xid import XidListener
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]


def node(*xids: dict[str, int], **more: Any) -> dict[str, Any]:
    return {**h200_node(2), "xids": list(xids), **more}


def test_without_events_nothing_is_heard_and_nothing_is_missing(opened: Opened) -> None:
    nvml, _ = opened(node())
    listener = XidListener(nvml, [0, 1])
    assert listener.poll() == []
    assert listener.missing is None


def test_an_xid_is_heard_once_with_its_gpu_and_number(opened: Opened) -> None:
    nvml, _ = opened(node({"device": 1, "xid": 79}))
    listener = XidListener(nvml, [0, 1])
    assert [listener.poll() for _ in range(3)] == [[(1, 79)], [], []]


def test_all_pending_xids_come_with_one_poll_and_in_order(opened: Opened) -> None:
    nvml, _ = opened(node({"device": 0, "xid": 13}, {"device": 1, "xid": 48}, {"device": 0, "xid": 45}))
    assert XidListener(nvml, [0, 1]).poll() == [(0, 13), (1, 48), (0, 45)]


def test_an_xid_in_mid_run_is_heard_at_the_next_poll(opened: Opened) -> None:
    nvml, _ = opened(node({"device": 0, "xid": 31, "after": 2}))
    listener = XidListener(nvml, [0, 1])
    assert [listener.poll() for _ in range(4)] == [[], [], [(0, 31)], []]


def test_an_xid_of_a_gpu_whose_index_is_refused_is_not_lost(opened: Opened) -> None:
    lost = {"call": "nvmlDeviceGetIndex", "error": 15}
    nvml, _ = opened(node({"device": 1, "xid": 79}, faults=[lost]))
    assert XidListener(nvml, [0, 1]).poll() == [(None, 79)]


def test_a_poll_never_waits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, _ = opened(node())
    listener = XidListener(nvml, [0, 1])
    asked: list[tuple[Any, ...]] = []
    ask = nvml.ask
    monkeypatch.setattr(nvml, "ask", lambda *arguments: asked.append(arguments) or ask(*arguments))
    listener.poll()
    assert [(arguments[0], arguments[-1]) for arguments in asked] == [("EventSetWait_v2", 0)]


@pytest.mark.parametrize(("code", "reason"), [(3, "NOT_SUPPORTED"), (4, "NO_PERMISSION"), (999, "UNKNOWN")])
def test_a_driver_without_event_sets_is_a_reason_and_silence(opened: Opened, code: int, reason: str) -> None:
    refused = {"call": "nvmlEventSetCreate", "error": code}
    nvml, stand_in = opened(node({"device": 0, "xid": 79}, faults=[refused]))
    listener = XidListener(nvml, [0, 1])
    assert listener.missing == reason
    assert listener.poll() == []
    assert stand_in.calls["nvmlDeviceRegisterEvents", 0] == 0


def test_one_gpu_without_events_is_a_reason_and_does_not_silence_the_other(opened: Opened) -> None:
    refused = {"call": "nvmlDeviceRegisterEvents", "device": 1, "error": 3}
    nvml, _ = opened(node({"device": 0, "xid": 79}, faults=[refused]))
    listener = XidListener(nvml, [0, 1])
    assert listener.missing == "NOT_SUPPORTED"
    assert listener.poll() == [(0, 79)]


@pytest.mark.parametrize("code", [3, 15, 999])
def test_waiting_that_is_refused_ends_the_poll_without_an_error(opened: Opened, code: int) -> None:
    nvml, _ = opened(node({"device": 0, "xid": 79}, faults=[{"call": "nvmlEventSetWait_v2", "error": code}]))
    assert XidListener(nvml, [0, 1]).poll() == []
