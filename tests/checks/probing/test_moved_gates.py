"""Thresholds that were moved: the same look on both sides of each, and the defaults spelled out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.checks.probing.verdict import CHECKS, judge_probe
from gpubalance.record.probe import Probe
from gpubalance.record.run import Setting
from gpubalance.record.samples import Samples
from gpubalance.thresholds import THRESHOLDS, names_for, spelled
from tests.checks.probing.helpers import make_load, make_probe, worst
from tests.checks.probing.test_kept_probes import KEPT, kept
from tests.checks.probing.test_load import QUIET, counters, loaded, result

MIB = 2**20
PAGES = {"retired_pages_single_bit": 0, "retired_pages_double_bit": 0, "retired_pages_pending": 0}
LINKS = {"nvlink_replays": (5, 5), "nvlink_recoveries": (0, 0), "nvlink_crc_errors": (9, 109)}  # 10 a second in 10 s
FAST = (700.0, 4200.0, 55.0, 55.0)


def gpu(**values: Any) -> Callable[[], Probe]:
    return lambda: make_probe([values])


def host(**values: Any) -> Callable[[], Probe]:
    return lambda: make_probe(host=values)


def slow(place: int, share: float = 0.88) -> Callable[[], Probe]:
    """The last of four GPUs has this share of its peers' speed; limits are fixed by speeds of two H200s."""
    speed = tuple(value * share if index == place else value for index, value in enumerate(FAST))
    return lambda: loaded(*[result(index) for index in range(3)], result(3, speed))


def under_load(*mhz: int) -> Probe:
    return make_probe(
        count=len(mhz), load=make_load([{"sm_clock_mhz": [m] * 5, "event_reasons": [0] * 5} for m in mhz])
    )


def slowed(bit: int, samples: int, power_w: float = 690) -> Probe:
    """This reason in so many of 10 samples under load; the limit is 700 W."""
    columns = {"event_reasons": [bit] * samples + [0] * (10 - samples), "power_w": [power_w] * 10}
    return make_probe(count=1, load=make_load([columns]))


def corrected() -> Probe:
    """20 corrected errors in 10 s."""
    return loaded(result(0), samples=Samples(counters=counters(0, QUIET, {**QUIET, "ecc_corrected": 25})))


def in_use() -> Probe:
    """100 MiB that no process explains."""
    return make_probe(readings=[{"memory_used_before_bytes": 100 * MIB, "memory_free_before_bytes": 149 * 10**9}])


