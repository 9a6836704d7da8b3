"""Thresholds that were moved: the same run on both sides of each, and the defaults spelled out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.record.timings import Jitter
from gpubalance.testing.link_runs import link_run
from gpubalance.thresholds import BY_NAME, THRESHOLDS, names_for, spelled
from tests.analysis.test_bandwidth import joined, run_on
from tests.checks.helpers import all_of, with_setting
from tests.checks.test_bandwidth import log, run_with
from tests.checks.test_devices import MIB, holding, leaking, multiplying, slowed
from tests.checks.test_probes import probe, probed, with_one_slow
from tests.checks.test_steps import at_level, looked_at, spikes
from tests.reports.helpers import KEPT, kept, row

ORDER = [State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP]


def under(run: Run, *texts: str) -> Run:
    return with_setting(run, "thresholds", list(texts))


def worst(run: Run, check: str) -> Finding:
    return min(all_of(run, check), key=lambda finding: ORDER.index(finding.state))


SPIKES = looked_at(spikes(100.0), spikes(100.0))  # 10 of 130 ms, 7.69 %, in both passes
LOW = probed(*[probe(rank, memory_copy_gb_per_s=2000.0) for rank in range(4)])  # 41.5 % of 4814 GB/s

# name: run, check, beside it, value that holds and its state, value that trips and its state
MOVED: dict[str, tuple[Run, str, str, tuple[str, str], tuple[str, str]]] = {
    "transient_warn": (SPIKES, "transient", "transient_fail=60", ("7.7", "pass"), ("7.6", "warn")),
    "transient_fail": (SPIKES, "transient", "transient_warn=1", ("7.7", "warn"), ("7.6", "fail")),
    "memory_skew_warn": (holding(40, 31.9), "memory_skew", "", ("20.3", "pass"), ("20.2", "warn")),
    "memory_skew_fail": (holding(60, 41.9), "memory_skew", "", ("30.2", "warn"), ("30.1", "fail")),
    "memory_full_warn": (holding(31, 20), "memory_skew", "", ("31", "pass"), ("30.9", "warn")),
    "memory_full_fail": (holding(51, 30), "memory_skew", "", ("51", "warn"), ("50.9", "fail")),
    "level_warn": (at_level(28.0, 27.0), "level", "", ("28", "pass"), ("28.1", "warn")),
    "link_warn": (link_run(4, {(0, 1): 1 - 1 / 18}), "link", "", ("5.6", "pass"), ("5.5", "warn")),
    "link_fail": (link_run(4, {(0, 1): 0.88}), "link", "", ("12.1", "warn"), ("11.9", "fail")),
    "link_limit_warn": (link_run(2, rate=270.0), "link_limit", "", ("60", "pass"), ("60.1", "warn")),
    "link_limit_fail": (link_run(2, rate=270.0), "link_limit", "", ("60", "warn"), ("60.1", "fail")),
    "host_link_warn": (link_run(2), "host_link", "", ("87.7", "pass"), ("87.8", "warn")),  # 55.3 of 63.0 GB/s
    "host_link_fail": (link_run(2), "host_link", "host_link_warn=95", ("87.7", "warn"), ("87.8", "fail")),
    "limit_warn": (LOW, "device_speed", "limit_fail=10", ("41.5", "pass"), ("41.6", "warn")),
    "limit_fail": (LOW, "device_speed", "", ("41.5", "warn"), ("41.6", "fail")),
}
for gate, key in (("gemm", "gemm_tflops"), ("memory_copy", "memory_copy_gb_per_s"),
                  ("host_copy", "device_to_host_gb_per_s")):  # fmt: skip
    slow = with_one_slow(4, key, 0.88)
    MOVED |= {
        f"{gate}_peer_warn": (slow, "device_speed", f"{gate}_peer_fail=30", ("12.1", "pass"), ("11.9", "warn")),
        f"{gate}_peer_fail": (slow, "device_speed", f"{gate}_peer_warn=2", ("12.1", "warn"), ("11.9", "fail")),
    }
SWITCHED, PAIR = joined(8), joined(2)
RING, NVLS = run_with(340.0, SWITCHED), run_with(430.0, SWITCHED, nccl=log("NVLS"))  # 91.7 % of 370.8, 87.7 % of 490.4
BRIDGE, SPLIT = run_with(270.0, PAIR), run_with(200.0, PAIR, name="all_gather")  # 72.8 and 53.9 % of 370.8
CARDS = run_with(12.0, joined(2, nvlinks_active=0))  # 25 % of 48
HOT, WARM = slowed(*[0x80] * 3, *[0] * 7), slowed(*[0x20] * 3, *[0] * 7)  # 30 % of the time
UNEVEN = run_on(PAIR, collectives=[row(jitter=Jitter(operations=9, p50_us=1, p99_us=2, max_us=3, cv=0.08))])
MOVED |= {
    "busbw_warn": (RING, "busbw", "", ("91.6", "pass"), ("91.8", "warn")),
    "busbw_fail": (RING, "busbw", "busbw_warn=99", ("91.6", "warn"), ("91.8", "fail")),
    "busbw_direct_warn": (BRIDGE, "busbw", "busbw_direct_fail=10", ("72.8", "pass"), ("72.9", "warn")),
    "busbw_direct_fail": (BRIDGE, "busbw", "", ("72.8", "warn"), ("72.9", "fail")),
    "busbw_pair_split_warn": (SPLIT, "busbw", "busbw_pair_split_fail=10", ("53.9", "pass"), ("54", "warn")),
    "busbw_pair_split_fail": (SPLIT, "busbw", "", ("53.9", "warn"), ("54", "fail")),
    "busbw_nvls_warn": (NVLS, "busbw", "", ("87.6", "pass"), ("87.8", "warn")),
    "busbw_pcie_warn": (CARDS, "busbw", "", ("24.9", "pass"), ("25.1", "warn")),
    "busbw_pcie_fail": (CARDS, "busbw", "busbw_pcie_warn=90", ("24.9", "warn"), ("25.1", "fail")),
    "jitter_warn": (UNEVEN, "jitter", "", ("8.1", "none"), ("7.9", "warn")),
    "leaked_context_warn": (leaking(100 * MIB), "leaked_context", "", ("100", "none"), ("99", "warn")),
    "hardware_slowdown_warn": (HOT, "slowdown", "hardware_slowdown_fail=50", ("30", "none"), ("29.9", "warn")),
    "hardware_slowdown_fail": (HOT, "slowdown", "", ("30", "warn"), ("29.9", "fail")),
    "thermal_slowdown_warn": (WARM, "slowdown", "thermal_slowdown_fail=50", ("30", "none"), ("29.9", "warn")),
    "thermal_slowdown_fail": (WARM, "slowdown", "", ("30", "warn"), ("29.9", "fail")),
    "low_clock_warn": (multiplying(990, 0), "low_clock", "", ("50", "none"), ("50.1", "warn")),  # of 1980 MHz
}


def test_every_gate_of_bench_is_moved_below() -> None:
    assert set(MOVED) == set(names_for("bench"))


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_gate_decides_on_both_sides(name: str) -> None:
    run, check, beside, holds, trips = MOVED[name]
    for value, state in (holds, trips):
        if state == "none":
            assert all_of(under(run, f"{name}={value}", *filter(None, [beside])), check) == []
            continue
        finding = worst(under(run, f"{name}={value}", *filter(None, [beside])), check)
        assert finding.state.value == state
        if state in ("warn", "fail"):
            assert finding.expected is not None
            assert f"{value} {BY_NAME[name].unit}" in finding.expected


def test_a_gate_that_was_asked_for_counts_on_the_cpu_too() -> None:
    run = looked_at(spikes(100.0), on_cpu=True)
    assert worst(run, "transient").state is State.PASS
    assert worst(under(run, "transient_warn=5"), "transient").state is State.WARN


DEFAULTS = [threshold for threshold in THRESHOLDS if "bench" in threshold.commands]


@pytest.mark.parametrize("name", KEPT)
def test_defaults_that_are_spelled_change_nothing(name: str) -> None:
    run = kept(name)
    assert "thresholds" not in run.settings or run.settings["thresholds"].value == []
    every = spelled({threshold.name: threshold.default for threshold in DEFAULTS})
    assert judge(under(run, *every)) == judge(run)


@given(st.sets(st.sampled_from(sorted({each.name.rpartition("_")[0] for each in DEFAULTS}))), st.booleans())
def test_any_of_the_defaults_spelled_change_nothing(some: set[str], on_cpu: bool) -> None:
    run = looked_at(spikes(100.0, ranks=2), on_cpu=on_cpu)
    asked = {e.name: e.default_on(on_cpu=on_cpu) for e in DEFAULTS if e.name.rpartition("_")[0] in some}
    assert judge(under(run, *spelled(asked))) == judge(run)
