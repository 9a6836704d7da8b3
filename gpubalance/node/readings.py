"""Which readings NVML is asked for, how each is decoded, and what range makes sense.

Three tables: `AT_REST` once before a run, `TICK` at every tick of the sensor, `COUNTERS` at the edges of phases.
Calls that cost more than 1 ms (energy: 3 ms, measured on H200) stand in COUNTERS only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpubalance.node.nvml import Answer, Nvml

Number = int | float
Read = Callable[[Nvml, int], Answer]


@dataclass(frozen=True)
class Reading:
    """A key with its unit, how to read it, and the largest value that is not a sentinel."""

    key: str
    read: Read
    maximum: float = 2.0**62
    """Beyond it lie 2^63-1, 2^64-1 and DCGM's blanks just below 2^63."""
    instead_of: str | None = None
    """Asked only where the driver does not know the call of that other key, and left out everywhere else."""


SENTINELS = frozenset({2**32 - 1, 2**63 - 1, 2**64 - 1})
"""What NVML answers, with success, where it has no value."""


def take(readings: tuple[Reading, ...], nvml: Nvml, device: int) -> tuple[dict[str, Number | None], dict[str, str]]:
    """Values by key, and for each null its reason."""
    values: dict[str, Number | None] = {}
    missing: dict[str, str] = {}
    for reading in readings:
        if reading.instead_of and not missing.get(reading.instead_of, "").endswith("FUNCTION_NOT_FOUND"):
            continue
        answer = _checked(reading, reading.read(nvml, device))
        values[reading.key] = answer.value
        if answer.reason is not None:
            missing[reading.key] = answer.reason
    return values, missing


def _checked(reading: Reading, answer: Answer) -> Answer:
    if answer.reason is None and (answer.value in SENTINELS or not 0 <= answer.value <= reading.maximum):
        return Answer(None, "SENTINEL")
    return answer


def call_reader(name: str, *arguments: Any, pick: Callable[[Any], Any] = lambda value: value) -> Read:
    """A call with plain arguments, and what to take of its answer."""

    def read(nvml: Nvml, device: int) -> Answer:
        answer = nvml.ask(name, device, *arguments)
        return answer if answer.reason is not None else Answer(pick(answer.value))

    return read


def constant_call_reader(
    name: str, constant: str, *more: str, pick: Callable[[Any], Any] = lambda value: value
) -> Read:
    """Like `call_reader`, with arguments that are constants of the binding (absent in old bindings)."""

    def read(nvml: Nvml, device: int) -> Answer:
        arguments = [nvml.constant(c) for c in (constant, *more)]
        if None in arguments:
            return Answer(None, "FUNCTION_NOT_FOUND")
        return call_reader(name, *arguments, pick=pick)(nvml, device)

    return read


def field_reader(constant: str) -> Read:
    """A field value (nvmlDeviceGetFieldValues); its union is read by the type that NVML says it has."""

    def read(nvml: Nvml, device: int) -> Answer:
        field_id = nvml.constant(constant)
        if field_id is None:
            return Answer(None, "FUNCTION_NOT_FOUND")
        answer = nvml.ask("DeviceGetFieldValues", device, [field_id])
        if answer.reason is not None:
            return answer
        value = answer.value[0]
        if value.nvmlReturn != 0:
            return Answer(None, nvml.reason(value.nvmlReturn))
        return Answer(_union(value))

    return read


def _union(field_value: Any) -> Number:
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    kind = kinds[field_value.valueType] if field_value.valueType < len(kinds) else "ullVal"
    value: Number = getattr(field_value.value, kind)
    return value


def memory(part: str) -> Read:
    """Part of the memory (total, used, free, reserved) by the v2 call.

    v1 counts what the driver reserves as used, hundreds of MiB on an idle card, so that it must not be mixed in.
    """

    def read(nvml: Nvml, device: int) -> Answer:
        answer = nvml.ask("DeviceGetMemoryInfo", device, nvml.constant("nvmlMemory_v2"))
        return answer if answer.reason is not None else Answer(int(getattr(answer.value, part)))

    return read


def memory_v1(part: str) -> Read:
    """The same by the old call, for drivers without v2; always recorded under another key."""
    return call_reader("DeviceGetMemoryInfo", pick=lambda value: int(getattr(value, part)))


def event_reasons(nvml: Nvml, device: int) -> Answer:
    """The reasons for the present clock; drivers before 535 know the call by its older name only."""
    answer = nvml.ask("DeviceGetCurrentClocksEventReasons", device)
    if answer.reason is None or not answer.reason.endswith("FUNCTION_NOT_FOUND"):
        return answer
    return nvml.ask("DeviceGetCurrentClocksThrottleReasons", device)


MAX_LINKS = 18
"""NVML_NVLINK_MAX_LINKS; a GPU answers INVALID_ARGUMENT or NOT_SUPPORTED beyond its own."""


def link_count(nvml: Nvml, device: int) -> int | None:
    """How many NVLinks the GPU says that it has; None where it does not say, or says nonsense."""
    count = field_reader("NVML_FI_DEV_NVLINK_LINK_COUNT")(nvml, device)
    return count.value if count.reason is None and 0 <= count.value <= MAX_LINKS else None


