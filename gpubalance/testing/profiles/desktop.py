"""GeForce cards, in a workstation and under WSL, and a slice of a GPU that a hypervisor shares out."""

from __future__ import annotations

from gpubalance.testing.profiles.node import MIB, Gpu, Profile, guest, node, workstation

RTX_4090: Gpu = {
    "Name": "NVIDIA GeForce RTX 4090",
    "VbiosVersion": "95.02.3C.40.B8",
    "Brand": 5,
    "Architecture": 8,
    "VirtualizationMode": 0,
    "MemoryInfo_v2": {"total": 24564 * MIB, "free": 24111 * MIB, "used": 2 * MIB, "reserved": 451 * MIB},
    "MemoryInfo": {"total": 24564 * MIB, "free": 24111 * MIB, "used": 453 * MIB},
    "UtilizationRates": {"gpu": 0, "memory": 0},
    "EnforcedPowerLimit": 450000,
    "PowerManagementLimit": 450000,
    "PowerManagementDefaultLimit": 450000,
    "PowerUsage": 21000,
    "ClockInfo": {"1": 210, "2": 405},
    "MaxClockInfo": {"1": 3105, "2": 10501},
    "MemoryBusWidth": 384,
    "NumGpuCores": 16384,
    "CudaComputeCapability": [8, 9],
    "ComputeMode": 0,
    "PersistenceMode": 0,
    "MaxPcieLinkGeneration": 4,
    "MaxPcieLinkWidth": 16,
    "GpuMaxPcieLinkGeneration": 4,
    "CurrPcieLinkGeneration": 1,
    "CurrPcieLinkWidth": 16,
    "Temperature": {"0": 36},
    "MarginTemperature": {"marginTemperature": 48},
    "CurrentClocksEventReasons": 1,
    "ViolationStatus": {"0": {"violationTime": 0}, "1": {"violationTime": 0}},
    "TotalEnergyConsumption": 4400000,
    "PcieReplayCounter": 0,
    "ComputeRunningProcesses": [],
    "P2PStatus": {"*": 1},
}
"""Published: memory, clocks, bus width, cores, 450 W, and that the driver blocks peer-to-peer (1 is
CHIPSET_NOT_SUPPORTED). An idle card rests at PCIe generation 1. Left out as not supported: ECC (which can be switched
on, but is off as delivered), row remapping, MIG, NVLink, fabric, GPM. Assumed: VBIOS, reserved memory, idle readings.
"""

_NOT_UNDER_WSL = frozenset({
    "UtilizationRates", "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth",
    "GpuMaxPcieLinkGeneration", "PcieReplayCounter", "P2PStatus", "PersistenceMode",
})  # fmt: skip

_VGPU: Gpu = {
    "Name": "GRID A100-40C",
    "Brand": 9,
    "Architecture": 7,
    "VirtualizationMode": 2,
    "MemoryInfo_v2": {"total": 40960 * MIB, "free": 37188 * MIB, "used": 0, "reserved": 3772 * MIB},
    "MemoryInfo": {"total": 40960 * MIB, "free": 37188 * MIB, "used": 3772 * MIB},
    "UtilizationRates": {"gpu": 0, "memory": 0},
    "ClockInfo": {"1": 1410, "2": 1215},
    "MaxClockInfo": {"1": 1410, "2": 1215},
    "MemoryBusWidth": 5120,
    "NumGpuCores": 6912,
    "CudaComputeCapability": [8, 0],
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "EccMode": [1, 1],
    "PersistenceMode": 1,
    "CurrentClocksEventReasons": 0,
    "ComputeRunningProcesses": [],
}
"""A guest's view of a shared A100: memory, utilization and clocks, but neither temperature, power, PCIe link nor any
health counter. That temperature is refused is reported in public; which other calls are, is assumed.
"""


def geforce4090x2() -> Profile:
    """A workstation with two RTX 4090s."""
    return node(RTX_4090, workstation(2))


def wsl() -> Profile:
    """One RTX 4090 under WSL: no utilization, no processes, no PCIe link; memory is fine. That is reported in public;
    which other calls are refused is assumed.
    """
    profile = node(RTX_4090, workstation(1))
    profile["devices"] = [{key: value for key, value in gpu.items() if key not in _NOT_UNDER_WSL}
                          for gpu in profile["devices"]]  # fmt: skip
    return profile


def vgpu() -> Profile:
    """A virtual machine with one slice of an A100."""
    return node(_VGPU, guest(1))
