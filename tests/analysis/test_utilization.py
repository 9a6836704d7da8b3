"""Useful utilization: device time of a step over the real step."""

from __future__ import annotations

import pytest

from gpubalance.analysis.utilization import utilization_of
from gpubalance.record.timings import SoloResult
from gpubalance.testing.runs import make_run, make_solo


def test_evenness_is_the_mean_over_the_largest_device_time() -> None:
    run = make_run(ranks=4, solo=[make_solo(rank, ms) for rank, ms in enumerate([80.0, 100.0, 80.0, 60.0])])
    assert utilization_of(run, 160.0).score == pytest.approx(80.0)


def test_level_is_the_device_time_over_the_real_step() -> None:
    run = make_run(solo=[make_solo(0, 80.0), make_solo(1, 100.0)])
    assert utilization_of(run, 160.0).useful == pytest.approx((0.5, 0.625))


def test_level_is_never_above_one() -> None:
    assert utilization_of(make_run(solo=[make_solo(0, 80.0), make_solo(1, 100.0)]), 90.0).useful[1] == 1.0


def test_even_devices_at_seven_percent_are_even() -> None:
    use = utilization_of(make_run(solo=[make_solo(0, 7.0), make_solo(1, 7.0)]), 100.0)
    assert use.score == pytest.approx(100.0)
    assert use.useful == pytest.approx((0.07, 0.07))


def test_without_a_real_step_there_is_no_level() -> None:
    use = utilization_of(make_run(solo=[make_solo(0, 80.0), make_solo(1, 80.0)]), None)
    assert use.useful == (None, None)
    assert use.score == pytest.approx(100.0)


def test_without_the_solo_phase_the_reason_is_said() -> None:
    use = utilization_of(make_run(), 100.0)
    assert (use.score, use.useful, use.missing) == (None, (), "the solo phase did not run")


@pytest.mark.parametrize("without", [(0,), (1,), (0, 1)])
def test_a_device_without_a_replayed_graph_leaves_no_score_and_a_reason(without: tuple[int, ...]) -> None:
    run = make_run(solo=[make_solo(rank, None if rank in without else 80.0) for rank in (0, 1)])
    use = utilization_of(run, 100.0)
    assert (use.score, use.useful, use.missing) == (None, (None, None), "no graph")


def launched(rank: int, eager_step_ms: float, graph_step_ms: float = 50.0) -> SoloResult:
    return make_solo(rank, graph_step_ms, eager_step_ms=eager_step_ms)


def test_a_step_whose_launch_takes_longer_than_its_compute_is_host_bound() -> None:
    """Eager 101 ms, device 50: more than half of the step is not the device."""
    use = utilization_of(make_run(solo=[launched(0, 99.0), launched(1, 101.0)]), 100.0)
    assert use.host_bound == (False, True)


def test_ranks_stand_in_order_whatever_order_they_were_recorded_in() -> None:
    use = utilization_of(make_run(solo=[launched(1, 150.0, 60.0), launched(0, 60.0, 30.0)]), 120.0)
    assert use.useful == pytest.approx((0.25, 0.5))
    assert use.host_bound == (False, True)
