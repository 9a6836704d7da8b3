"""The stand-in takes the library's place and gives it back."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pynvml
import pytest

from gpubalance.testing.profiles import H200, h200_node
from gpubalance.testing.stand_in_nvml import installed


def test_the_binding_is_afterwards_what_it_was() -> None:
    before = pynvml.nvmlLib
    with suppress(ZeroDivisionError), installed(h200_node()) as stand_in:
        assert pynvml.nvmlLib is stand_in
        _ = 1 / 0
    assert pynvml.nvmlLib is before


def test_functions_of_one_stand_in_are_not_those_of_the_next() -> None:
    for count in (1, 3):
        with installed(h200_node(count)):
            pynvml.nvmlInit()
            assert pynvml.nvmlDeviceGetCount() == count
            pynvml.nvmlShutdown()


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(h200_node(2)))
    with installed(path):
        pynvml.nvmlInit()
        assert pynvml.nvmlSystemGetDriverVersion() == "580.159.04"
        pynvml.nvmlShutdown()


def test_calls_are_counted_by_function_and_device() -> None:
    with installed(h200_node()) as stand_in:
        pynvml.nvmlInit()
        for index in (0, 1, 1):
            pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(index))
        assert stand_in.calls["nvmlDeviceGetPowerUsage", 0] == 1
        assert stand_in.calls["nvmlDeviceGetPowerUsage", 1] == 2


def test_a_fault_acts_from_its_call_on_and_on_its_device_only() -> None:
    profile = {**h200_node(), "faults": [{"call": "nvmlDeviceGetPowerUsage", "device": 1, "error": 15, "after": 2}]}
    with installed(profile):
        pynvml.nvmlInit()
        healthy, lost = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        assert [pynvml.nvmlDeviceGetPowerUsage(lost) for _ in range(2)] == [79408, 79408]
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetPowerUsage(lost)
        assert [pynvml.nvmlDeviceGetPowerUsage(healthy) for _ in range(4)] == [79408] * 4


def test_a_device_that_is_not_there_is_an_invalid_argument() -> None:
    with installed(h200_node(1)):
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(1)


def test_an_unknown_call_is_not_supported() -> None:
    with installed(h200_node(1)):
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetFanSpeed(pynvml.nvmlDeviceGetHandleByIndex(0))


def test_a_node_of_many_is_many_devices_and_leaves_the_profile_of_one_alone() -> None:
    before = json.dumps(H200)
    devices = h200_node(8)["devices"]
    assert len({device["UUID"] for device in devices}) == 8
    assert len({device["PciInfo_v3"]["busId"] for device in devices}) == 8
    devices[0]["ClockInfo"]["1"] = 0
    assert json.dumps(H200) == before
