"""Which cause is named, and when none is: every cause alone, every pair of causes, and nobody who only waits."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from gpubalance.analysis.attribution import Attribution, Part, attributed
from gpubalance.analysis.causes import STRANGER
from gpubalance.analysis.causes_clock import CAPPED_TOO, NOT_TOLD
from gpubalance.analysis.causes_device import NO_PIDS, NO_REASON
from gpubalance.analysis.causes_transient import PAUSED_OR_BUSY
from gpubalance.record.run import Run
from gpubalance.record.samples import QuotaReading
from gpubalance.record.timings import BUSY
from gpubalance.testing.evidence import Traces, run_with
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.analysis.cause_cases import (
    HEALTHY,
    ON_CPU,
    ON_GPU,
    among,
    attributions,
    clock_limit,
    device_work,
    first_of,
    foreign_process,
    host,
    memory_bandwidth,
    of_slow,
    pcie,
    power_cap,
    thermal,
)

BLEND = {frozenset(pair) for pair in (("host", "cpu_contention"), ("memory_bandwidth", "foreign_process"))}
"""Pairs that leave the same traces: a process that is put off its core also sleeps, and an intruder also takes memory
bandwidth.
"""


def kinds(found: Attribution) -> dict[str, float]:
    return {part.kind: part.coverage for part in found.parts}


# Alone


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ON_GPU)
def test_a_cause_alone_is_named(name: str, ranks: int) -> None:
    found = of_slow(ON_GPU[name](HEALTHY, 20.0), ranks)
    assert (found.cause, found.excess) == (name, pytest.approx(0.20, abs=0.003))
    assert found.coverage == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_cause_alone_is_named_on_the_cpu(name: str) -> None:
    found = of_slow(ON_CPU[name](HEALTHY, 100.0), 2, on_cpu=True)
    assert found.cause == name
    assert found.coverage == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("name", ["thermal", "memory_bandwidth", "foreign_process", "device_work", "host", "pcie"])
def test_six_percent_have_a_cause_as_well(name: str) -> None:
    assert of_slow(ON_GPU[name](HEALTHY, 7.0)).cause == name


def test_more_work_on_a_machine_that_lacks_cores_is_still_more_work() -> None:
    """Each rank has a third of a core: 100 ms are 33 of work, and 200 are 67."""
    peer = replace(HEALTHY, blocked_ms=67.0, involuntary_per_s=110.0)
    slow = replace(peer.longer(forward=100.0), blocked_ms=134.0, involuntary_per_s=170.0)
    (found,) = attributions([peer, slow], on_cpu=True)
    assert (found.cause, found.coverage) == ("device_work", pytest.approx(1.0, abs=0.05))


def test_gradients_that_are_moved_by_the_cores_hide_no_sleep() -> None:
    """Two ranks on two cores, a sleep of 5.44 ms: CPU time of the process says 51 %, that of compute 97 %."""
    peer = Traces({"update": 0.3, "input": 0.0, "copy": 0.0, "forward": 2.2, "backward": 3.1})
    slow = replace(peer.longer(forward=5.6), blocked_ms=5.44)
    (found,) = attributions([peer, slow], on_cpu=True)
    assert (found.cause, found.coverage) == ("host", pytest.approx(5.44 / 5.6, abs=0.02))


def test_older_runs_know_the_cpu_time_of_the_process_alone() -> None:
    peer = Traces({"update": 0.3, "input": 0.0, "copy": 0.0, "forward": 2.2, "backward": 3.1})
    slow = replace(peer.longer(forward=5.6), blocked_ms=5.44)
    run = run_with([peer, slow], on_cpu=True)
    ranks = [rank.model_copy(update={"busy_ms": []}) for rank in run.ddp[0].ranks]
    older = run.model_copy(update={"ddp": [run.ddp[0].model_copy(update={"ranks": ranks})]})
    assert [each.cause for each in first_of(older).attributions] == ["host"]


def test_a_sleep_on_a_machine_that_lacks_cores_is_still_the_host() -> None:
    peer = replace(HEALTHY, blocked_ms=67.0, involuntary_per_s=110.0)
    slow = replace(peer.longer(forward=100.0), blocked_ms=167.0, involuntary_per_s=110.0)
    (found,) = attributions([peer, slow], on_cpu=True)
    assert (found.cause, found.coverage) == ("host", pytest.approx(1.0, abs=0.05))


# Two at once


@pytest.mark.parametrize("pair", [p for p in combinations(ON_GPU, 2) if frozenset(p) not in BLEND], ids="+".join)
def test_two_causes_half_and_half_are_both_told_and_none_is_named(pair: tuple[str, str]) -> None:
    one, other = pair
    found = of_slow(ON_GPU[other](ON_GPU[one](HEALTHY, 10.0), 10.0))
    assert found.cause is None
    assert found.coverage is None
    assert kinds(found) == pytest.approx({one: 0.5, other: 0.5}, abs=0.06)


@pytest.mark.parametrize("pair", [p for p in combinations(ON_CPU, 2) if frozenset(p) not in BLEND], ids="+".join)
def test_two_causes_on_the_cpu_are_never_one(pair: tuple[str, str]) -> None:
    one, other = pair
    found = of_slow(ON_CPU[other](ON_CPU[one](HEALTHY, 50.0), 50.0), 2, on_cpu=True)
    assert found.cause is None


@pytest.mark.parametrize("name", [name for name in ON_GPU if name != "device_work"])
def test_a_cause_that_explains_90_percent_is_named_by_that_much(name: str) -> None:
    found = of_slow(device_work(ON_GPU[name](HEALTHY, 18.0), 2.0))
    assert found.cause == name
    assert found.coverage is not None
    assert found.coverage >= 0.88


def test_parts_never_cover_more_than_everything() -> None:
    for one, other in combinations(ON_GPU, 2):
        found = of_slow(ON_GPU[other](ON_GPU[one](HEALTHY, 10.0), 10.0))
        assert sum(part.coverage for part in found.parts) <= 1.0 + 1e-9


# Worked by hand


def worked(clock_mhz: float, device_ms: float) -> Traces:
    """Rank 3 takes 120 ms where its peers take 100, at this clock against 1755 MHz."""
    slow = HEALTHY.slower_device(20.0)
    return replace(slow, clock_mhz=clock_mhz, device_ms=device_ms, counters={"thermal_violation_ns": 9_100_000_000})


def test_a_clock_of_1462_of_1755_mhz_explains_20_percent() -> None:
    """1755 / 1462 - 1 = 20.04 %, and 9.1 of the 10 s of the phase were thermal violations."""
    found = of_slow(replace(worked(1462.0, 115.0), reasons=(0x20 | 0x4,) * 91 + (0x4,) * 9))
    assert (found.cause, found.coverage) == ("thermal", pytest.approx(1.0, abs=0.02))
    part = found.parts[0]
    assert part.evidence == "thermal slowdown 91 % of the time, clock 1462 of 1755 MHz"
    assert part.more == ("the driver counts thermal violations for 91 % of the phase",)


def test_a_clock_that_explains_6_of_20_percent_names_nothing() -> None:
    """1755 / 1655.66 - 1 = 6 %, which is 30 % of 20 %."""
    found = of_slow(replace(worked(1655.66, 115.0), reasons=(0x20,), gemm_tflops=550.0))
    assert found.cause is None
    assert kinds(found)["thermal"] == pytest.approx(0.30, abs=0.005)


# Clocks


@pytest.mark.parametrize("bits", [0x20, 0x40, 0x4 | 0x20, 0x8 | 0x40, 0x4 | 0x8 | 0x40 | 0x100, 0x200 | 0x20])
def test_thermal_bits_are_found_among_others(bits: int) -> None:
    assert of_slow(replace(HEALTHY.lower_clock(20.0, bits), gemm_tflops=550.0)).cause == "thermal"


@pytest.mark.parametrize("bits", [0x80, 0x8 | 0x80, 0x4 | 0x80])
def test_a_power_brake_is_a_power_cap(bits: int) -> None:
    found = of_slow(HEALTHY.lower_clock(20.0, bits))
    assert found.cause == "power_cap"
    assert found.parts[0].evidence.startswith("hardware power brake 100 % of the time")


def test_a_power_cap_on_all_is_no_cause() -> None:
    """All are capped as often, under the same limit, and one of them has the lower clock: told, not named."""
    found = of_slow(replace(HEALTHY.lower_clock(20.0, 0x4), gemm_tflops=550.0))
    assert found.cause is None
    assert [(part.kind, part.doubt) for part in found.parts] == [("power_cap", CAPPED_TOO)]


def test_a_cap_where_peers_have_none_is_a_cause_if_the_device_is_slow_at_anything() -> None:
    free = replace(HEALTHY, reasons=(0,))
    slow = replace(free.lower_clock(20.0, 0x4), gemm_tflops=550.0)
    (found,) = attributions([free, free, free, slow])
    assert found.cause == "power_cap"
    assert found.parts[0].evidence == "power cap 100 % of the time, peers 0 %, clock 1462 of 1755 MHz"


@pytest.mark.parametrize("gemm_tflops", [660.0, None])
def test_a_cap_that_follows_from_more_work_is_no_cause(gemm_tflops: float | None) -> None:
    """The rank with more work is capped while its waiting peers clock up: by 6 of its 20 percent."""
    free = replace(HEALTHY, reasons=(0,), clock_mhz=1980.0)
    slow = replace(device_work(free, 20.0), reasons=(0x4,), clock_mhz=1870.0)
    run = run_with([free, free, free, slow])
    run = run if gemm_tflops else run.model_copy(update={"probes": []})
    (found,) = first_of(run).attributions
    assert kinds(found) == {"device_work": pytest.approx(1.0, abs=0.02)}


def test_a_lower_clock_without_a_reason_is_a_clock_limit() -> None:
    free = replace(HEALTHY, reasons=(0,))
    slow = replace(free.lower_clock(20.0, 0), gemm_tflops=550.0)
    (found,) = attributions([free, free, slow])
    assert found.cause == "clock_limit"
    assert "neither heat nor power" in found.parts[0].evidence


@pytest.mark.parametrize(
    ("counters", "cause"),
    [
        ({"thermal_violation_ns": 9_100_000_000, "power_violation_ns": 100_000_000}, "thermal"),
        ({"thermal_violation_ns": 0, "power_violation_ns": 9_000_000_000}, "power_cap"),
        ({"thermal_violation_ns": 0, "power_violation_ns": 0}, "clock_limit"),
        ({}, "clock_limit"),
        ({"thermal_violation_ns": 0}, "clock_limit"),
    ],
)
def test_without_event_reasons_the_counters_of_violations_tell(counters: dict[str, int], cause: str) -> None:
    slow = replace(HEALTHY.lower_clock(20.0, 0), gemm_tflops=550.0, counters=counters)
    run = run_with(among(slow))
    devices = [
        samples.model_copy(update={"columns": {k: v for k, v in samples.columns.items() if k != "event_reasons"}})
        for samples in run.samples.devices
    ]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"devices": devices})})
    (found,) = first_of(run).attributions
    assert found.parts[0].kind == cause
    told = len(counters) == 2
    assert (found.cause, found.parts[0].doubt) == ((cause, "") if told else (None, NOT_TOLD))


def test_a_clock_that_is_low_because_the_host_lets_the_device_idle_is_no_cause() -> None:
    found = of_slow(replace(host(HEALTHY, 20.0), clock_mhz=1462.0, reasons=(0x1,)))
    assert (found.cause, kinds(found)) == ("host", {"host": pytest.approx(1.0, abs=0.02)})


# Somebody else on the device


def test_a_process_that_only_holds_memory_is_not_blamed() -> None:
    found = of_slow(replace(device_work(HEALTHY, 20.0), stranger_pids=(4711,)))
    assert found.cause == "device_work"


def test_a_rival_is_blamed_although_it_lowers_the_clock_and_every_probe() -> None:
    rival = replace(
        foreign_process(HEALTHY, 136.0), clock_mhz=1400.0, gemm_tflops=300.0, memory_gb_per_s=2000.0, reasons=(0x4,)
    )
    found = of_slow(rival)
    assert (found.cause, found.coverage) == ("foreign_process", pytest.approx(1.0, abs=0.02))
    assert found.parts[0].evidence == "work of pid 4711 on its device"


def test_a_process_that_was_gone_before_the_fenced_blocks_is_not_blamed() -> None:
    run = run_with(among(HEALTHY.slower_device(20.0)))
    gone = [
        process.model_copy(update={"pid": 4711, "rank": None, "first_seen_s": 0.0, "last_seen_s": 4.0})
        for process in run.samples.processes[-1:]
    ]
    processes = [*run.samples.processes, *gone]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"processes": processes})})
    (found,) = first_of(run).attributions
    assert "foreign_process" not in kinds(found)


def test_pids_of_another_namespace_blame_nobody() -> None:
    run = run_with(among(foreign_process(HEALTHY, 20.0)))
    unknown = [process.model_copy(update={"rank": None}) for process in run.samples.processes]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"processes": unknown})})
    (found,) = first_of(run).attributions
    assert "foreign_process" not in kinds(found)


# What says that a slower device is slower


def test_a_device_that_is_slow_for_no_known_reason_is_not_said_to_work_more() -> None:
    found = of_slow(replace(HEALTHY.slower_device(20.0), gemm_tflops=550.0))
    assert (found.cause, kinds(found)) == (None, {"device": pytest.approx(1.0, abs=0.02)})
    assert found.parts[0].doubt == NO_REASON


@pytest.mark.parametrize("ms", [8.0, 20.0])
def test_a_device_that_is_slow_in_the_blocks_only_is_not_said_to_work_more(ms: float) -> None:
    """The probe is from before: what came later, errors of its memory for example, is not in it."""
    found = of_slow(replace(HEALTHY.slower_device(ms), counters={"ecc_corrected": 500_000}))
    assert (found.cause, kinds(found)) == (None, {"device": pytest.approx(1.0, abs=0.02)})


def test_a_slower_device_whose_steps_are_longer_in_one_stage_does_more_work() -> None:
    """Its matrix product is 4.6 % slower by a probe, and no stage but forward is; it is not said to be as fast."""
    found = of_slow(replace(device_work(HEALTHY, 8.0), gemm_tflops=660.0 / 1.046))
    assert (found.cause, found.coverage) == ("device_work", pytest.approx(1.0, abs=0.02))
    assert found.parts[0].more == ()


def test_a_slow_device_whose_processes_cannot_be_told_is_said_with_that() -> None:
    run = run_with(among(foreign_process(HEALTHY, 8.0)))
    unknown = [process.model_copy(update={"rank": None}) for process in run.samples.processes]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"processes": unknown})})
    (found,) = first_of(run).attributions
    assert (found.cause, [(part.kind, part.doubt) for part in found.parts]) == (None, [("device", NO_PIDS)])


# Clocks that say less than they seem to


@pytest.mark.parametrize(
    ("what", "peer", "slow"),
    [
        ("heat on all", {"reasons": (0x24,)}, {"reasons": (0x24,)}),
        ("a limit that is hardly lower", {}, {"readings": {"power_limit_w": 690.0}}),
        ("a brake in one of 100 samples", {}, {"reasons": (0x4,) * 99 + (0x84,)}),
        ("a highest clock that is hardly lower", {"reasons": (0,)}, {"readings": {"sm_clock_max_mhz": 1965.0}}),
    ],
)
def test_a_clock_that_peers_raise_while_they_wait_is_no_cause_of_work_in_one_stage(
    what: str, peer: dict[str, Any], slow: dict[str, Any]
) -> None:
    """H200: 1830 MHz beside peers at 1965, 7.4 %, for 1.5 % of time."""
    fast = replace(HEALTHY, clock_mhz=1965.0, **peer)
    busy = replace(device_work(fast, 8.0), clock_mhz=1830.0, **slow)
    (found,) = attributions([fast, fast, fast, busy])
    assert found.cause == "device_work", what


@pytest.mark.parametrize("ms", [8.0, 20.0])
def test_heat_in_the_blocks_that_is_gone_at_the_replay_is_heat(ms: float) -> None:
    found = of_slow(replace(thermal(HEALTHY, ms), device_ms=HEALTHY.device_ms))
    assert (found.cause, found.coverage) == ("thermal", pytest.approx(1.0, abs=0.02))


def test_an_intruder_that_is_gone_at_the_replay_is_not_taken_for_a_slow_host() -> None:
    found = of_slow(replace(foreign_process(HEALTHY, 20.0), device_ms=HEALTHY.device_ms))
    assert (found.cause, [(part.kind, part.doubt) for part in found.parts]) == (None, [("host", STRANGER)])


def test_an_intruder_that_explains_71_percent_is_told_by_that() -> None:
    found = of_slow(device_work(foreign_process(HEALTHY, 14.2), 5.8))
    assert (found.cause, kinds(found)) == (
        None, {"foreign_process": pytest.approx(0.71, abs=0.02), "device_work": pytest.approx(0.29, abs=0.02)},
    )  # fmt: skip


def test_without_probes_and_stages_nobody_is_said_to_work_more() -> None:
    run = run_with(among(device_work(HEALTHY, 20.0))).model_copy(update={"probes": []})
    ranks = [rank.model_copy(update={"stages_ms": {}}) for rank in run.ddp[0].ranks]
    run = run.model_copy(update={"ddp": [run.ddp[0].model_copy(update={"ranks": ranks})]})
    (found,) = first_of(run).attributions
    assert found.cause is None


def test_the_stage_of_more_work_is_said() -> None:
    backward = replace(HEALTHY.longer(backward=20.0), device_ms=115.0)
    assert of_slow(backward).parts[0].evidence == "more work on its device (stage backward)"


def test_errors_of_slow_memory_stand_beside_it() -> None:
    slow = replace(memory_bandwidth(HEALTHY, 20.0), counters={"ecc_corrected": 12, "rows_remapped_uncorrectable": 0})
    assert of_slow(slow).parts[0].more == ("12 new corrected ECC errors",)


def test_a_slow_memory_that_explains_only_a_third_is_told_by_that() -> None:
    slow = replace(HEALTHY.slower_device(20.0), memory_gb_per_s=4250.0 / 1.06)
    assert kinds(of_slow(slow)) == {
        "memory_bandwidth": pytest.approx(0.3, abs=0.01),
        "device": pytest.approx(0.7, abs=0.02),
    }


def test_slow_memory_that_no_stage_shows_explains_nothing() -> None:
    slow = replace(device_work(HEALTHY, 10.0), memory_gb_per_s=4250.0 / 1.09)
    assert of_slow(slow).cause == "device_work"


# Host


def test_what_is_known_of_the_link_stands_beside_slow_copies() -> None:
    slow = replace(
        pcie(HEALTHY, 20.0), columns={"pcie_width": 4}, readings={"pcie_width_max": 16}, counters={"pcie_replays": 12}
    )
    found = of_slow(slow)
    assert found.parts[0].more == (
        "host copies 12.0 GB/s, peers 55.0 GB/s",
        "PCIe width 4 of 16 under load",
        "12 PCIe replays",
    )


def test_a_slow_link_that_nothing_is_copied_over_explains_nothing() -> None:
    found = of_slow(replace(device_work(HEALTHY, 20.0), host_copy_gb_per_s=6.0))
    assert found.cause == "device_work"


def test_hosts_of_one_numa_node_are_named_by_it() -> None:
    near = [replace(HEALTHY, readings={"numa_node": 0})] * 5
    far = [replace(host(HEALTHY, 20.0), readings={"numa_node": 1})] * 3
    found = attributions([*near, *far])
    assert sorted((each.rank, each.cause) for each in found) == [(5, "numa"), (6, "numa"), (7, "numa")]
    assert "NUMA node 1" in found[0].parts[0].evidence


def test_a_node_with_one_hot_device_and_one_slow_host_is_no_numa() -> None:
    near = [replace(HEALTHY, readings={"numa_node": 0})] * 6
    hot, asleep = (replace(make(HEALTHY, 20.0), readings={"numa_node": 1}) for make in (thermal, host))
    assert {each.rank: each.cause for each in attributions([*near, hot, asleep])} == {6: "thermal", 7: "host"}


def test_a_slow_host_beside_fast_ones_of_its_node_is_no_numa() -> None:
    near = [replace(HEALTHY, readings={"numa_node": 0})] * 5
    far = [replace(host(HEALTHY, 20.0), readings={"numa_node": 1})] * 2
    rest = [replace(HEALTHY, readings={"numa_node": 1})]
    assert {each.cause for each in attributions([*near, *far, *rest])} == {"host"}


@pytest.mark.parametrize(("own", "peers"), [(15.0, 1.0), (150.0, 80.0)])
def test_a_busy_host_is_not_contention_of_one_rank(own: float, peers: float) -> None:
    others = replace(HEALTHY, involuntary_per_s=peers)
    slow = replace(host(HEALTHY, 20.0), involuntary_per_s=own)
    (found,) = attributions([others, others, others, slow])
    assert found.cause == "host"


@pytest.mark.parametrize(("queued_ms", "cause"), [(16.0, "cpu_contention"), (11.0, "cpu_contention"), (9.0, "host")])
def test_time_in_line_for_a_core_counts_more_than_how_often_it_was_lost(queued_ms: float, cause: str) -> None:
    """Few switches, long waits: 9 a second on an H200 whose rank shared its core with 8 busy processes."""
    others = replace(HEALTHY, queued_ms=0.5, involuntary_per_s=0.0)
    slow = replace(host(others, 20.0), queued_ms=queued_ms, involuntary_per_s=9.0)
    (found,) = attributions([others, others, others, slow])
    assert (found.cause, found.coverage) == (cause, pytest.approx(1.0, abs=0.05))


def test_more_work_stands_in_line_longer_and_is_still_more_work() -> None:
    peer = replace(HEALTHY, blocked_ms=67.0, queued_ms=67.0)
    slow = replace(peer.longer(forward=100.0), blocked_ms=134.0, queued_ms=134.0)
    (found,) = attributions([peer, slow], on_cpu=True)
    assert found.cause == "device_work"
    hog = replace(peer.longer(forward=100.0), blocked_ms=167.0, queued_ms=167.0)
    (found,) = attributions([peer, hog], on_cpu=True)
    assert found.cause == "cpu_contention"


# Who gets one


@pytest.mark.parametrize("name", ON_GPU)
def test_only_the_slow_rank_has_an_attribution(name: str) -> None:
    assert [each.rank for each in attributions(among(ON_GPU[name](HEALTHY, 20.0), 8))] == [7]


def test_a_healthy_run_has_none() -> None:
    assert attributions([HEALTHY] * 4) == ()


def test_healthy_ranks_with_odd_evidence_have_none() -> None:
    """Whatever a device shows, a rank that is not slow needs no cause."""
    odd = replace(HEALTHY, clock_mhz=1500.0, reasons=(0x24,), stranger_pids=(1,), memory_gb_per_s=3000.0)
    assert attributions([HEALTHY, HEALTHY, HEALTHY, odd]) == ()


def test_every_slow_rank_of_a_slow_half_has_its_own_cause() -> None:
    slow = [thermal(HEALTHY, 20.0), power_cap(HEALTHY, 20.0), host(HEALTHY, 20.0)]
    found = attributions([*[HEALTHY] * 5, *slow])
    assert sorted((each.rank, each.cause) for each in found) == [(5, "thermal"), (6, "power_cap"), (7, "host")]


def test_more_data_is_told_from_a_slower_device() -> None:
    """1.5 times the data in 1.4 times the time, which is 1.4 units of work."""
    more = replace(HEALTHY.slower_device(40.0), samples=6144, units=1.4)
    found = of_slow(more)
    assert (found.cause, found.excess) == ("data_imbalance", pytest.approx(0.40, abs=0.005))
    assert found.coverage == pytest.approx(1.0, abs=0.02)


def test_more_data_on_a_slow_device_leaves_the_device_its_cause() -> None:
    """1.2 units in 1.44 times the time: per unit 20 % slower, by heat."""
    hot = HEALTHY.lower_clock(20.0, 0x20)
    stages = {stage: 1.2 * ms for stage, ms in hot.stages_ms.items()}
    slow = replace(hot, stages_ms=stages, device_ms=1.2 * 115.0, units=1.2, samples=5000)
    found = of_slow(slow)
    assert (found.cause, found.excess) == ("thermal", pytest.approx(0.20, abs=0.005))


def test_a_leader_of_a_transient_loss_is_looked_at() -> None:
    compute = steady([100.0] * 4)
    compute[3, :, ::10] *= 2
    (found,) = first_of(make_run([make_attempt(compute)])).attributions
    assert (found.rank, found.cause, found.excess) == (3, None, pytest.approx(0.10))


# Now and then: 60 ms more in one step of six are 10 ms a step, 10 % of 100 ms


def now_and_then(seen: Traces, *, on_cpu: bool = False) -> Attribution:
    (found,) = first_of(run_with(among(seen), on_cpu=on_cpu)).attributions
    return found


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(("stage", "cause"), [("input", "input_pipeline"), ("copy", "pcie")])
def test_input_and_copies_that_take_longer_now_and_then_are_named(stage: str, cause: str, on_cpu: bool) -> None:
    found = now_and_then(replace(HEALTHY, now_and_then_ms={stage: 60.0 if not on_cpu else 600.0}), on_cpu=on_cpu)
    assert (found.cause, found.coverage) == (cause, pytest.approx(1.0, abs=0.02))
    assert found.excess == pytest.approx(1.0 if on_cpu else 0.1, rel=0.02)


def test_a_device_that_is_slow_now_and_then_is_told_and_not_explained() -> None:
    found = now_and_then(replace(HEALTHY, now_and_then_ms={"forward": 60.0}))
    (part,) = found.parts
    assert (found.cause, part.kind, part.doubt) == (None, "device_work", PAUSED_OR_BUSY)
    assert part.evidence == "longer steps now and then (stage forward)"
    assert part.coverage == pytest.approx(1.0, abs=0.02)


def test_on_the_cpu_more_work_in_some_steps_is_told_from_time_without_a_core() -> None:
    work = {"forward": 600.0, BUSY: 600.0}
    assert now_and_then(replace(HEALTHY, now_and_then_ms=work), on_cpu=True).cause == "device_work"
    asleep = {"forward": 600.0}
    assert now_and_then(replace(HEALTHY, now_and_then_ms=asleep), on_cpu=True).cause == "host"
    half = {"forward": 600.0, BUSY: 300.0}
    mixed = now_and_then(replace(HEALTHY, now_and_then_ms=half), on_cpu=True)
    assert mixed.cause is None
    assert kinds(mixed) == {"device_work": pytest.approx(0.5, abs=0.02), "host": pytest.approx(0.5, abs=0.02)}


@pytest.mark.parametrize("on_cpu", [False, True])
def test_who_stands_in_line_for_a_core_now_and_then_shares_it(on_cpu: bool) -> None:
    longer = 600.0 if on_cpu else 60.0
    peers = replace(HEALTHY, queued_ms=0.5)
    seen = replace(HEALTHY, now_and_then_ms={"forward": longer}, queued_ms=0.5 + 0.9 * longer / 6)
    (found,) = first_of(run_with([peers, peers, seen, peers], on_cpu=on_cpu)).attributions
    assert (found.rank, found.cause) == (2, "cpu_contention")
    assert found.coverage == pytest.approx(1.0 if on_cpu else 0.9, abs=0.02)


def test_standing_in_line_as_long_as_peers_explains_nothing() -> None:
    seen = replace(HEALTHY, now_and_then_ms={"forward": 60.0}, queued_ms=9.0)
    (found,) = first_of(run_with([replace(HEALTHY, queued_ms=9.0)] * 3 + [seen])).attributions
    assert found.cause is None


def test_the_quota_of_the_control_group_stands_beside_host_time() -> None:
    run = run_with(among(host(HEALTHY, 20.0)))
    quota = [QuotaReading(t_s=5.0, periods=100, throttled=10), QuotaReading(t_s=15.0, periods=200, throttled=50)]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"quota": quota})})
    (found,) = first_of(run).attributions
    assert found.parts[0].more == ("the control group's CPU quota stopped its processes in 40 % of periods",)


# Older records


def old(graph_ms: float) -> Run:
    """Before there were stages: the graph was replayed in the solo phase only."""
    solo = [make_solo(rank, 95.0 if rank < 3 else graph_ms) for rank in range(4)]
    run = run_with(among(HEALTHY.longer(forward=20.0)))
    plain = [rank.model_copy(update={"stages_ms": {}, "host": [], "device_step_ms": None}) for rank in run.ddp[0].ranks]
    return run.model_copy(update={"solo": solo, "ddp": [run.ddp[0].model_copy(update={"ranks": plain})]})


@pytest.mark.parametrize(("graph_ms", "cause"), [(115.0, "device_work"), (95.0, "host"), (105.0, None)])
def test_a_record_without_stages_is_attributed_as_far_as_it_goes(graph_ms: float, cause: str | None) -> None:
    (found,) = first_of(old(graph_ms)).attributions
    assert found.cause == cause


def test_a_device_that_grew_hot_after_its_replay_is_not_taken_for_a_slow_host() -> None:
    run = old(95.0)
    hot = run_with(among(thermal(HEALTHY, 20.0)))
    (found,) = first_of(run.model_copy(update={"samples": hot.samples})).attributions
    assert found.cause == "thermal"


def test_an_intruder_that_came_after_the_replay_is_not_taken_for_a_slow_host() -> None:
    run = old(95.0)
    intruded = run_with(among(foreign_process(HEALTHY, 20.0)))
    (found,) = first_of(run.model_copy(update={"samples": intruded.samples})).attributions
    assert found.cause is None


def test_in_a_second_attempt_the_replay_of_the_solo_phase_says_nothing() -> None:
    """Ranks have changed devices since."""
    run = old(115.0)
    moved = [rank.model_copy(update={"device": (rank.rank + 1) % 4}) for rank in run.ddp[0].ranks]
    run = run.model_copy(update={"ddp": [run.ddp[0].model_copy(update={"ranks": moved})]})
    (found,) = first_of(run).attributions
    assert found.cause is None


# The rule of 80 %


@pytest.mark.parametrize(("coverage", "cause"), [(0.80, "thermal"), (0.79, None), (1.0, "thermal")])
def test_a_cause_is_named_from_80_percent_on(coverage: float, cause: str | None) -> None:
    assert attributed(0, 0.2, [Part("thermal", coverage, "heat")]).cause == cause


def test_parts_of_one_kind_count_together() -> None:
    found = attributed(0, 0.2, [Part("thermal", 0.5, "a"), Part("thermal", 0.4, "b"), Part("host", 0.1, "c")])
    assert (found.cause, found.coverage) == ("thermal", pytest.approx(0.9))


def test_what_may_be_a_consequence_is_never_named() -> None:
    assert attributed(0, 0.2, [Part("power_cap", 1.0, "cap", doubt="capped as well")]).cause is None


def test_parts_stand_by_size_and_small_ones_are_left_out() -> None:
    found = attributed(0, 0.2, [Part("host", 0.04, "a"), Part("pcie", 0.3, "b"), Part("thermal", 0.5, "c")])
    assert [part.kind for part in found.parts] == ["thermal", "pcie"]


def test_a_lower_maximum_clock_is_said() -> None:
    found = of_slow(clock_limit(HEALTHY, 20.0))
    assert found.parts[0].evidence == "highest clock set to 1500 MHz, peers 1980 MHz, clock 1462 of 1755 MHz"
