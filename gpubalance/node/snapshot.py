"""The node as it is before anything runs. Runs inside the sensor process, never in the parent: a driver that hangs
must not take the parent with it.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

import psutil

from gpubalance.node import host
from gpubalance.node.devices import list_devices, list_processes
from gpubalance.node.nvml import Nvml
from gpubalance.node.pci import numa_node_of
from gpubalance.node.visibility import VARIABLE, read_visibility
from gpubalance.node.ways import with_ways
from gpubalance.record.node import Device, DroppedEntry, Node, Process, Visibility

PACKAGES = ("torch", "nvidia-ml-py", "pynvml", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


def take_snapshot(nvml: Nvml | str, cpu_busy: float | None, *, ways: bool = False) -> Node:
    """Everything that can be known without a CUDA context. `nvml` is an open NVML or why there is none. `ways`: also
    how GPUs are joined, which takes a few calls for each pair and each NVLink.
    """
    quota = host.cgroup_quota()
    cores = host.usable_cores()
    memory = psutil.virtual_memory()
    environment = dict(os.environ)
    return Node(
        hostname=socket.gethostname(),
        kernel=platform.release(),
        gpu_evidence=host.gpu_evidence(),
        cpu_model=host.cpu_model(),
        cpu_count=os.cpu_count() or 1,
        cpu_effective=host.effective_cpus(len(cores), quota),
        cpu_cores=cores,
        cpu_busy_before=cpu_busy,
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        shm_free_bytes=host.shm_free_bytes(),
        container=host.container_kind(),
        environment=host.steering_variables(environment),
        packages=host.package_versions(PACKAGES),
        **_gpu_part(nvml, environment.get(VARIABLE), ways=ways),
    )


def _gpu_part(nvml: Nvml | str, visible_devices: str | None, *, ways: bool) -> dict[str, object]:
    if isinstance(nvml, str):
        return {"nvml_error": nvml}
    devices = list_devices(nvml)
    if isinstance(devices, str):
        return {"nvml_error": devices}
    devices = with_ways(nvml, devices) if ways else devices
    missing: dict[str, str] = {}
    visible = read_visibility(visible_devices, [device.uuid for device in devices])
    ordinals = {index: ordinal for ordinal, index in enumerate(visible.indices)}
    return {
        "driver_version": _version(nvml, "driver_version", "SystemGetDriverVersion", missing),
        "nvml_version": _version(nvml, "nvml_version", "SystemGetNVMLVersion", missing),
        "cuda_driver_version": _cuda_version(nvml, missing),
        "devices": [_with_ordinal(device, ordinals.get(index)) for index, device in enumerate(devices)],
        "visibility": Visibility(
            asked=visible_devices,
            visible=list(visible.indices),
            dropped=[DroppedEntry(entry=d.entry, reason=d.reason) for d in visible.dropped],
        ),
        "processes": _processes(nvml, len(devices), missing),
        "missing": missing,
    }


def _processes(nvml: Nvml, count: int, missing: dict[str, str]) -> list[Process]:
    lists = [list_processes(nvml, index) for index in range(count)]
    missing.update({f"processes on NVML index {index}": why for index, (_, why) in enumerate(lists) if why})
    return [_named(process) for found, _ in lists for process in found]


def _with_ordinal(device: Device, ordinal: int | None) -> Device:
    node = numa_node_of(Path("/"), device.pci_bus_id)
    near = {} if node is None else {"numa_node": node}  # the bus of a machine with one node does not say any
    return device.model_copy(update={"cuda_ordinal": ordinal, "readings": {**device.readings, **near}})


def _named(process: Process) -> Process:
    name, owner = host.process_owner(process.pid)
    return process.model_copy(update={"name": name, "owner": owner})


def _version(nvml: Nvml, key: str, call: str, missing: dict[str, str]) -> Any:
    answer = nvml.ask(call)
    if answer.reason is not None:
        missing[key] = answer.reason
    return answer.value


def _cuda_version(nvml: Nvml, missing: dict[str, str]) -> str | None:
    """13000 is CUDA 13.0 (nvml.h: NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR)."""
    value = _version(nvml, "cuda_driver_version", "SystemGetCudaDriverVersion", missing)
    if value is not None and value < 0:  # the binding reads 0xFFFFFFFF as signed
        missing["cuda_driver_version"] = "SENTINEL"
        return None
    return None if value is None else f"{value // 1000}.{value % 1000 // 10}"
