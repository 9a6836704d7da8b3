"""T3 and T4: power limits and clocks."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import Finding
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_load, make_probe, only, states, worst


def limited(*limits: Any, default: Any = 700.0, as_set: Any = None) -> list[Finding]:
    readings = [{"power_limit_w": limit, "power_default_limit_w": default} for limit in limits]
    return only("T3", make_probe([{"power_set_limit_w": as_set or limit} for limit in limits], readings))


@pytest.mark.parametrize(
    ("limit", "default", "as_set", "expected"),
    [
        (700.0, 700.0, 700.0, ["pass"]),
        (665.0, 700.0, 665.0, ["pass"]),  # 5 % below
        (664.0, 700.0, 664.0, ["warn"]),
        (750.0, 700.0, 750.0, ["pass"]),
        (700.0, 700.0, 736.0, ["pass"]),
        (700.0, 700.0, 737.0, ["warn"]),  # 95 % of 737 W are 700.15 W
        (400.0, 700.0, 700.0, ["warn", "warn"]),
        (NOT_SUPPORTED, 700.0, 700.0, ["skip"]),
        (NO_PERMISSION, 700.0, 700.0, ["unknown"]),
        (700.0, NOT_SUPPORTED, 700.0, ["skip"]),
        (700.0, 700.0, NOT_SUPPORTED, ["pass"]),
    ],
)
def test_a_limit_below_its_default_or_below_what_was_set_warns(
    limit: Any, default: Any, as_set: Any, expected: list[str]
) -> None:
    assert states(limited(limit, default=default, as_set=as_set)) == expected


def test_a_low_limit_is_told_with_what_it_should_be() -> None:
    found = limited(700.0, 500.0)[0]
    assert found.message == "GPU 1 is limited to 500 W, its default is 700 W"
    assert found.next_step == "set it back with `nvidia-smi -i 1 -pl 700`, unless it is meant so"


@pytest.mark.parametrize(
    ("limits", "differ"), [((700.0, 700.0), False), ((700.0, 699.0), False), ((700.0, 698.9), True), ((700.0,), False)]
)
def test_limits_that_differ_over_one_model_warn(limits: tuple[float, ...], differ: bool) -> None:
    assert ("warn" in states(limited(*limits))) is differ


def test_unequal_limits_are_one_finding_that_names_the_lower_ones() -> None:
    found = limited(700.0, 690.0, 700.0)[-1]
    assert found.message == "power limits of equal GPUs differ: 690 to 700 W"
    assert found.observed == "GPU 0: 700 W; GPU 1: 690 W; GPU 2: 700 W"
    assert found.subject is not None
    assert found.subject.startswith("cuda:1 ")


def test_other_models_have_other_limits() -> None:
    readings = [{}, {"power_limit_w": 72.0, "power_default_limit_w": 72.0}]
    gpus = [{}, {"power_set_limit_w": 72.0}]
    assert states(only("T3", make_probe(gpus, readings, [{}, {"name": "NVIDIA L4"}]))) == ["pass"]


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("sm_clock_max_mhz", (1980, 1980), ["pass"]),
        ("sm_clock_max_mhz", (1980, 2010), ["pass"]),
        ("sm_clock_max_mhz", (1980, 2011), ["warn"]),
        ("memory_clock_max_mhz", (3201, 3171), ["pass"]),
        ("memory_clock_max_mhz", (3201, 3170), ["warn"]),
        ("sm_clock_max_mhz", (NOT_SUPPORTED, NOT_SUPPORTED), ["skip"]),
        ("sm_clock_max_mhz", (NO_PERMISSION, 1980), ["unknown", "info"]),
        ("memory_clock_max_mhz", (NO_PERMISSION, 3201), ["unknown", "pass"]),
        ("sm_clock_max_mhz", (1980,), ["info"]),  # nobody to compare with
    ],
)
def test_highest_clocks_differ_over_one_model(key: str, values: tuple[Any, ...], expected: list[str]) -> None:
    gpus = [{"application_clock_mhz": NOT_SUPPORTED}] * len(values)
    found = only("T4", make_probe(gpus, [{key: value} for value in values]))
    assert [f.state.value for f in found if f.message != "application clock: not supported"] == expected


@pytest.mark.parametrize(
    ("application", "expected"),
    [
        ((1980, 1980), ["pass"]),
        ((1095, 1095), ["info", "pass"]),  # the default of the board
        ((1980, 1095), ["warn"]),
        ((NOT_SUPPORTED, NOT_SUPPORTED), ["skip", "pass"]),
        ((NO_PERMISSION, 1980), ["unknown", "pass"]),
    ],
)
def test_application_clocks_warn_only_where_they_differ(application: tuple[Any, ...], expected: list[str]) -> None:
    gpus = [{"application_clock_mhz": clock} for clock in application]
    assert states(only("T4", make_probe(gpus))) == expected


def test_unequal_application_clocks_name_the_lower_one() -> None:
    found = worst(only("T4", make_probe([{}, {"application_clock_mhz": 1095}, {}])))
    assert found.message == "application clocks of equal GPUs differ: 1095 to 1980 MHz"
    assert found.subject is not None
    assert found.subject.startswith("cuda:1 ")


def clocked(*mhz: float, capped: int = 0, devices: Any = None) -> list[Finding]:
    """Findings under load; the last GPU is power-capped in so many of its 10 samples."""
    reasons = [[0x4] * capped + [0] * (10 - capped) if i == len(mhz) - 1 else [0] * 10 for i in range(len(mhz))]
    columns = [{"sm_clock_mhz": [clock] * 10, "event_reasons": bits} for clock, bits in zip(mhz, reasons, strict=True)]
    found = only("T4", make_probe(count=len(mhz), devices=devices, load=make_load(columns)))
    return [f for f in found if "under load" in f.message]


@pytest.mark.parametrize(
    ("mhz", "capped", "state"),
    [
        ((1980, 1980, 1980), 0, "pass"),
        ((1980, 1980, 1950), 0, "pass"),
        ((1980, 1980, 1949), 0, "warn"),
        ((1980, 1980, 1905), 0, "warn"),
        ((1980, 1980, 1904), 0, "fail"),
        ((1980, 1980, 1904), 5, "fail"),  # capped in half of the samples explains nothing
        ((1980, 1980, 1904), 6, "info"),
        ((1980, 1500, 1500), 0, "pass"),  # one fast GPU makes no slow ones
        ((1980, 1980, 1980, 1500), 0, "fail"),
        ((1980, 1500), 0, "warn"),  # of two, either may be the odd one
        ((1980, 1500), 10, "info"),
        ((1500,), 0, "pass"),
    ],
)
def test_a_clock_below_that_of_the_peers_under_load(mhz: tuple[float, ...], capped: int, state: str) -> None:
    assert worst(clocked(*mhz, capped=capped)).state.value == state


def test_how_far_the_clock_is_behind_is_said() -> None:
    found = worst(clocked(1755, 1755, 1462))
    assert found.message == "GPU 2 clocks 293 MHz below its peers under load"
    assert found.observed == "1462 MHz, power-capped 0 % of the time"
    assert found.expected == "at least 1725 MHz (fails below 1680)"


def test_of_two_gpus_the_doubt_is_said() -> None:
    found = worst(clocked(1755, 1462))
    assert found.message == "GPU 1 clocks 293 MHz below its peer under load"
    assert found.evidence == ("with two GPUs, which of them is the odd one needs a baseline",)


def test_gpus_of_another_model_are_no_peers() -> None:
    devices = [{}, {}, {"name": "NVIDIA L4"}]
    assert states(clocked(1980, 1980, 1000, devices=devices)) == ["pass"]


def test_a_gpu_without_samples_is_unknown() -> None:
    load = make_load([{"sm_clock_mhz": [1980] * 5}], devices=[0, 1])
    assert states(only("T4", make_probe(load=load))) == ["pass", "unknown", "pass"]
