"""How ranks and devices are called in findings: short in sentences, by every name in `subject`, so that nobody pulls
the wrong card.
"""

from __future__ import annotations

from gpubalance.record.node import Device
from gpubalance.record.run import Run


def device_label(device: Device) -> str:
    """cuda:3 nvml:3 GPU-1a2b... 0000:5e:00.0, or the cores of a CPU slot."""
    if device.kind == "cpu":
        return f"CPU core {','.join(str(core) for core in device.cpu_cores)}"
    names = [f"cuda:{device.cuda_ordinal}", f"nvml:{device.nvml_index}", device.uuid, device.pci_bus_id]
    return " ".join(name for name in names if name)


def rank_label(run: Run, rank: int, device: int) -> str:
    """Rank and device together."""
    return f"rank {rank} on {device_label(run.plan.devices[device])}"


def labels_of(run: Run, *devices: int) -> str:
    """All names of these devices of the plan."""
    return "; ".join(device_label(run.plan.devices[device]) for device in devices)


def device_name(device: Device) -> str:
    """GPU 3, by NVML's count as nvidia-smi has it, else cuda:3; CPU core 3."""
    if device.kind == "cpu":
        return device_label(device)
    return f"cuda:{device.cuda_ordinal}" if device.nvml_index is None else f"GPU {device.nvml_index}"


def name_of(run: Run, device: int) -> str:
    """The same for a device of the plan."""
    return device_name(run.plan.devices[device])
