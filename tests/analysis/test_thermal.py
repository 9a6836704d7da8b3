"""Whether a run was long enough to see what heat does."""

from __future__ import annotations

import pytest

from gpubalance.analysis.thermal import ThermalReach, thermal_reach
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.testing.runs import make_attempt, make_run, steady


def warming(seconds: float, per_second: float, *, on_cpu: bool = False) -> Run:
    """A ddp phase of so many seconds, read each second, at the end of which it grows warmer by so much a second."""
    times = [float(t) for t in range(int(seconds) + 1)]
    readings = [60.0 + per_second * t for t in times]
    return make_run(
        [make_attempt(steady([100.0, 100.0], blocks=8, steps=4))],
        on_cpu=on_cpu,
        phases=[Phase(name="ddp", attempt=0, begin_s=0.0, end_s=seconds)],
        samples=Samples(t_s=times, devices=[DeviceSamples(device=0, columns={"temperature_c": list(readings)})]),
    )


@pytest.mark.parametrize(
    ("seconds", "per_second", "too_short"),
    [(59.0, 0.0, True), (60.0, 0.0, False), (61.0, 0.09, False), (300.0, 0.11, True), (300.0, -0.5, False)],
)
def test_sixty_seconds_and_a_settled_temperature_are_long_enough(
    seconds: float, per_second: float, too_short: bool
) -> None:
    reach = thermal_reach(warming(seconds, per_second))
    assert reach.loaded_s == seconds
    assert reach.rising_c == pytest.approx(10 * per_second, abs=1e-6)
    assert reach.too_short is too_short


def test_without_readings_only_the_time_counts() -> None:
    run = make_run(phases=[Phase(name="ddp", attempt=0, begin_s=0.0, end_s=90.0)])
    assert thermal_reach(run) == ThermalReach(90.0, None)
    assert not thermal_reach(run).too_short


def test_phases_that_load_all_devices_count_together() -> None:
    phases = [
        Phase(name=name, attempt=attempt, begin_s=0.0, end_s=end_s)
        for name, attempt, end_s in (("solo", 0, 5.0), ("ddp", 0, 50.0), ("collectives", 0, 90.0), ("ddp", 1, 90.0))
    ]
    assert thermal_reach(make_run(phases=phases)).loaded_s == 55.0


def test_a_cpu_has_no_thermal_limit_that_is_spoken_of() -> None:
    reach = thermal_reach(warming(10.0, 1.0, on_cpu=True))
    assert (reach.loaded_s, reach.too_short) == (None, False)


def test_two_readings_make_no_slope() -> None:
    run = warming(10.0, 1.0)
    few = DeviceSamples(device=0, columns={"temperature_c": [60.0, None, 70.0, *[None] * 8]})
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"devices": [few]})})
    assert thermal_reach(run).rising_c is None
