"""The GPUs that NVML knows, each with every name it goes by, and the choice of `--devices`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.node.nvml import Answer, Nvml
from gpubalance.node.readings import AT_REST, SENTINELS, memory, memory_v1, take
from gpubalance.node.visibility import match_uuid
from gpubalance.record.node import Device, Process

UNDECODABLE_NAME = "unknown (undecodable name)"
_BUS_ID = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)


def list_devices(nvml: Nvml) -> list[Device] | str:
    """All GPUs of the node in NVML's order, or why they cannot be counted; a lost one keeps its place with reasons
    instead of values.
    """
    count = nvml.ask("DeviceGetCount")
    if count.reason is not None or count.value in SENTINELS:
        return count.reason or "SENTINEL"
    return [read_device(nvml, index) for index in range(count.value)]


def read_device(nvml: Nvml, index: int) -> Device:
    """One GPU; whatever it refuses is null with a reason, and every other field is intact."""
    missing: dict[str, str] = {}

    def ask(key: str, call: str, decode: Callable[[Any], Answer] = Answer) -> Any:
        answer = nvml.ask(call, index)
        if answer.reason is None:
            answer = decode(answer.value)
        if answer.reason is not None:
            missing[key] = answer.reason
        return answer.value

    name = ask("name", "DeviceGetName")
    uuid = ask("uuid", "DeviceGetUUID")
    bus_id = ask("pci_bus_id", "DeviceGetPciInfo", bus_id_of)
    minor = ask("minor_number", "DeviceGetMinorNumber", _size)
    readings, refused = take(AT_REST, nvml, index)
    mig_mode = readings["mig_mode"]
    return Device(
        kind="cuda",
        name=name if name is not None else _name_without(missing["name"]),
        uuid=uuid,
        pci_bus_id=bus_id,
        nvml_index=index,
        minor_number=minor,
        memory_total_bytes=_memory_total(nvml, index, missing),
        mig_enabled=None if mig_mode is None else bool(mig_mode),
        readings=dict(readings),
        missing={**missing, **refused},
    )


def _name_without(reason: str) -> str:
    return UNDECODABLE_NAME if reason == "UNDECODABLE" else f"unknown ({reason})"


def bus_id_of(pci: Any) -> Answer:
    """The bus id in the short form that lspci and CUDA print: 0000:5e:00.0."""
    try:
        match = _BUS_ID.fullmatch(pci.busId)  # the binding decodes fields of structs when they are looked at
    except ValueError:
        match = None
    return Answer(None, "UNDECODABLE") if match is None else Answer(match[1].lower())


def _size(value: int) -> Answer:
    return Answer(None, "SENTINEL") if value in SENTINELS else Answer(value)


def _memory_total(nvml: Nvml, index: int, missing: dict[str, str]) -> int | None:
    """Total memory; the two calls agree on it, so the old one may stand in. Unified parts may say 0: not a size."""
    for read in (memory("total"), memory_v1("total")):
        answer = read(nvml, index)
        if answer.value and answer.value not in SENTINELS:
            return int(answer.value)
    missing["memory_total_bytes"] = answer.reason or "SENTINEL"
    return None


def list_processes(nvml: Nvml, index: int) -> tuple[list[Process], str | None]:
    """Compute processes on a GPU, or the reason why the list is empty.

    Inside a container the pids may belong to the host, or be hidden without any word.
    """
    answer = nvml.ask("DeviceGetComputeRunningProcesses_v3", index)
    if answer.reason is not None:
        return [], answer.reason
    return [Process(nvml_index=index, pid=p.pid, memory_used_bytes=_used(p.usedGpuMemory)) for p in answer.value], None


def _used(value: int | None) -> int | None:
    """The binding turns NVML_VALUE_NOT_AVAILABLE into None; older ones leave 2^64-1."""
    return None if value is None or value in SENTINELS else int(value)


def select_devices(wanted: Sequence[str], visible: Sequence[Device]) -> list[Device]:
    """The devices that `--devices` names: ordinals among the visible ones, or unique beginnings of UUIDs.

    Raises UsageError that names the entry which is unknown, ambiguous or repeated.
    """
    chosen: list[Device] = []
    for entry in wanted:
        device = _select(entry, visible)
        if device in chosen:
            raise UsageError(f"--devices names {entry!r} twice or by two names")
        chosen.append(device)
    return chosen


def _select(entry: str, visible: Sequence[Device]) -> Device:
    shown = ", ".join(f"{d.cuda_ordinal} = {d.uuid}" for d in visible)
    if entry.isdecimal():
        for device in visible:
            if device.cuda_ordinal == int(entry):
                return device
        raise UsageError(f"--devices: there is no visible device {entry}", f"visible are: {shown}")
    found = match_uuid(entry, [device.uuid for device in visible])
    if isinstance(found, str):
        raise UsageError(f"--devices {entry!r}: {found}", f"visible are: {shown}")
    return visible[found]
