"""H200 and H100."""

from __future__ import annotations

from typing import Any

from gpubalance.testing.profiles.node import MIB, Gpu, Profile, guest, node, nvlinks, two_sockets

HGX_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
"""Where eight SXM GPUs of a common server sit."""

H200: Gpu = {
    "Name": "NVIDIA H200",
    "UUID": "GPU-11111111-aaaa-bbbb-cccc-000000000000",
    "MinorNumber": 0,
    "PciInfo_v3": {"busId": "00000000:00:06.0", "domain": 0, "bus": 0, "device": 6},
    "VbiosVersion": "96.00.A5.00.1A",
    "Brand": 14,
    "Architecture": 9,
    "VirtualizationMode": 1,
    "MemoryInfo_v2": {"total": 150754820096, "free": 150109880320, "used": 0, "reserved": 644939776},
    "MemoryInfo": {"total": 150754820096, "free": 150109880320, "used": 644939776},
    "UtilizationRates": {"gpu": 0, "memory": 0},
    "EnforcedPowerLimit": 700000,
    "PowerManagementLimit": 700000,
    "PowerManagementDefaultLimit": 700000,
    "PowerUsage": 79408,
    "ClockInfo": {"1": 345, "2": 3201},
    "MaxClockInfo": {"1": 1980, "2": 3201},
    "ApplicationsClock": {"1": 1980, "2": 3201},
    "MemoryBusWidth": 6016,
    "NumGpuCores": 16896,
    "CudaComputeCapability": [9, 0],
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "EccMode": [1, 1],
    "PersistenceMode": 1,
    "MaxPcieLinkGeneration": 5,
    "MaxPcieLinkWidth": 16,
    "GpuMaxPcieLinkGeneration": 5,
    "CurrPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "Temperature": {"0": 35},
    "MarginTemperature": {"marginTemperature": 52},
    "CurrentClocksEventReasons": 1,
    "ViolationStatus": {
        "0": {"referenceTime": 0, "violationTime": 0},
        "1": {"referenceTime": 0, "violationTime": 0},
    },
    "TotalEnergyConsumption": 2570179,
    "TotalEccErrors": {"0,0": 0, "1,0": 0, "0,1": 0, "1,1": 0},
    "SramEccErrorStatus": {
        "aggregateUncParity": 0,
        "aggregateUncSecDed": 0,
        "aggregateCor": 0,
        "bThresholdExceeded": 0,
    },
    "PcieReplayCounter": 1,
    "RemappedRows": [0, 0, 0, 0],
    "RowRemapperHistogram": {"max": 3072, "high": 0, "partial": 0, "low": 0, "none": 0},
    "RepairStatus": {"bChannelRepairPending": 0, "bTpcRepairPending": 0},
    "ValidateInforom": 0,
    "GpuFabricInfoV": {"state": 3, "status": 0, "healthMask": 0},
    "ComputeRunningProcesses": [],
    "FieldValues": {
        "82": {"type": "unsigned_int", "value": 37},
        "91": {"type": "unsigned_int", "value": 18},
        "161": 0,
        "162": 0,
        "163": 0,
        "164": {"type": "unsigned_int", "value": 26562},
        "230": {"type": "unsigned_int", "value": 0},
    },
    "Gpm": {"2": 70.0, "5": 68.0, "10": 13.2, "60": 0.0, "61": 0.0},
    **nvlinks(18, version=6),
}
"""Read off a guest with two of them (driver 580.159.04). The margin follows from 46 C at 41 C; InfoROM and the type of
field 230 were not recorded and are assumed; what the driver refused or nobody asked is left out: fan, retired pages,
NUMA node, slowdown temperature, failed link recoveries.
"""

H100: Gpu = {
    **H200,
    "Name": "NVIDIA H100 80GB HBM3",
    "VbiosVersion": "96.00.89.00.01",
    "VirtualizationMode": 0,
    "MemoryInfo_v2": {
        "total": 81559 * MIB,
        "free": 81079 * MIB,
        "used": 0,
        "reserved": 480 * MIB,
    },
    "MemoryInfo": {"total": 81559 * MIB, "free": 81079 * MIB, "used": 480 * MIB},
    "PowerUsage": 71000,
    "ClockInfo": {"1": 345, "2": 2619},
    "MaxClockInfo": {"1": 1980, "2": 2619},
    "ApplicationsClock": {"1": 1980, "2": 2619},
    "MemoryBusWidth": 5120,
    "PcieReplayCounter": 0,
    "RowRemapperHistogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
}
"""Memory, clocks, bus width, power limit and links as published for the SXM5 board; reserved memory, VBIOS, banks and
everything that an idle GPU happens to read are assumed.
"""


def h200_node(count: int = 2) -> dict[str, Any]:
    """A virtual machine with so many H200s, each with its own UUID and bus id."""
    return node(H200, guest(count))


def h200x8() -> Profile:
    """A whole server with eight H200s: the GPUs as they were read in a guest, the board as servers are built."""
    return node({**H200, "VirtualizationMode": 0}, two_sockets(*HGX_BUSES))


def h100x8() -> Profile:
    """A whole server with eight H100s."""
    return node(H100, two_sockets(*HGX_BUSES))
