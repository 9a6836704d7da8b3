"""A100."""

from __future__ import annotations

from gpubalance.testing.profiles.hopper import H200
from gpubalance.testing.profiles.node import (
    ACROSS,
    MIB,
    MULTIPLE,
    NUMA_NODE,
    Board,
    Gpu,
    Profile,
    node,
    nvlinks,
    words,
)

_LATER = frozenset({"Gpm", "GpuFabricInfoV", "SramEccErrorStatus", "RepairStatus", "MarginTemperature"})
"""What this generation has not: assumed for all but GPM and the fabric, which public outputs show as absent."""

A100: Gpu = {
    **{key: value for key, value in H200.items() if key not in _LATER},
    "Name": "NVIDIA A100-SXM4-80GB",
    "VbiosVersion": "92.00.45.00.03",
    "Architecture": 7,
    "VirtualizationMode": 0,
    "MemoryInfo_v2": {
        "total": 81920 * MIB,
        "free": 81221 * MIB,
        "used": 0,
        "reserved": 699 * MIB,
    },
    "MemoryInfo": {"total": 81920 * MIB, "free": 81221 * MIB, "used": 699 * MIB},
    "EnforcedPowerLimit": 400000,
    "PowerManagementLimit": 400000,
    "PowerManagementDefaultLimit": 400000,
    "PowerUsage": 61000,
    "ClockInfo": {"1": 210, "2": 1593},
    "MaxClockInfo": {"1": 1410, "2": 1593},
    "ApplicationsClock": {"1": 1275, "2": 1593},
    "MemoryBusWidth": 5120,
    "NumGpuCores": 6912,
    "CudaComputeCapability": [8, 0],
    "MaxPcieLinkGeneration": 4,
    "GpuMaxPcieLinkGeneration": 4,
    "CurrPcieLinkGeneration": 4,
    "TemperatureThreshold": {"0": 92, "1": 89, "3": 85},
    "PcieReplayCounter": 0,
    "RowRemapperHistogram": {"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0},
    "FieldValues": {
        **{key: H200["FieldValues"][key] for key in ("82", "161", "162", "163")},
        "91": {"type": "unsigned_int", "value": 12},
        "164": {"type": "unsigned_int", "value": 25000},
    },
    **nvlinks(12, version=4),
}
"""Published: memory, clocks (the application clock is 1275 by default), bus width, cores, 400 W, twelve links of
25 GB/s, 640 banks, thresholds. Assumed: reserved memory, VBIOS, idle readings.
"""


def _level(one: int, other: int) -> int:
    if one // 2 == other // 2:
        return MULTIPLE
    return NUMA_NODE if one // 4 == other // 4 else ACROSS


def _cpus(index: int) -> list[int]:
    first = 64 * (index // 4)
    return words((first, first + 63), (first + 128, first + 191))


def a100x8() -> Profile:
    """A whole server with eight A100s, two to a group of PCIe switches, on two sockets of 64 cores."""
    return node(A100, Board((0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD), _level, _cpus))
