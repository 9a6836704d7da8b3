"""What stands beside a slow rank."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.analysis.facts import Facts, compute_facts
from gpubalance.checks.evidence import sensor_evidence, time_class
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady


def facts_of(run: Run) -> Facts:
    return compute_facts(run, 0.05, 0.10)


def class_of(graph_ms: list[float | None], compute_ms: list[float], units: list[float] | None = None) -> str:
    """The class of time that the last rank loses."""
    solo = [make_solo(rank, ms) for rank, ms in enumerate(graph_ms)]
    run = make_run([make_attempt(steady(compute_ms), units=units)], solo=solo)
    facts = facts_of(run)
    assert facts.first is not None
    return time_class(run, facts.first, facts.first.stragglers.ranks[-1])


@pytest.mark.parametrize("device_ms", [108.0, 107.0])
def test_a_device_that_is_slow_alone_as_well_loses_device_time(device_ms: float) -> None:
    """90 ms against 108 are 20 %, which is all of it, and 107 ms are 94 % of it."""
    assert class_of([90.0, 90.0, device_ms], [100.0, 100.0, 120.0]).startswith("device time")


@pytest.mark.parametrize("device_ms", [90.0, 93.0, 85.0])
def test_a_device_that_is_fast_alone_loses_host_time(device_ms: float) -> None:
    assert class_of([90.0, 90.0, device_ms], [100.0, 100.0, 120.0]).startswith("host time")


def test_what_is_between_is_said_by_its_share() -> None:
    """9 of 90 ms are 10 %, which is half of 20 %."""
    text = class_of([90.0, 90.0, 99.0], [100.0, 100.0, 120.0])
    assert text == "device time covers 50 % of it, the rest is host time"


def test_one_fast_device_does_not_make_device_time() -> None:
    """The peer is the middle of the others, not the fastest."""
    assert class_of([60.0, 90.0, 90.0, 90.0], [100.0, 100.0, 100.0, 120.0]).startswith("host time")


def test_a_rank_with_more_data_is_compared_by_unit_of_work() -> None:
    assert class_of([90.0, 162.0], [100.0, 180.0], units=[1.0, 1.5]).startswith("device time")
    assert class_of([90.0, 135.0], [100.0, 180.0], units=[1.0, 1.5]).startswith("host time")


def test_a_peer_with_more_data_is_compared_by_unit_of_work_as_well() -> None:
    """Rank 0 does 1.5 units in 135 ms, which is 90 a unit, rank 1 one in 108."""
    assert class_of([135.0, 108.0], [150.0, 120.0], units=[1.5, 1.0]).startswith("device time")


@pytest.mark.parametrize("graph_ms", [[], [None, None], [90.0, None], [None, 108.0]])
def test_without_replayed_graphs_the_class_is_not_measured(graph_ms: list[float | None]) -> None:
    assert class_of(graph_ms, [100.0, 120.0]) == "class of time not measured: no graph replay"


def sampled(*columns: dict[str, float], **values: Any) -> Facts:
    devices = [
        DeviceSamples(device=device, columns={key: [value] for key, value in each.items()})
        for device, each in enumerate(columns)
    ]
    run = make_run(
        [make_attempt(steady([100.0] * len(columns)), **values)],
        samples=Samples(t_s=[1.0], devices=devices),
        phases=[Phase(name="ddp overlapped", attempt=0, begin_s=0.0, end_s=2.0)],
    )
    return facts_of(run)


NORMAL = {"sm_clock_mhz": 1755.0, "power_w": 690.0, "temperature_c": 61.0}


def test_clock_power_and_temperature_stand_beside_those_of_the_peers() -> None:
    facts = sampled(NORMAL, NORMAL, {"sm_clock_mhz": 1462.0, "power_w": 402.0, "temperature_c": 88.0})
    assert sensor_evidence(facts, 2) == [
        "clock 1462 MHz, peers 1755 MHz, power 402 W, peers 690 W, temperature 88 C, peers 61 C"
    ]


def test_what_a_device_does_not_offer_is_left_out() -> None:
    facts = sampled({"power_w": 690.0, "temperature_c": 61.0}, {"sm_clock_mhz": 1755.0, "power_w": 400.0})
    assert sensor_evidence(facts, 1) == ["power 400 W, peers 690 W"]


def test_slowdowns_stand_in_the_evidence_and_a_power_cap_does_not() -> None:
    facts = sampled(NORMAL, {**NORMAL, "event_reasons": 0x44})
    assert sensor_evidence(facts, 1)[1:] == ["hardware thermal slowdown in 100 % of the loaded samples"]


def test_the_device_is_that_of_the_rank() -> None:
    facts = sampled({"power_w": 400.0}, {"power_w": 690.0}, devices=[1, 0])
    assert sensor_evidence(facts, 1) == ["power 400 W, peers 690 W"]


def test_without_samples_there_is_no_evidence() -> None:
    run = make_run([make_attempt(steady([100.0, 120.0]))])
    assert sensor_evidence(facts_of(run), 1) == []


def test_without_sampled_peers_there_is_no_evidence() -> None:
    assert sensor_evidence(sampled(NORMAL), 0) == []
