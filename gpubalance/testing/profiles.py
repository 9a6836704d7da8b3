"""Profiles of the stand-in NVML. The H200's values were read off a node with two of them (driver 580.159.04)."""

from __future__ import annotations

import copy
from typing import Any

H200: dict[str, Any] = {
    "Name": "NVIDIA H200",
    "UUID": "GPU-11111111-aaaa-bbbb-cccc-000000000000",
    "MinorNumber": 0,
    "PciInfo_v3": {"busId": "00000000:00:06.0", "domain": 0, "bus": 0, "device": 6},
    "MemoryInfo_v2": {"total": 150754820096, "free": 150109880320, "used": 0, "reserved": 644939776},
    "MemoryInfo": {"total": 150754820096, "free": 150109880320, "used": 644939776},
    "UtilizationRates": {"gpu": 0, "memory": 0},
    "EnforcedPowerLimit": 700000,
    "PowerManagementDefaultLimit": 700000,
    "PowerUsage": 79408,
    "ClockInfo": {"1": 345, "2": 3201},
    "MaxClockInfo": {"1": 1980, "2": 3201},
    "MemoryBusWidth": 6016,
    "NumGpuCores": 16896,
    "CudaComputeCapability": [9, 0],
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "EccMode": [1, 1],
    "PersistenceMode": 1,
    "MaxPcieLinkGeneration": 5,
    "MaxPcieLinkWidth": 16,
    "CurrPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "Temperature": {"0": 35},
    "CurrentClocksEventReasons": 1,
    "ViolationStatus": {
        "0": {"referenceTime": 0, "violationTime": 0},
        "1": {"referenceTime": 0, "violationTime": 0},
    },
    "TotalEnergyConsumption": 2570179,
    "TotalEccErrors": {"0,0": 0, "1,0": 0},
    "PcieReplayCounter": 1,
    "RemappedRows": [0, 0, 0, 0],
    "ComputeRunningProcesses": [],
    "FieldValues": {"91": 18, "164": 26562, "161": 0, "162": 0, "163": 0},
    "Gpm": {"2": 70.0, "5": 68.0, "10": 13.2, "60": 0.0, "61": 0.0},
}

SYSTEM = {"DriverVersion": "580.159.04", "NVMLVersion": "13.580.159.04", "CudaDriverVersion": 13000}


def h200_node(count: int = 2) -> dict[str, Any]:
    """A node with so many H200s, each with its own UUID and bus id."""
    devices = [copy.deepcopy(H200) for _ in range(count)]
    for index, device in enumerate(devices):
        device["UUID"] = f"GPU-{index + 1:08x}-aaaa-bbbb-cccc-{index:012d}"
        device["MinorNumber"] = index
        device["PciInfo_v3"] |= {"busId": f"00000000:{index + 6:02x}:00.0", "bus": index + 6, "device": 0}
    return {"system": dict(SYSTEM), "devices": devices, "absent": [], "faults": []}
