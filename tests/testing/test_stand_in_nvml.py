"""The stand-in takes the library's place and gives it back."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpubalance.testing.profiles import H200, h200_node
from gpubalance.testing.stand_in_nvml import installed
from tests.support import ROOT


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


@contextmanager
def opened(**values: Any) -> Iterator[Any]:
    """The handle of the first of three H200s that answers so, through the real binding."""
    profile = h200_node(3)
    profile["devices"][0] |= values
    with installed(profile):
        pynvml.nvmlInit()
        yield pynvml.nvmlDeviceGetHandleByIndex(0)


@pytest.mark.parametrize(
    ("profile_values", "call", "arguments", "answer"),
    [
        ({"TemperatureThreshold": {"0": 92, "1": 89}}, "TemperatureThreshold", (1,), 89),
        ({"ApplicationsClock": {"1": 1980, "2": 3201}}, "ApplicationsClock", (2,), 3201),
        ({"NvLinkState": {"3": 0, "*": 1}}, "NvLinkState", (3,), 0),
        ({"NvLinkState": {"3": 0, "*": 1}}, "NvLinkState", (4,), 1),
        ({"NvLinkVersion": {"0": 7}}, "NvLinkVersion", (0,), 7),
        ({"RetiredPages": {"0": [4096, 8192], "1": []}}, "RetiredPages", (0,), [4096, 8192]),
        ({"RetiredPages": {"0": [4096, 8192], "1": []}}, "RetiredPages", (1,), []),
        ({"RepairStatus": {"bChannelRepairPending": 1}}, "RepairStatus", (), [1, 0]),
        ({"MarginTemperature": {"marginTemperature": -3}}, "MarginTemperature", (), -3),
        ({"VbiosVersion": "96.00.A5.00.1A"}, "VbiosVersion", (), "96.00.A5.00.1A"),
        ({"NumaNodeId": -1}, "NumaNodeId", (), -1),
        ({"RemappedRows": [1, 2, 3, 4]}, "RemappedRows", (), (1, 2, 3, 4)),
    ],
)
def test_a_call_answers_what_its_arguments_select(
    profile_values: dict[str, Any], call: str, arguments: tuple[int, ...], answer: object
) -> None:
    with opened(**profile_values) as handle:
        assert getattr(pynvml, f"nvmlDeviceGet{call}")(handle, *arguments) == answer


@pytest.mark.parametrize(
    ("profile_values", "call", "arguments"),
    [
        ({"TemperatureThreshold": {"0": 92}}, "TemperatureThreshold", (1,)),
        ({"NvLinkState": {"0": 1}}, "NvLinkState", (1,)),
        ({"RetiredPages": {"0": []}}, "RetiredPages", (1,)),
        ({"CpuAffinity": None}, "CpuAffinity", (1,)),
    ],
)
def test_what_is_not_in_the_table_is_not_supported(
    profile_values: dict[str, Any], call: str, arguments: tuple[int, ...]
) -> None:
    with opened(**profile_values) as handle, pytest.raises(pynvml.NVMLError_NotSupported):
        getattr(pynvml, f"nvmlDeviceGet{call}")(handle, *arguments)


@pytest.mark.parametrize(
    ("profile_values", "call", "arguments"),
    [
        ({"PowerUsage": {"error": 4}}, "PowerUsage", ()),
        ({"MemoryInfo": {"error": 4}}, "MemoryInfo", ()),
        ({"ClockInfo": {"error": 4}}, "ClockInfo", (1,)),
        ({"ClockInfo": {"1": {"error": 4}, "*": 345}}, "ClockInfo", (1,)),
        ({"CpuAffinity": {"error": 4}}, "CpuAffinity", (1,)),
        ({"RetiredPages": {"0": {"error": 4}}}, "RetiredPages", (0,)),
    ],
)
def test_a_value_may_be_a_refusal(profile_values: dict[str, Any], call: str, arguments: tuple[int, ...]) -> None:
    with opened(**profile_values) as handle:
        with pytest.raises(pynvml.NVMLError_NoPermission):
            getattr(pynvml, f"nvmlDeviceGet{call}")(handle, *arguments)
        assert pynvml.nvmlDeviceGetMaxClockInfo(handle, 2) == 3201


def test_a_pair_is_told_by_the_other_gpu_and_the_kind() -> None:
    with opened(P2PStatus={"1,0": 3, "2,1": 4, "*": 0}, TopologyCommonAncestor={"1": 10, "2": 50}) as first:
        second, third = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (1, 2))
        assert [pynvml.nvmlDeviceGetP2PStatus(first, second, kind) for kind in (0, 1)] == [3, 0]
        assert [pynvml.nvmlDeviceGetP2PStatus(first, third, kind) for kind in (0, 1)] == [0, 4]
        assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == 10
        assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, third) == 50


def test_structs_that_the_caller_brings_are_filled() -> None:
    values = {"GpuFabricInfoV": {"state": 2, "status": 1, "healthMask": 554}, "SramEccErrorStatus": {"aggregateCor": 9}}
    with opened(**values) as gpu:
        fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
        assert pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric)) == 0
        assert (fabric.state, fabric.status, fabric.healthMask) == (2, 1, 554)
        errors = pynvml.c_nvmlEccSramErrorStatus_v1_t()
        assert pynvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(errors)) == 0
        assert (errors.aggregateCor, errors.aggregateUncParity) == (9, 0)


def test_structs_of_the_binding_are_filled_field_by_field() -> None:
    with opened(RowRemapperHistogram={"max": 638, "high": 1, "none": 2}) as gpu:
        banks = pynvml.nvmlDeviceGetRowRemapperHistogram(gpu)
        assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (638, 1, 0, 0, 2)


@pytest.mark.parametrize(("given", "words"), [([], [0, 0]), ([5], [5, 0]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 2])])
def test_a_cpu_mask_has_as_many_words_as_were_asked_for(given: list[int], words: list[int]) -> None:
    with opened(CpuAffinity=given) as gpu:
        assert list(pynvml.nvmlDeviceGetCpuAffinity(gpu, 2)) == words


def test_a_call_without_outputs_returns_its_value() -> None:
    with opened(ValidateInforom=14) as gpu:
        with pytest.raises(pynvml.NVMLError_CorruptedInforom):
            pynvml.nvmlDeviceValidateInforom(gpu)
        assert pynvml.nvmlDeviceValidateInforom(pynvml.nvmlDeviceGetHandleByIndex(1)) is None


@pytest.mark.parametrize(
    ("entry", "code", "kind", "member", "value"),
    [
        (7, 0, 3, "ullVal", 7),
        ({"type": "double", "value": 1.5}, 0, 0, "dVal", 1.5),
        ({"type": "unsigned_int", "value": 18}, 0, 1, "uiVal", 18),
        ({"type": "unsigned_long", "value": 18}, 0, 2, "ulVal", 18),
        ({"type": "signed_long_long", "value": -5}, 0, 4, "sllVal", -5),
        ({"type": "signed_int", "value": -5}, 0, 5, "siVal", -5),
        ({"type": "unsigned_short", "value": 65535}, 0, 6, "usVal", 65535),
        ({"error": 4}, 4, 3, "ullVal", 0),
        (None, 3, 3, "ullVal", 0),
    ],
)
def test_a_field_has_its_type_or_its_error(entry: Any, code: int, kind: int, member: str, value: float) -> None:
    with opened(FieldValues={"164": entry, "91": 12}) as gpu:
        field, other = pynvml.nvmlDeviceGetFieldValues(gpu, [164, 91])
        assert (field.nvmlReturn, field.valueType, getattr(field.value, member)) == (code, kind, value)
        assert (other.nvmlReturn, other.value.ullVal) == (0, 12)


def test_nonsense_reaches_every_field_and_every_entry() -> None:
    calls = ["CpuAffinity", "FieldValues", "GpuFabricInfoV", "P2PStatus", "RowRemapperHistogram"]
    profile = {**h200_node(), "faults": [{"call": f"nvmlDeviceGet{call}", "value": 0xFFFFFFFF} for call in calls]}
    with installed(profile):
        pynvml.nvmlInit()
        gpu, other = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        assert set(pynvml.nvmlDeviceGetCpuAffinity(gpu, 3)) == {0xFFFFFFFF}
        assert [v.value.ullVal for v in pynvml.nvmlDeviceGetFieldValues(gpu, [91, 164])] == [0xFFFFFFFF] * 2
        fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric))
        assert {fabric.state, fabric.status, fabric.healthMask} == {0xFFFFFFFF}
        assert pynvml.nvmlDeviceGetP2PStatus(gpu, other, 0) == 0xFFFFFFFF
        assert pynvml.nvmlDeviceGetRowRemapperHistogram(gpu).low == 0xFFFFFFFF


def test_a_fault_of_the_call_for_a_handle_means_the_gpu_of_that_index() -> None:
    profile = {**h200_node(), "faults": [{"call": "nvmlDeviceGetHandleByIndex_v2", "device": 1, "error": 15}]}
    with installed(profile):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA H200"
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)


@pytest.mark.parametrize(("fault", "code"), [({"exit": 7}, 7), ({"exit": 0}, 0), ({"signal": 9}, -9)])
def test_a_fault_may_end_the_process(tmp_path: Path, fault: dict[str, int], code: int) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**h200_node(), "faults": [{"call": "nvmlDeviceGetName", **fault}]}))
    source = (
        "import sys, pynvml; from pathlib import Path; from gpubalance.testing.stand_in_nvml import install\n"
        "install(Path(sys.argv[1])); pynvml.nvmlInit(); print('here', flush=True)\n"
        "pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)); print('there', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", source, path], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("here\n", code)
