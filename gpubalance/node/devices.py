"""The GPUs that NVML knows, each with every name it goes by, and the choice of `--devices`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from gpubalance.errors import UsageError
from gpubalance.node.nvml import Nvml
from gpubalance.node.readings import AT_REST, memory, memory_v1, take
from gpubalance.node.visibility import match_uuid
from gpubalance.record.node import Device, Process

UNDECODABLE_NAME = "unknown (undecodable name)"


def list_devices(nvml: Nvml) -> list[Device]:
    """All GPUs of the node in NVML's order; a lost one keeps its place with reasons instead of values."""
    count = nvml.ask("DeviceGetCount")
    return [read_device(nvml, index) for index in range(count.value or 0)]


def read_device(nvml: Nvml, index: int) -> Device:
    """One GPU; whatever it refuses is null with a reason, and every other field is intact."""
    missing: dict[str, str] = {}

    def ask(key: str, call: str) -> object:
        answer = nvml.ask(call, index)
        if answer.reason is not None:
            missing[key] = answer.reason
        return answer.value

    name = ask("name", "DeviceGetName")
    uuid = ask("uuid", "DeviceGetUUID")
    pci = ask("pci_bus_id", "DeviceGetPciInfo")
    minor = ask("minor_number", "DeviceGetMinorNumber")
    readings, refused = take(AT_REST, nvml, index)
    mig_mode = readings["mig_mode"]
    return Device(
        kind="cuda",
        name=str(name) if name is not None else _name_without(missing["name"]),
        uuid=None if uuid is None else str(uuid),
        pci_bus_id=None if pci is None else _bus_id(pci),
        nvml_index=index,
        minor_number=minor if isinstance(minor, int) else None,
        memory_total_bytes=_memory_total(nvml, index, missing),
        mig_enabled=None if mig_mode is None else bool(mig_mode),
        readings=dict(readings),
        missing={**missing, **refused},
    )


def _name_without(reason: str) -> str:
    return UNDECODABLE_NAME if reason == "UNDECODABLE" else f"unknown ({reason})"


def _bus_id(pci: object) -> str:
    """The bus id in the short form that lspci and CUDA print: 0000:5e:00.0."""
    raw = getattr(pci, "busId", "")
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def _memory_total(nvml: Nvml, index: int, missing: dict[str, str]) -> int | None:
    """Total memory; the two calls agree on it, so the old one may stand in. Unified parts may say 0: not a size."""
    for read in (memory("total"), memory_v1("total")):
        answer = read(nvml, index)
        if answer.value:
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
    sentinel = ctypes.c_ulonglong(-1).value
    return None if value is None or value == sentinel else int(value)


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
