"""GPUs with all their names, their processes, and the choice of --devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.node.devices import list_devices, list_processes, read_device, select_devices
from gpubalance.node.nvml import Nvml
from gpubalance.record.node import Process
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.runs import make_gpu
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]


def node_with(**first: Any) -> dict[str, Any]:
    """Two H200s; the values replace what the first one answers."""
    profile = h200_node()
    profile["devices"][0] |= first
    return profile


def test_a_gpu_has_all_its_names_and_sizes(opened: Opened) -> None:
    nvml, _ = opened(node_with(MinorNumber=7, PciInfo_v3={"busId": "00000001:5E:00.1"}, MigMode=[1, 1]))
    device = read_device(nvml, 0)
    assert device.kind == "cuda"
    assert device.name == "NVIDIA H200"
    assert device.uuid == "GPU-00000001-aaaa-bbbb-cccc-000000000000"
    assert device.pci_bus_id == "0001:5e:00.1"
    assert (device.nvml_index, device.minor_number, device.cuda_ordinal) == (0, 7, None)
    assert device.memory_total_bytes == 150754820096
    assert device.mig_enabled is True
    assert device.missing == {}


def test_a_bus_id_with_a_short_domain_is_taken_as_it_is(opened: Opened) -> None:
    nvml, _ = opened(node_with(PciInfo_v3={"busId": "0000:5E:00.0"}))
    assert read_device(nvml, 0).pci_bus_id == "0000:5e:00.0"


@pytest.mark.parametrize("text", [b"\xf8\x92\xff", "", "nonsense", "00000000:06:00"])
def test_a_bus_id_that_is_none_is_null_with_a_reason(opened: Opened, text: str | bytes) -> None:
    nvml, _ = opened(node_with(PciInfo_v3={"busId": text}))
    device = read_device(nvml, 0)
    assert device.pci_bus_id is None
    assert device.missing == {"pci_bus_id": "UNDECODABLE"}
    assert device.uuid == "GPU-00000001-aaaa-bbbb-cccc-000000000000"


def test_gpus_are_listed_in_the_order_of_nvml(opened: Opened) -> None:
    nvml, _ = opened(h200_node(8))
    devices = list_devices(nvml)
    assert not isinstance(devices, str)
    assert [device.nvml_index for device in devices] == list(range(8))
    assert len({device.uuid for device in devices}) == 8


def test_a_node_without_gpus_lists_none(opened: Opened) -> None:
    nvml, _ = opened(h200_node(0))
    assert list_devices(nvml) == []


def test_gpus_that_cannot_be_counted_are_a_reason_and_not_an_empty_list(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(), "faults": [{"call": "nvmlDeviceGetCount_v2", "error": 999}]})
    assert list_devices(nvml) == "UNKNOWN"


def test_a_name_that_is_not_text_is_said_to_be_undecodable_and_all_else_is_intact(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    healthy = read_device(nvml, 0)
    nvml, _ = opened({**h200_node(), "faults": [{"call": "nvmlDeviceGetName", "bytes": "f892ff"}]})
    device = read_device(nvml, 0)
    assert device.name == "unknown (undecodable name)"
    assert device.missing == {"name": "UNDECODABLE"}
    assert device.model_dump(exclude={"name", "missing"}) == healthy.model_dump(exclude={"name", "missing"})


def test_a_lost_gpu_keeps_its_place_with_reasons_instead_of_values(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(3), "faults": [{"call": "*", "device": 1, "error": 15}]})
    devices = list_devices(nvml)
    assert not isinstance(devices, str)
    lost = devices[1]
    assert lost.name == "unknown (GPU_IS_LOST)"
    assert (lost.uuid, lost.pci_bus_id, lost.memory_total_bytes, lost.mig_enabled) == (None, None, None, None)
    assert set(lost.readings.values()) == {None}
    assert set(lost.missing) == {"name", "uuid", "pci_bus_id", "minor_number", "memory_total_bytes", *lost.readings}
    assert set(lost.missing.values()) == {"GPU_IS_LOST"}
    assert (devices[0].missing, devices[2].missing) == ({}, {})
    assert [device.nvml_index for device in devices] == [0, 1, 2]


def test_the_total_comes_from_the_old_call_where_the_driver_lacks_the_new_one(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(), "absent": ["nvmlDeviceGetMemoryInfo_v2"]})
    device = read_device(nvml, 0)
    assert device.memory_total_bytes == 150754820096
    assert set(device.missing) == {
        "memory_used_before_bytes",
        "memory_free_before_bytes",
        "memory_reserved_bytes",
    }


def test_used_memory_never_comes_from_the_old_call_which_counts_reserved_memory(opened: Opened) -> None:
    nvml, _ = opened({**node_with(MemoryInfo_v2=None)})
    assert read_device(nvml, 0).readings["memory_used_before_bytes"] is None


@pytest.mark.parametrize("total", [0, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1])
def test_a_total_that_is_no_size_is_null_with_a_reason(opened: Opened, total: int) -> None:
    nonsense = {"total": total, "free": 0, "used": 0}
    nvml, _ = opened(node_with(MemoryInfo_v2={**nonsense, "reserved": 0}, MemoryInfo=nonsense))
    device = read_device(nvml, 0)
    assert device.memory_total_bytes is None
    assert device.missing["memory_total_bytes"] == "SENTINEL"


def test_memory_refused_by_both_calls_has_the_drivers_reason(opened: Opened) -> None:
    nvml, _ = opened(node_with(Name="NVIDIA GB10", MemoryInfo=None, MemoryInfo_v2=None))
    device = read_device(nvml, 0)
    assert device.name == "NVIDIA GB10"
    assert device.memory_total_bytes is None
    assert device.missing["memory_total_bytes"] == "NOT_SUPPORTED"


@pytest.mark.parametrize("number", [0xFFFFFFFF, 2**64 - 1])
def test_a_minor_number_that_stands_for_none_is_null_with_a_reason(opened: Opened, number: int) -> None:
    nvml, _ = opened(node_with(MinorNumber=number))
    device = read_device(nvml, 0)
    assert device.minor_number is None
    assert device.missing == {"minor_number": "SENTINEL"}


def test_mig_that_is_not_offered_is_unknown_and_not_off(opened: Opened) -> None:
    nvml, _ = opened(node_with(MigMode=None))
    device = read_device(nvml, 0)
    assert device.mig_enabled is None
    assert device.missing == {"mig_mode": "NOT_SUPPORTED"}


def test_processes_are_listed_with_their_memory(opened: Opened) -> None:
    listed = [{"pid": 4711, "usedGpuMemory": 3 * 2**30}, {"pid": 4712, "usedGpuMemory": 0}]
    nvml, _ = opened(node_with(ComputeRunningProcesses=listed))
    assert list_processes(nvml, 0) == (
        [
            Process(nvml_index=0, pid=4711, memory_used_bytes=3221225472),
            Process(nvml_index=0, pid=4712, memory_used_bytes=0),
        ],
        None,
    )
    assert list_processes(nvml, 1) == ([], None)


@pytest.mark.parametrize("number", [0xFFFFFFFF, 2**63 - 1, 2**64 - 1])
def test_memory_of_a_process_that_nvml_does_not_know_is_null(opened: Opened, number: int) -> None:
    nvml, _ = opened(node_with(ComputeRunningProcesses=[{"pid": 4711, "usedGpuMemory": number}]))
    assert list_processes(nvml, 0)[0] == [Process(nvml_index=0, pid=4711, memory_used_bytes=None)]


@pytest.mark.parametrize(
    ("code", "reason"), [(3, "NOT_SUPPORTED"), (4, "NO_PERMISSION"), (15, "GPU_IS_LOST"), (999, "UNKNOWN")]
)
def test_a_refused_list_of_processes_is_empty_with_a_reason(opened: Opened, code: int, reason: str) -> None:
    fault = {"call": "nvmlDeviceGetComputeRunningProcesses_v3", "error": code}
    nvml, _ = opened({**h200_node(), "faults": [fault]})
    assert list_processes(nvml, 0) == ([], reason)


VISIBLE = [make_gpu(index).model_copy(update={"nvml_index": index + 4}) for index in range(3)]
"""cuda:0 is nvml:4, and so on."""


@pytest.mark.parametrize(
    ("wanted", "ordinals"),
    [
        (["0"], [0]),
        (["2", "0"], [2, 0]),
        (["GPU-00000002"], [1]),
        (["GPU-00000003-aaaa", "1"], [2, 1]),
        ([VISIBLE[0].uuid], [0]),
        ([], []),
    ],
)
def test_devices_are_chosen_by_ordinal_or_by_the_beginning_of_a_uuid_in_the_order_asked(
    wanted: list[str], ordinals: list[int]
) -> None:
    assert [device.cuda_ordinal for device in select_devices(wanted, VISIBLE)] == ordinals


@pytest.mark.parametrize(
    ("wanted", "entry", "why"),
    [
        (["3"], "3", "there is no visible device"),
        (["0", "4"], "4", "there is no visible device"),
        (["GPU-0000"], "GPU-0000", "ambiguous: 3 GPUs"),
        (["GPU-ffff"], "GPU-ffff", "no GPU has a UUID that begins so"),
        (["all"], "all", "not a GPU UUID"),
        (["-1"], "-1", "not a GPU UUID"),
        (["0x1"], "0x1", "not a GPU UUID"),
        ([""], "''", "not a GPU UUID"),
        (["1", "1"], "1", "twice"),
        (["0", "GPU-00000001"], "GPU-00000001", "twice"),
    ],
)
def test_an_entry_that_names_no_single_device_is_wrong_use_and_is_named(
    wanted: list[str], entry: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        select_devices(wanted, VISIBLE)
    assert entry in caught.value.message
    assert why in caught.value.message
    assert caught.value.exit_code == 2


def test_a_wrong_entry_is_answered_with_what_is_visible() -> None:
    with pytest.raises(UsageError) as caught:
        select_devices(["9"], VISIBLE[:1])
    assert caught.value.next_step == "visible are: 0 = GPU-00000001-aaaa-bbbb-cccc-000000000000"


@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(["0", "1", "GPU-00000001", "GPU-"])), max_size=4))
@settings(deadline=None)
def test_any_choice_gives_as_many_distinct_devices_as_entries_or_is_wrong_use(wanted: list[str]) -> None:
    try:
        chosen = select_devices(wanted, VISIBLE)
    except UsageError:
        return
    assert len({device.uuid for device in chosen}) == len(wanted)
