"""Everything that a GPU tells about its health and its links. Read once, in a process of its own for each GPU, because
any of these calls can hang on a sick card.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from gpubalance.node.nvml import Answer, Nvml
from gpubalance.node.readings import (
    COUNTERS,
    MAX_LINKS,
    SENTINELS,
    TICK,
    Reading,
    call_reader,
    constant_call_reader,
    field_reader,
    link_count,
    take,
)

Values = dict[str, Any]

TOPOLOGY = {0: "INTERNAL", 10: "SINGLE", 20: "MULTIPLE", 30: "HOSTBRIDGE", 40: "NODE", 50: "SYSTEM"}
"""nvml.h, nvmlGpuTopologyLevel_t: one board, one PCIe switch, several switches, host bridge, NUMA node, across."""

P2P_STATUS = {
    0: "OK",
    1: "CHIPSET_NOT_SUPPORTED",
    2: "GPU_NOT_SUPPORTED",
    3: "IOH_TOPOLOGY_NOT_SUPPORTED",
    4: "DISABLED_BY_REGKEY",
    5: "NOT_SUPPORTED",
    6: "UNKNOWN",
}
P2P_KINDS = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
"""nvmlGpuP2PCapsIndex_t as numbers: the binding's own constant for read is a tuple by a slip."""

FABRIC_STATES = {0: "NOT_SUPPORTED", 1: "NOT_STARTED", 2: "IN_PROGRESS", 3: "COMPLETED"}

DETAILS = (
    Reading("temperature_slowdown_c", constant_call_reader(
        "DeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"), 1000),
    Reading("memory_temperature_c", field_reader("NVML_FI_DEV_MEMORY_TEMP"), 1000),
    Reading("power_set_limit_w", call_reader("DeviceGetPowerManagementLimit", pick=lambda mw: mw / 1000), 100_000),
    Reading("application_clock_mhz", constant_call_reader("DeviceGetApplicationsClock", "NVML_CLOCK_SM"), 100_000),
    Reading("pcie_generation_gpu_max", call_reader("DeviceGetGpuMaxPcieLinkGeneration"), 100),
    Reading("ecc_corrected_aggregate", constant_call_reader(
        "DeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC")),
    Reading("ecc_uncorrected_aggregate", constant_call_reader(
        "DeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC")),
    Reading("rows_remapped_correctable", call_reader("DeviceGetRemappedRows", pick=lambda rows: rows[0])),
    Reading("rows_remap_pending", call_reader("DeviceGetRemappedRows", pick=lambda rows: rows[2]), 1),
    Reading("rows_remap_failed", call_reader("DeviceGetRemappedRows", pick=lambda rows: rows[3]), 1),
    Reading("retired_pages_single_bit", constant_call_reader(
        "DeviceGetRetiredPages", "NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS", pick=len)),
    Reading("retired_pages_double_bit", constant_call_reader(
        "DeviceGetRetiredPages", "NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR", pick=len)),
    Reading("retired_pages_pending", call_reader("DeviceGetRetiredPagesPendingStatus"), 1),
    Reading("recovery_action", field_reader("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"), 100),
    Reading("nvlink_recovery_failed", field_reader("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS")),
    Reading("numa_node", call_reader("DeviceGetNumaNodeId"), 10_000),
    Reading("virtualization_mode", call_reader("DeviceGetVirtualizationMode"), 100),
    Reading("brand", call_reader("DeviceGetBrand"), 1000),
    Reading("architecture", call_reader("DeviceGetArchitecture"), 1000),
)  # fmt: skip
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 0 none, 1 reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover the
IMEX domain, 6 bus reset, 7 system reboot. Virtualization: 0 bare metal, 1 passthrough, 2 vGPU, 3 and 4 vGPU hosts."""


def read_values(nvml: Nvml, index: int) -> tuple[Values, dict[str, str]]:
    """Readings of one GPU at rest, its counters, and its health; null with a reason where there is none."""
    values: Values = {}
    missing: dict[str, str] = {}
    for table in (TICK, COUNTERS, DETAILS):
        found, refused = take(table, nvml, index)
        values.update(found)
        missing.update(refused)
    for key, answer in _special(nvml, index):
        values[key] = answer.value
        if answer.reason is not None:
            missing[key] = answer.reason
    return values, missing


def _special(nvml: Nvml, index: int) -> Iterator[tuple[str, Answer]]:
    """What does not fit the table: strings, signed numbers, and structs with several parts."""
    yield "vbios_version", nvml.ask("DeviceGetVbiosVersion", index)
    yield "temperature_margin_c", _signed(nvml.ask("DeviceGetMarginTemperature", index))
    yield "inforom_valid", _valid(nvml.ask("DeviceValidateInforom", index))
    yield from _parts(nvml.ask("DeviceGetRepairStatus", index), {
        "channel_repair_pending": lambda status: _checked(Answer(int(status[0]))),
        "tpc_repair_pending": lambda status: _checked(Answer(int(status[1]))),
    })  # fmt: skip
    yield from _parts(nvml.ask("DeviceGetRowRemapperHistogram", index), {
        f"row_banks_{name}": _attribute(name) for name in ("max", "high", "partial", "low", "none")
    })  # fmt: skip
    yield from _parts(_filled(nvml, index, "DeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t"), {
        "sram_uncorrected_aggregate": _sum("aggregateUncParity", "aggregateUncSecDed"),
        "sram_corrected_aggregate": _attribute("aggregateCor"),
        "sram_threshold_exceeded": _attribute("bThresholdExceeded"),
    })  # fmt: skip
    yield from _parts(_filled(nvml, index, "DeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"), {
        "fabric_state": _named("state", FABRIC_STATES),
        "fabric_status": _attribute("status"),
        "fabric_health_mask": _attribute("healthMask"),
    })  # fmt: skip
    yield "cpu_affinity", _affinity(nvml, index)


def _attribute(name: str) -> Callable[[Any], Answer]:
    return lambda struct: _checked(Answer(int(getattr(struct, name))))


def _sum(*names: str) -> Callable[[Any], Answer]:
    def add(struct: Any) -> Answer:
        parts = [getattr(struct, name) for name in names]
        return Answer(None, "SENTINEL") if SENTINELS.intersection(parts) else Answer(sum(parts))

    return add


def _named(name: str, names: dict[int, str]) -> Callable[[Any], Answer]:
    return lambda struct: _name(Answer(getattr(struct, name)), names, "UNKNOWN")


def _name(answer: Answer, names: dict[int, str], other: str) -> Answer:
    """The name of a number; one without a name keeps its number."""
    checked = _checked(answer)
    return checked if checked.reason is not None else Answer(names.get(answer.value, f"{other}_{answer.value}"))


def _checked(answer: Answer) -> Answer:
    return Answer(None, "SENTINEL") if answer.reason is None and answer.value in SENTINELS else answer


def _parts(answer: Answer, parts: dict[str, Callable[[Any], Answer]]) -> Iterator[tuple[str, Answer]]:
    for key, pick in parts.items():
        yield key, answer if answer.reason is not None else pick(answer.value)


def _filled(nvml: Nvml, index: int, call: str, struct: str) -> Answer:
    """Calls that fill a struct of the caller's; old bindings lack the struct."""
    kind = nvml.constant(struct)
    if kind is None:
        return Answer(None, "FUNCTION_NOT_FOUND")
    target = kind()
    answer = nvml.ask(call, index, ctypes.byref(target))
    return answer if answer.reason is not None else Answer(target)


