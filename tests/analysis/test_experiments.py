"""What a variable costs, computed from both sides."""

from __future__ import annotations

import pytest

from gpubalance.analysis.experiments import costs_of
from gpubalance.record.experiment import Arm, Experiment, TouchRow


def experiment(on: dict[int, float], off: dict[int, float]) -> Experiment:
    arms = [
        Arm(
            value=value,
            rows=[
                TouchRow(size_bytes=size, time_us=1.0, bus_bandwidth_gb_per_s=rate, wrong_elements=0)
                for size, rate in rates.items()
            ],
        )
        for value, rates in (("0", on), ("1", off))
    ]
    return Experiment(name="p2p", variable="NCCL_P2P_DISABLE", found=None, ranks=2, arms=arms)


def test_the_factor_is_the_rate_without_the_variable_over_the_rate_with_it() -> None:
    (small, large) = costs_of(experiment({2**30: 328.0, 2**26: 300.0}, {2**26: 30.0, 2**30: 41.0}))
    assert (small.size_bytes, small.factor) == (2**26, pytest.approx(10.0))
    assert (large.size_bytes, large.factor) == (2**30, pytest.approx(8.0))


def test_only_sizes_that_both_sides_have_are_compared() -> None:
    assert [cost.size_bytes for cost in costs_of(experiment({1: 1.0, 2: 1.0}, {2: 1.0, 4: 1.0}))] == [2]
    assert costs_of(experiment({}, {1: 1.0})) == []


@pytest.mark.parametrize(("off", "same"), [(100.0, True), (96.0, True), (94.0, False), (104.0, True), (107.0, False)])
def test_small_differences_are_none(off: float, same: bool) -> None:
    (cost,) = costs_of(experiment({1: 100.0}, {1: off}))
    assert cost.is_same is same
