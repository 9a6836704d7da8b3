"""What the sensor saw of one device in one window of the run."""

from __future__ import annotations

import pytest

from gpubalance.analysis.sampled import sampled_each, sampled_in, window_of
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import Column, DeviceSamples, Samples
from gpubalance.testing.runs import make_run

WINDOW = Phase(name="ddp overlapped", attempt=0, begin_s=10.0, end_s=12.0)


def run_with(*phases: Phase, **columns: Column) -> Run:
    """Device 1 was sampled at 9, 10, 11, 12 and 13 s."""
    samples = Samples(t_s=[9.0, 10.0, 11.0, 12.0, 13.0], devices=[DeviceSamples(device=1, columns=columns)])
    return make_run(samples=samples, phases=list(phases))


def phase(name: str, begin_s: float, end_s: float | None, attempt: int = 0) -> Phase:
    return Phase(name=name, attempt=attempt, begin_s=begin_s, end_s=end_s)


def test_the_first_finished_window_of_the_names_counts() -> None:
    run = run_with(phase("ddp", 1, 9), phase("ddp fenced", 2, 5), phase("ddp overlapped", 5, None))
    window = window_of(run, "ddp overlapped", "ddp fenced", "ddp")
    assert window is not None
    assert window.name == "ddp fenced"


def test_a_window_of_another_attempt_does_not_count() -> None:
    run = run_with(phase("ddp", 20, 30, attempt=1))
    assert window_of(run, "ddp") is None
    assert window_of(run, "ddp", attempt=1) is not None


def test_only_samples_inside_the_window_count() -> None:
    """Both edges belong to it."""
    seen = sampled_in(run_with(power_w=[0, 100, 200, 600, 5000]), WINDOW, 1)
    assert seen is not None
    assert (seen.samples, seen.power_w) == (3, 300.0)


def test_percentages_become_shares() -> None:
    columns = {"utilization_percent": [0, 90, 100, 80, 0], "gpm_sm_percent": [0, 0.5, 1.0, 1.5, 0]}
    seen = sampled_in(run_with(**columns, cpu_percent=[0, 100, 150, 50, 0]), WINDOW, 1)
    assert seen is not None
    assert (seen.utilization, seen.sm, seen.cpu) == pytest.approx((0.9, 0.01, 1.0))


def test_clock_temperature_and_resident_memory_are_means() -> None:
    columns = {"sm_clock_mhz": [1, 1980, 1470, 1980, 1], "temperature_c": [1, 60, 70, 80, 1]}
    seen = sampled_in(run_with(**columns, resident_bytes=[0, 100, 200, 301, 0]), WINDOW, 1)
    assert seen is not None
    assert (seen.sm_clock_mhz, seen.temperature_c, seen.resident_bytes) == (1810.0, 70.0, 200)


def test_a_sample_that_failed_is_not_a_zero() -> None:
    seen = sampled_in(run_with(power_w=[None, 100, None, 200, None]), WINDOW, 1)
    assert seen is not None
    assert seen.power_w == 150.0


def test_what_the_device_does_not_offer_is_none() -> None:
    seen = sampled_in(run_with(power_w=[1, 1, 1, 1, 1]), WINDOW, 1)
    assert seen is not None
    assert (seen.utilization, seen.sm, seen.temperature_c, seen.cpu, seen.resident_bytes) == (None,) * 5
    assert seen.reasons_share == {}


def test_event_reasons_are_counted_bit_by_bit() -> None:
    """Power cap in two of three samples, thermal slowdown in one of them as well; samples outside do not count."""
    seen = sampled_in(run_with(event_reasons=[0x80, 0x4, 0x24, 0, 0x8]), WINDOW, 1)
    assert seen is not None
    assert seen.reasons_share == pytest.approx({0x4: 2 / 3, 0x20: 1 / 3})


def test_event_reasons_that_could_not_be_read_do_not_dilute_the_share() -> None:
    seen = sampled_in(run_with(event_reasons=[None, 0x20, None, 0x20, None]), WINDOW, 1)
    assert seen is not None
    assert seen.reasons_share == {0x20: 1.0}


@pytest.mark.parametrize(
    ("window", "device"),
    [(None, 1), (phase("ddp", 1, None), 1), (WINDOW, 0), (phase("ddp", 20, 30), 1)],
    ids=["no window", "an unfinished window", "another device", "a window without samples"],
)
def test_without_samples_there_is_nothing(window: Phase | None, device: int) -> None:
    assert sampled_in(run_with(power_w=[1, 1, 1, 1, 1]), window, device) is None


def test_several_devices_are_read_in_the_order_asked_for() -> None:
    run = run_with(power_w=[1, 2, 3, 4, 5])
    more = DeviceSamples(device=0, columns={"power_w": [10, 20, 30, 40, 50]})
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"devices": [*run.samples.devices, more]})})
    seen = sampled_each(run, WINDOW, [1, 2, 0])
    assert [each.power_w if each else None for each in seen] == [3.0, None, 30.0]
    assert seen == tuple(sampled_in(run, WINDOW, device) for device in (1, 2, 0))