def _signed(answer: Answer) -> Answer:
    """Degrees below the limit; a GPU that is beyond it answers below zero, so that only the absurd is no value.

    -1 is what all bits set look like in a signed number. A GPU that is just there reads something else in a moment.
    """
    if answer.reason is None and (answer.value == -1 or not -1000 < answer.value < 1000):
        return Answer(None, "SENTINEL")
    return answer


def _valid(answer: Answer) -> Answer:
    """Success is a valid InfoROM; one whose checksum is wrong answers CORRUPTED_INFOROM."""
    if answer.reason == "CORRUPTED_INFOROM":
        return Answer(0)
    return answer if answer.reason is not None else Answer(1)


def _affinity(nvml: Nvml, index: int) -> Answer:
    """CPUs near the GPU, as the kernel writes a list: 0-15,32. The mask has room for 4096 CPUs, far more than there
    are, so that words which are all alike are no mask.
    """
    words = 64
    answer = nvml.ask("DeviceGetCpuAffinity", index, words)
    if answer.reason is not None:
        return answer
    if len(set(answer.value)) == 1:
        return Answer(None, "SENTINEL")
    cpus = [64 * place + bit for place, word in enumerate(answer.value) for bit in range(64) if word >> bit & 1]
    return Answer(cpu_list(cpus))


def cpu_list(cpus: list[int]) -> str:
    """[0, 1, 2, 5] is 0-2,5."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(str(end) for end in part) for part in parts)


def read_links(nvml: Nvml, index: int, count: int | None = None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The NVLinks that the GPU has, up or not: as many as it says (`count`, where it was asked before), else as many as
    answer. And why some are null, by nvlink_active and nvlink_version; also where no link is listed because the first
    was refused.
    """
    count = link_count(nvml, index) if count is None or count > MAX_LINKS else count
    links: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for link in range(MAX_LINKS if count is None else count):
        state = nvml.ask("DeviceGetNvLinkState", index, link)
        if state.reason is not None and count is None:
            return links, missing if links else {"nvlink_active": state.reason}
        links.append(_link(nvml, index, link, state, missing))
    return links, missing


def _link(nvml: Nvml, index: int, link: int, state: Answer, missing: dict[str, str]) -> dict[str, Any]:
    """A link that does not tell its state is not asked for its version."""
    active = _checked(state)
    version = active if active.reason is not None else _checked(nvml.ask("DeviceGetNvLinkVersion", index, link))
    for key, answer in (("nvlink_active", active), ("nvlink_version", version)):
        if answer.reason is not None:
            missing.setdefault(key, answer.reason)
    return {"link": link, "active": None if active.reason is not None else bool(active.value), "version": version.value}


def read_peers(nvml: Nvml, index: int, count: int) -> list[dict[str, Any]]:
    """How this GPU stands to all others."""
    return [_peer(nvml, index, other) for other in range(count) if other != index]


def _peer(nvml: Nvml, index: int, other: int) -> dict[str, Any]:
    """Its topology and what is possible between the two, by name; null with a reason where NVML does not say."""
    common = nvml.ask_pair("DeviceGetTopologyCommonAncestor", index, other)
    answers = {"topology": _name(common, TOPOLOGY, "LEVEL")}
    for kind, number in P2P_KINDS.items():
        status = nvml.ask_pair("DeviceGetP2PStatus", index, other, number)
        answers[f"p2p_{kind}"] = _name(status, P2P_STATUS, "STATUS")
    return {
        "nvml_index": other,
        "topology": answers["topology"].value,
        "p2p": {kind: answers[f"p2p_{kind}"].value for kind in P2P_KINDS},
        "missing": {key: answer.reason for key, answer in answers.items() if answer.reason is not None},
    }