AT_REST = (
    Reading("power_limit_w", call_reader("DeviceGetEnforcedPowerLimit", pick=lambda mw: mw / 1000), 100_000),
    Reading(
        "power_default_limit_w",
        call_reader("DeviceGetPowerManagementDefaultLimit", pick=lambda mw: mw / 1000),
        100_000,
    ),
    Reading("sm_clock_max_mhz", constant_call_reader("DeviceGetMaxClockInfo", "NVML_CLOCK_SM"), 100_000),
    Reading("memory_clock_max_mhz", constant_call_reader("DeviceGetMaxClockInfo", "NVML_CLOCK_MEM"), 100_000),
    Reading("memory_bus_width_bits", call_reader("DeviceGetMemoryBusWidth"), 100_000),
    Reading("cuda_cores", call_reader("DeviceGetNumGpuCores"), 1_000_000),
    Reading("compute_capability_major", call_reader("DeviceGetCudaComputeCapability", pick=lambda cc: cc[0]), 1000),
    Reading("compute_capability_minor", call_reader("DeviceGetCudaComputeCapability", pick=lambda cc: cc[1]), 1000),
    Reading("compute_mode", call_reader("DeviceGetComputeMode"), 3),
    Reading("mig_mode", call_reader("DeviceGetMigMode", pick=lambda modes: modes[0]), 1),
    Reading("ecc_mode", call_reader("DeviceGetEccMode", pick=lambda modes: modes[0]), 1),
    Reading("persistence_mode", call_reader("DeviceGetPersistenceMode"), 1),
    Reading("pcie_generation_max", call_reader("DeviceGetMaxPcieLinkGeneration"), 100),
    Reading("pcie_width_max", call_reader("DeviceGetMaxPcieLinkWidth"), 64),
    Reading("nvlink_count", field_reader("NVML_FI_DEV_NVLINK_LINK_COUNT"), 1000),
    Reading("nvlink_speed_mb_per_s", field_reader("NVML_FI_DEV_NVLINK_GET_SPEED"), 10_000_000),
    Reading("utilization_before_percent", call_reader("DeviceGetUtilizationRates", pick=lambda u: u.gpu), 100),
    Reading("memory_used_before_bytes", memory("used")),
    Reading("memory_free_before_bytes", memory("free")),
    Reading("memory_reserved_bytes", memory("reserved")),
)

TICK = (
    Reading("utilization_percent", call_reader("DeviceGetUtilizationRates", pick=lambda u: u.gpu), 100),
    Reading("memory_utilization_percent", call_reader("DeviceGetUtilizationRates", pick=lambda u: u.memory), 100),
    Reading("memory_used_bytes", memory("used")),
    Reading("memory_used_v1_bytes", memory_v1("used"), instead_of="memory_used_bytes"),
    Reading("power_w", call_reader("DeviceGetPowerUsage", pick=lambda mw: mw / 1000), 100_000),
    Reading("sm_clock_mhz", constant_call_reader("DeviceGetClockInfo", "NVML_CLOCK_SM"), 100_000),
    Reading("memory_clock_mhz", constant_call_reader("DeviceGetClockInfo", "NVML_CLOCK_MEM"), 100_000),
    Reading("temperature_c", constant_call_reader("DeviceGetTemperature", "NVML_TEMPERATURE_GPU"), 1000),
    Reading("event_reasons", event_reasons, 2**32 - 2),
    Reading("pcie_generation", call_reader("DeviceGetCurrPcieLinkGeneration"), 100),
    Reading("pcie_width", call_reader("DeviceGetCurrPcieLinkWidth"), 64),
)

COUNTERS = (
    Reading(
        "power_violation_ns",
        constant_call_reader("DeviceGetViolationStatus", "NVML_PERF_POLICY_POWER", pick=lambda v: v.violationTime),
    ),
    Reading(
        "thermal_violation_ns",
        constant_call_reader("DeviceGetViolationStatus", "NVML_PERF_POLICY_THERMAL", pick=lambda v: v.violationTime),
    ),
    Reading("energy_mj", call_reader("DeviceGetTotalEnergyConsumption")),
    Reading(
        "ecc_corrected",
        constant_call_reader("DeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
    ),
    Reading(
        "ecc_uncorrected",
        constant_call_reader("DeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
    ),
    Reading("pcie_replays", call_reader("DeviceGetPcieReplayCounter")),
    Reading("nvlink_replays", field_reader("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY")),
    Reading("nvlink_recoveries", field_reader("NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY")),
    Reading("nvlink_crc_errors", field_reader("NVML_FI_DEV_NVLINK_ERROR_DL_CRC")),
    Reading("rows_remapped_uncorrectable", call_reader("DeviceGetRemappedRows", pick=lambda rows: rows[1])),
)

EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
"""nvml.h, nvmlClocksEventReason*. Bits are tested with AND: several are usually set at once."""


def reason_names(bits: int) -> list[str]:
    """Names of the reasons that are set; unknown bits as hexadecimal, never dropped."""
    names = [name for bit, name in EVENT_REASONS.items() if bits & bit]
    unknown = bits & ~sum(EVENT_REASONS)
    return names + ([f"unknown {unknown:#x}"] if unknown else [])
