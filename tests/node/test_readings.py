"""What is read, how it is decoded, and that one refusal never touches another field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.node.nvml import Answer, Nvml
from gpubalance.node.readings import AT_REST, COUNTERS, EVENT_REASONS, TICK, field_reader, reason_names, take
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]
TABLES = {"at rest": AT_REST, "tick": TICK, "counters": COUNTERS}

HEALTHY = {
    "at rest": {
        "power_limit_w": 700.0,  # 700000 mW
        "power_default_limit_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 3201,
        "memory_bus_width_bits": 6016,
        "cuda_cores": 16896,
        "compute_capability_major": 9,
        "compute_capability_minor": 0,
        "compute_mode": 0,
        "mig_mode": 0,
        "ecc_mode": 1,
        "persistence_mode": 1,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "nvlink_count": 18,
        "nvlink_speed_mb_per_s": 26562,
        "utilization_before_percent": 0,
        "memory_used_before_bytes": 0,
        "memory_free_before_bytes": 150109880320,
        "memory_reserved_bytes": 644939776,
    },
    "tick": {
        "utilization_percent": 0,
        "memory_utilization_percent": 0,
        "memory_used_bytes": 0,
        "power_w": 79.408,  # 79408 mW
        "sm_clock_mhz": 345,
        "memory_clock_mhz": 3201,
        "temperature_c": 35,
        "event_reasons": 1,
        "pcie_generation": 5,
        "pcie_width": 16,
    },
    "counters": {
        "power_violation_ns": 0,
        "thermal_violation_ns": 0,
        "energy_mj": 2570179,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "pcie_replays": 1,
        "nvlink_replays": 0,
        "nvlink_recoveries": 0,
        "nvlink_crc_errors": 0,
        "rows_remapped_uncorrectable": 0,
    },
}

FIELDS = {
    "EnforcedPowerLimit": {"power_limit_w"},
    "PowerManagementDefaultLimit": {"power_default_limit_w"},
    "MaxClockInfo": {"sm_clock_max_mhz", "memory_clock_max_mhz"},
    "MemoryBusWidth": {"memory_bus_width_bits"},
    "NumGpuCores": {"cuda_cores"},
    "CudaComputeCapability": {"compute_capability_major", "compute_capability_minor"},
    "ComputeMode": {"compute_mode"},
    "MigMode": {"mig_mode"},
    "EccMode": {"ecc_mode"},
    "PersistenceMode": {"persistence_mode"},
    "MaxPcieLinkGeneration": {"pcie_generation_max"},
    "MaxPcieLinkWidth": {"pcie_width_max"},
    "FieldValues": {
        "nvlink_count",
        "nvlink_speed_mb_per_s",
        "nvlink_replays",
        "nvlink_recoveries",
        "nvlink_crc_errors",
    },
    "UtilizationRates": {"utilization_before_percent", "utilization_percent", "memory_utilization_percent"},
    "MemoryInfo_v2": {
        "memory_used_before_bytes",
        "memory_free_before_bytes",
        "memory_reserved_bytes",
        "memory_used_bytes",
    },
    "PowerUsage": {"power_w"},
    "ClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    "Temperature": {"temperature_c"},
    "CurrentClocksEventReasons": {"event_reasons"},
    "CurrPcieLinkGeneration": {"pcie_generation"},
    "CurrPcieLinkWidth": {"pcie_width"},
    "ViolationStatus": {"power_violation_ns", "thermal_violation_ns"},
    "TotalEnergyConsumption": {"energy_mj"},
    "TotalEccErrors": {"ecc_corrected", "ecc_uncorrected"},
    "PcieReplayCounter": {"pcie_replays"},
    "RemappedRows": {"rows_remapped_uncorrectable"},
}
"""Which fields come from which call."""

REFUSALS = {3: "NOT_SUPPORTED", 4: "NO_PERMISSION", 15: "GPU_IS_LOST", 999: "UNKNOWN"}
SENTINELS = [0xFFFFFFFF, 2**63 - 1, 2**64 - 1]


def take_all(nvml: Nvml, device: int) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for table in TABLES.values():
        found, refused = take(table, nvml, device)
        values |= found
        missing |= refused
    return values, missing


ALL_HEALTHY = {key: value for table in HEALTHY.values() for key, value in table.items()}


def assert_only_these_are_null(opened: Opened, profile: dict[str, Any], fields: set[str], reason: str) -> None:
    nvml, _ = opened(profile)
    values, missing = take_all(nvml, 1)
    assert {key for key, value in values.items() if value is None} == fields
    assert {key: value for key, value in values.items() if key not in fields} == {
        key: value for key, value in ALL_HEALTHY.items() if key not in fields
    }
    assert set(missing) == fields
    assert {text.removeprefix("SKIPPED after ") for text in missing.values()} == {reason}
    assert take_all(nvml, 0) == (ALL_HEALTHY, {})


@pytest.mark.parametrize("table", TABLES)
def test_a_healthy_gpu_answers_every_reading_in_the_units_of_its_keys(opened: Opened, table: str) -> None:
    nvml, _ = opened(h200_node())
    assert take(TABLES[table], nvml, 0) == (HEALTHY[table], {})


def test_the_matrix_below_covers_every_call_that_a_reading_makes(opened: Opened) -> None:
    nvml, stand_in = opened(h200_node())
    before = set(stand_in.calls)
    take_all(nvml, 0)
    made = {name.removeprefix("nvmlDeviceGet") for name, _ in set(stand_in.calls) - before}
    assert made - {"HandleByIndex_v2"} == set(FIELDS)
    assert set().union(*FIELDS.values()) == set(ALL_HEALTHY)


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", FIELDS)
def test_a_refused_call_is_null_with_its_reason_and_every_other_field_is_intact(
    opened: Opened, call: str, code: int
) -> None:
    fault = {"call": f"nvmlDeviceGet{call}", "device": 1, "error": code}
    assert_only_these_are_null(opened, {**h200_node(), "faults": [fault]}, FIELDS[call], REFUSALS[code])


WITH_AN_OLDER_CALL = {"MemoryInfo_v2", "CurrentClocksEventReasons"}


@pytest.mark.parametrize("call", [call for call in FIELDS if call not in WITH_AN_OLDER_CALL])
def test_a_call_that_the_driver_lacks_is_null_and_every_other_field_is_intact(opened: Opened, call: str) -> None:
    nvml, _ = opened({**h200_node(), "absent": [f"nvmlDeviceGet{call}"]})
    for device in (0, 1):
        values, missing = take_all(nvml, device)
        assert values == {key: None if key in FIELDS[call] else value for key, value in ALL_HEALTHY.items()}
        assert {text.removeprefix("SKIPPED after ") for text in missing.values()} == {"FUNCTION_NOT_FOUND"}
        assert set(missing) == FIELDS[call]


def test_a_driver_without_the_v2_call_gives_used_memory_by_the_old_one_under_its_own_key(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(), "absent": ["nvmlDeviceGetMemoryInfo_v2"]})
    values, missing = take(TICK, nvml, 0)
    assert values["memory_used_bytes"] is None
    assert missing["memory_used_bytes"] == "FUNCTION_NOT_FOUND"
    assert values["memory_used_v1_bytes"] == 644939776


def test_a_driver_before_535_gives_its_reasons_by_the_older_name(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0]["CurrentClocksThrottleReasons"] = 0x44
    nvml, _ = opened({**profile, "absent": ["nvmlDeviceGetCurrentClocksEventReasons"]})
    values, _ = take(TICK, nvml, 0)
    assert values["event_reasons"] == 0x44


@pytest.mark.parametrize("number", SENTINELS, ids=hex)
@pytest.mark.parametrize("call", [call for call in FIELDS if call != "FieldValues"])
def test_a_number_that_stands_for_no_value_is_null_and_every_other_field_is_intact(
    opened: Opened, call: str, number: int
) -> None:
    fault = {"call": f"nvmlDeviceGet{call}", "device": 1, "value": number}
    assert_only_these_are_null(opened, {**h200_node(), "faults": [fault]}, FIELDS[call], "SENTINEL")


@pytest.mark.parametrize("number", SENTINELS, ids=hex)
def test_field_values_that_stand_for_no_value_are_null(opened: Opened, number: int) -> None:
    profile = h200_node()
    profile["devices"][1]["FieldValues"] = {"91": number, "164": number, "161": number, "162": number, "163": number}
    assert_only_these_are_null(opened, profile, FIELDS["FieldValues"], "SENTINEL")


def test_one_refused_field_value_leaves_the_others(opened: Opened) -> None:
    profile = h200_node()
    del profile["devices"][1]["FieldValues"]["91"]
    assert_only_these_are_null(opened, profile, {"nvlink_count"}, "NOT_SUPPORTED")


@pytest.mark.parametrize("number", [101, 2**31 - 16, 2**31 - 1], ids=hex)
def test_a_percentage_above_100_is_null(opened: Opened, number: int) -> None:
    fault = {"call": "nvmlDeviceGetUtilizationRates", "device": 1, "value": number}
    profile = {**h200_node(), "faults": [fault]}
    assert_only_these_are_null(opened, profile, FIELDS["UtilizationRates"], "SENTINEL")


@pytest.mark.parametrize("number", [2**63 - 16, 2**63 - 15, 2**63 - 2], ids=hex)
def test_blanks_of_dcgm_are_null_in_counters(opened: Opened, number: int) -> None:
    fault = {"call": "nvmlDeviceGetTotalEnergyConsumption", "device": 1, "value": number}
    assert_only_these_are_null(opened, {**h200_node(), "faults": [fault]}, {"energy_mj"}, "SENTINEL")


def test_memory_is_read_by_the_second_call_which_counts_reserved_memory_apart(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0] |= {
        "MemoryInfo": {"total": 16 * 2**30, "free": 15 * 2**30, "used": 2**30},
        "MemoryInfo_v2": {
            "total": 16 * 2**30,
            "free": 15 * 2**30,
            "used": 4 * 2**20,
            "reserved": 1020 * 2**20,
        },
    }
    nvml, stand_in = opened(profile)
    values, _ = take_all(nvml, 0)
    assert values["memory_used_bytes"] == values["memory_used_before_bytes"] == 4194304
    assert values["memory_reserved_bytes"] == 1069547520
    assert values["memory_used_bytes"] + values["memory_reserved_bytes"] + values["memory_free_before_bytes"] == 2**34
    assert stand_in.calls["nvmlDeviceGetMemoryInfo", 0] == 0


def test_what_holds_now_is_read_and_not_what_is_pending(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0] |= {"MigMode": [0, 1], "EccMode": [1, 0], "CudaComputeCapability": [8, 6]}
    nvml, _ = opened(profile)
    values, _ = take(AT_REST, nvml, 0)
    assert (values["mig_mode"], values["ecc_mode"]) == (0, 1)
    assert (values["compute_capability_major"], values["compute_capability_minor"]) == (8, 6)


def test_remapped_rows_are_those_after_uncorrectable_errors(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0]["RemappedRows"] = [5, 4, 1, 0]
    nvml, _ = opened(profile)
    assert take(COUNTERS, nvml, 0)[0]["rows_remapped_uncorrectable"] == 4


LARGEST = {
    "UtilizationRates": ("utilization_before_percent", 100),
    "ComputeMode": ("compute_mode", 3),
    "MigMode": ("mig_mode", 1),
    "EccMode": ("ecc_mode", 1),
    "PersistenceMode": ("persistence_mode", 1),
    "MaxPcieLinkWidth": ("pcie_width_max", 64),
}


@pytest.mark.parametrize("call", LARGEST)
def test_the_largest_value_that_makes_sense_is_taken_and_the_next_is_not(opened: Opened, call: str) -> None:
    key, largest = LARGEST[call]
    for number, value in ((largest, largest), (largest + 1, None)):
        fault = {"call": f"nvmlDeviceGet{call}", "value": number}
        nvml, _ = opened({**h200_node(), "faults": [fault]})
        assert take(AT_REST, nvml, 0)[0][key] == value


@pytest.mark.parametrize(
    ("kind", "member", "written", "read"),
    [
        (0, "dVal", 1.5, 1.5),
        (1, "ullVal", 2**40 + 7, 7),  # the upper half is not part of a 32 bit value
        (2, "ulVal", 26562, 26562),
        (3, "ullVal", 2**40 + 7, 2**40 + 7),
        (4, "sllVal", -5, -5),
        (9, "ullVal", 2**40 + 7, 2**40 + 7),
    ],
)
def test_a_field_value_is_read_by_the_type_that_nvml_gives_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, kind: int, member: str, written: float, read: float
) -> None:
    nvml, _ = opened(h200_node())
    field = nvml.constant("c_nvmlFieldValue_t")()
    field.valueType = kind
    setattr(field.value, member, written)
    monkeypatch.setattr(nvml, "ask", lambda call, device, fields: Answer([field]))
    assert field_reader("NVML_FI_DEV_NVLINK_LINK_COUNT")(nvml, 0) == Answer(read)


def test_energy_which_takes_milliseconds_is_not_read_at_a_tick(opened: Opened) -> None:
    nvml, stand_in = opened(h200_node())
    take(TICK, nvml, 0)
    take(AT_REST, nvml, 0)
    assert stand_in.calls["nvmlDeviceGetTotalEnergyConsumption", 0] == 0


def test_a_reading_refused_for_good_is_asked_once_in_a_hundred_ticks(opened: Opened) -> None:
    fault = {"call": "nvmlDeviceGetTemperature", "device": 0, "error": 3}
    nvml, stand_in = opened({**h200_node(), "faults": [fault]})
    for _ in range(100):
        take(TICK, nvml, 0)
    assert stand_in.calls["nvmlDeviceGetTemperature", 0] == 1
    assert stand_in.calls["nvmlDeviceGetPowerUsage", 0] == 100


def test_a_constant_that_an_old_binding_lacks_is_a_reason(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, _ = opened(h200_node())
    known = nvml.constant
    monkeypatch.setattr(nvml, "constant", lambda name: None if "NVLINK" in name else known(name))
    values, missing = take(AT_REST, nvml, 0)
    assert missing == {"nvlink_count": "FUNCTION_NOT_FOUND", "nvlink_speed_mb_per_s": "FUNCTION_NOT_FOUND"}
    assert values["pcie_width_max"] == 16


def test_no_key_is_read_twice() -> None:
    keys = [reading.key for table in TABLES.values() for reading in table]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, []),
        (0x1, ["idle"]),
        (0x2, ["application clocks"]),
        (0x4, ["software power cap"]),
        (0x8, ["hardware slowdown"]),
        (0x10, ["sync boost"]),
        (0x20, ["software thermal slowdown"]),
        (0x40, ["hardware thermal slowdown"]),
        (0x80, ["hardware power brake"]),
        (0x100, ["display clocks"]),
        (0x48, ["hardware slowdown", "hardware thermal slowdown"]),
        (0x84, ["software power cap", "hardware power brake"]),
        (0x200, ["unknown 0x200"]),
        (0x600, ["unknown 0x600"]),
        (0x8000000000000004, ["software power cap", "unknown 0x8000000000000000"]),
    ],
)
def test_reason_bits_are_named_one_by_one_and_unknown_ones_are_shown_in_hexadecimal(
    bits: int, names: list[str]
) -> None:
    assert reason_names(bits) == names


@given(st.integers(0, 2**64 - 1))
def test_no_set_bit_is_ever_lost_and_none_is_invented(bits: int) -> None:
    names = reason_names(bits)
    by_name = {name: bit for bit, name in EVENT_REASONS.items()}
    restored = sum(by_name[name] if name in by_name else int(name.removeprefix("unknown "), 16) for name in names)
    assert restored == bits


def test_several_reason_bits_at_once_arrive_whole(opened: Opened) -> None:
    profile = h200_node()
    profile["devices"][0]["CurrentClocksEventReasons"] = 0x4 | 0x40 | 0x8
    nvml, _ = opened(profile)
    values, _ = take(TICK, nvml, 0)
    assert values["event_reasons"] == 76
