"""B200 and GB10."""

from __future__ import annotations

from gpubalance.testing.profiles.hopper import H200, HGX_BUSES
from gpubalance.testing.profiles.node import MIB, Board, Gpu, Profile, node, nvlinks, two_sockets, words

B200: Gpu = {
    **H200,
    "Name": "NVIDIA B200",
    "VbiosVersion": "97.00.82.00.16",
    "Architecture": 10,
    "VirtualizationMode": 0,
    "MemoryInfo_v2": {
        "total": 183359 * MIB,
        "free": 182643 * MIB,
        "used": 0,
        "reserved": 716 * MIB,
    },
    "MemoryInfo": {"total": 183359 * MIB, "free": 182643 * MIB, "used": 716 * MIB},
    "EnforcedPowerLimit": 1000000,
    "PowerManagementLimit": 1000000,
    "PowerManagementDefaultLimit": 1000000,
    "PowerUsage": 142000,
    "ClockInfo": {"1": 120, "2": 3996},
    "MaxClockInfo": {"1": 1965, "2": 3996},
    "ApplicationsClock": {"1": 1965, "2": 3996},
    "MemoryBusWidth": 8192,
    "NumGpuCores": 18944,
    "CudaComputeCapability": [10, 0],
    "PcieReplayCounter": 0,
    "RowRemapperHistogram": {"max": 4096, "high": 0, "partial": 0, "low": 0, "none": 0},
    "FieldValues": {**H200["FieldValues"], "164": {"type": "unsigned_int", "value": 53125}, "214": 0},
    **nvlinks(18, version=7),
}
"""Published: memory, clocks, bus width, cores, 1000 W, 18 links of 53.125 GB/s raw. Assumed: reserved memory, VBIOS,
banks, idle readings, and that failed link recoveries (field 214) are counted from this generation on.
"""

GB10: Gpu = {
    "Name": "NVIDIA GB10",
    "VbiosVersion": "9A.0B.06.00.00",
    "Brand": 14,
    "Architecture": 10,
    "VirtualizationMode": 0,
    "UtilizationRates": {"gpu": 0, "memory": 0},
    "PowerUsage": 4500,
    "ClockInfo": {"1": 208},
    "MaxClockInfo": {"1": 3003},
    "NumGpuCores": 6144,
    "CudaComputeCapability": [12, 1],
    "ComputeMode": 0,
    "PersistenceMode": 1,
    "Temperature": {"0": 38},
    "CurrentClocksEventReasons": 1,
    "ViolationStatus": {"0": {"violationTime": 0}, "1": {"violationTime": 0}},
    "TotalEnergyConsumption": 812000,
    "ComputeRunningProcesses": [],
    "CurrPcieLinkGeneration": 1,
    "CurrPcieLinkWidth": 1,
    "MaxPcieLinkGeneration": 1,
    "MaxPcieLinkWidth": 1,
}
"""One memory for CPU and GPU: both memory calls are refused, and there is no memory clock, ECC, MIG, NVLink or power
limit. Reported in public: the refusals, name, capability and cores; the rest is assumed.
"""


def b200x8() -> Profile:
    """A whole server with eight B200s."""
    return node(B200, two_sockets(*HGX_BUSES))


def gb10() -> Profile:
    """A desktop with one GB10 and twenty cores."""
    return node(GB10, Board((1,), lambda _one, _other: 0, lambda _index: words((0, 19))))
