"""Nodes with something to find: MIG, a card that fell off the bus, missing rights, one fault on each GPU."""

from __future__ import annotations

from gpubalance.testing.profiles.hopper import H100, HGX_BUSES, h100x8, h200_node
from gpubalance.testing.profiles.node import Gpu, Profile, of, two_sockets

_NO_PERMISSION = {"error": 4}
_GPU_IS_LOST = 15

MIG_GPUS = (2, 5)
LOST_GPU = 5

_COUNTERS = (
    "PcieReplayCounter", "RemappedRows", "RepairStatus", "RowRemapperHistogram", "SramEccErrorStatus",
    "TotalEccErrors", "TotalEnergyConsumption", "ViolationStatus",
)  # fmt: skip
_COUNTER_FIELDS = ("161", "162", "163", "230")


def mig() -> Profile:
    """Eight H100s, GPU 2 and 5 cut into slices: no utilization there, memory of the whole is refused, no peer-to-peer
    (status 5, NOT_SUPPORTED, is assumed), no GPM of the whole.
    """
    profile = h100x8()
    for index, gpu in enumerate(profile["devices"]):
        others = set(range(8)) - {index} if index in MIG_GPUS else set(MIG_GPUS)
        gpu["P2PStatus"] = {"*": 0} | {f"{other},{kind}": 5 for other in sorted(others) for kind in range(4)}
    for index in MIG_GPUS:
        gpu = profile["devices"][index]
        gpu |= {"MigMode": [1, 1], "MemoryInfo_v2": _NO_PERMISSION, "MemoryInfo": _NO_PERMISSION}
        del gpu["UtilizationRates"], gpu["Gpm"]
    return profile


def lost_card() -> Profile:
    """Eight H100s, GPU 5 fell off the bus: still counted, and every call about it says so."""
    calls = ("*", "nvmlDeviceGetHandleByIndex_v2")
    return h100x8() | {"faults": [{"call": call, "device": LOST_GPU, "error": _GPU_IS_LOST} for call in calls]}


def no_rights() -> Profile:
    """Two H200s in a container that may not read counters."""
    profile = h200_node()
    for gpu in profile["devices"]:
        gpu.update(dict.fromkeys(_COUNTERS, _NO_PERMISSION))
        gpu["FieldValues"].update(dict.fromkeys(_COUNTER_FIELDS, _NO_PERMISSION))
    return profile


def sick() -> Profile:
    """Eight H100s: GPU 0 had uncorrected errors, 1 waits for a row remap, 2 failed one, 3 has 4 of 18 links down, 4 is
    held by the power brake, 5 has a low power limit, 6 and 7 are healthy.
    """
    faults: list[Gpu] = [
        {"TotalEccErrors": {"0,0": 12, "1,0": 3, "0,1": 40, "1,1": 3}},
        {
            "RemappedRows": [0, 1, 1, 0],
            "FieldValues": {**H100["FieldValues"], "230": {"type": "unsigned_int", "value": 1}},
        },
        {
            "RemappedRows": [2, 8, 0, 1],
            "RowRemapperHistogram": {"max": 2559, "high": 0, "partial": 0, "low": 0, "none": 1},
        },
        {"NvLinkState": {str(link): int(link not in (4, 5, 10, 11)) for link in range(18)}},
        {"CurrentClocksEventReasons": 0x8 | 0x80, "ClockInfo": {"1": 990, "2": 2619}},
        {"EnforcedPowerLimit": 500000, "PowerManagementLimit": 500000},
        {},
        {},
    ]
    return of([{**H100, **fault} for fault in faults], two_sockets(*HGX_BUSES))