# name: look, check, beside it, value that holds and its state, value that trips and its state
MOVED: dict[str, tuple[Callable[[], Probe], str, str, tuple[str, str], tuple[str, str]]] = {
    "sram_uncorrected_fail": (gpu(sram_uncorrected_aggregate=3), "M3", "", ("3", "warn"), ("2", "fail")),
    "sram_corrected_warn": (gpu(sram_corrected_aggregate=100), "M4", "", ("100", "info"), ("99", "warn")),
    "corrected_warn": (gpu(ecc_corrected_aggregate=100), "M4", "", ("100", "info"), ("99", "warn")),
    "remapped_rows_fail": (gpu(rows_remapped_uncorrectable=8), "M6", "", ("9", "pass"), ("8", "fail")),
    "retired_pages_fail": (
        gpu(**{**PAGES, "retired_pages_single_bit": 10}), "M7", "", ("11", "info"), ("10", "fail"),
    ),
    "double_bit_pages_warn": (
        gpu(**{**PAGES, "retired_pages_double_bit": 5}), "M7", "", ("6", "info"), ("5", "warn"),
    ),
    "pcie_replays_fail": (  # 30.7 are allowed in a minute
        lambda: make_probe(count=1, load=make_load(counters=[{"pcie_replays": (0, 20)}])),
        "P3", "", ("20", "pass"), ("19", "fail"),
    ),
    "nvlink_crc_fail": (
        lambda: make_probe(count=1, load=make_load(counters=[LINKS], seconds=10.0)),
        "N3", "", ("10.1", "warn"), ("10", "fail"),
    ),
    "nvlink_crc_warn": (
        lambda: make_probe(count=1, load=make_load(counters=[LINKS], seconds=10.0)),
        "N3", "", ("10", "pass"), ("9.9", "warn"),
    ),
    "hardware_slowdown_warn": (
        lambda: slowed(0x8, 3), "T2", "hardware_slowdown_fail=50", ("30", "pass"), ("29.9", "warn"),
    ),
    "hardware_slowdown_fail": (lambda: slowed(0x80, 3), "T2", "", ("30", "warn"), ("29.9", "fail")),
    "thermal_slowdown_warn": (
        lambda: slowed(0x20, 3), "T2", "thermal_slowdown_fail=50", ("30", "pass"), ("29.9", "warn"),
    ),
    "thermal_slowdown_fail": (lambda: slowed(0x20, 3), "T2", "", ("30", "warn"), ("29.9", "fail")),
    "capped_power_warn": (lambda: slowed(0x4, 10, power_w=350), "T2", "", ("50", "pass"), ("50.1", "warn")),
    "temperature_margin_warn": (gpu(temperature_margin_c=20), "T1", "", ("20", "pass"), ("21", "warn")),
    "temperature_margin_fail": (gpu(temperature_margin_c=5), "T1", "", ("4", "warn"), ("5", "fail")),
    "temperature_peer_warn": (
        lambda: make_probe([{}, {}, {"temperature_c": 41}]), "T1", "", ("6", "pass"), ("5.9", "warn"),
    ),
    "power_limit_warn": (  # 10 % below
        lambda: make_probe(readings=[{"power_limit_w": 630.0}] * 2), "T3", "", ("10.1", "pass"), ("9.9", "warn"),
    ),
    "clock_warn": (
        lambda: make_probe(readings=[{}, {"sm_clock_max_mhz": 1960}]), "T4", "", ("20", "pass"), ("19", "warn"),
    ),
    "clock_fail": (lambda: under_load(1980, 1980, 1940), "T4", "", ("40", "warn"), ("39", "fail")),
    "hidden_memory_warn": (in_use, "U1", "", ("100", "pass"), ("99", "warn")),
    "busy_warn": (
        lambda: make_probe(readings=[{"utilization_before_percent": 10}]), "U2", "", ("10", "pass"), ("9", "warn"),
    ),
    "throttled_warn": (
        host(cgroup_periods=1000, cgroup_periods_throttled=100), "A3", "", ("10", "pass"), ("9.9", "warn"),
    ),
    "shm_warn": (
        host(shm_total_bytes=512 * MIB, shm_free_bytes=512 * MIB), "C1", "", ("512", "pass"), ("513", "warn"),
    ),
    "open_files_warn": (host(open_files_limit=1024), "C2", "", ("1024", "pass"), ("1025", "warn")),
    "corrected_rate_warn": (corrected, "Q4", "", ("2", "info"), ("1.9", "warn")),
    # 1926 of 4814 GB/s is 40 %; all GPUs alike
    "limit_warn": (lambda: everywhere(1926.0), "Q3", "limit_fail=10", ("40", "pass"), ("40.1", "warn")),
    "limit_fail": (lambda: everywhere(1926.0), "Q3", "", ("40", "warn"), ("40.1", "fail")),
}  # fmt: skip
for place, gate in enumerate(("gemm", "memory_copy", "host_copy")):
    MOVED |= {
        f"{gate}_peer_warn": (slow(place), "Q3", f"{gate}_peer_fail=30", ("12.1", "pass"), ("11.9", "warn")),
        f"{gate}_peer_fail": (slow(place), "Q3", f"{gate}_peer_warn=2", ("12.1", "warn"), ("11.9", "fail")),
    }
TOLD_OTHERWISE = {"shm_warn", "power_limit_warn", "clock_warn", "clock_fail"}
"""Their `expected` is in GiB, or holds the value that follows from the gate."""


def everywhere(memory_gb_per_s: float) -> Probe:
    return loaded(*[result(index, (700.0, memory_gb_per_s, 55.0, 55.0)) for index in range(2)])


def under(probe: Probe, *texts: str) -> Probe:
    settings = {**probe.settings, "thresholds": Setting(value=list(texts), origin="flag")}
    return probe.model_copy(update={"settings": settings})


def test_every_gate_of_probe_is_moved_below() -> None:
    assert set(MOVED) == set(names_for("probe"))


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_gate_decides_on_both_sides(name: str) -> None:
    look, check_id, beside, holds, trips = MOVED[name]
    (check,) = [check for check in CHECKS if check.id == check_id]
    for value, state in (holds, trips):
        finding = worst(check.findings(under(look(), f"{name}={value}", *filter(None, [beside]))))
        assert finding.state.value == state, finding
        if state in ("warn", "fail") and name not in TOLD_OTHERWISE:
            assert finding.expected is not None
            assert value in finding.expected


TOLD = {
    "shm_warn=1536": (host(shm_total_bytes=512 * MIB, shm_free_bytes=512 * MIB), "C1", "at least 1.5 GiB"),
    "power_limit_warn=2": (lambda: make_probe([{"power_set_limit_w": 630.0}] * 2, [{"power_limit_w": 630.0}] * 2), "T3",
                           "at least 686 W"),
    "clock_fail=35": (lambda: under_load(1980, 1980, 1940), "T4", "at least 1950 MHz (fails below 1945)"),
}  # fmt: skip


@pytest.mark.parametrize("text", TOLD)
def test_what_follows_from_a_moved_gate_is_said(text: str) -> None:
    look, check_id, expected = TOLD[text]
    (check,) = [check for check in CHECKS if check.id == check_id]
    assert worst(check.findings(under(look(), text))).expected == expected


@pytest.mark.parametrize("name", KEPT)
def test_defaults_that_are_spelled_change_nothing(name: str) -> None:
    probe = kept(name)
    assert "thresholds" not in probe.settings
    every = spelled({each.name: each.default for each in THRESHOLDS if "probe" in each.commands})
    assert judge_probe(under(probe, *every)) == judge_probe(probe)
