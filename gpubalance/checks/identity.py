"""How a rank and its device are called in findings: by every name, so that nobody pulls the wrong card."""

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
