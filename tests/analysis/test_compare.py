"""Changes between saved runs: who is held against whom, intervals by hand, what makes two sides incomparable."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.analysis.compare import Change, Comparison, Difference, Unmatched, compare_runs, same_devices
from gpubalance.record.baselines import SavedRun
from tests.analysis.compare_helpers import SPEC, collective, devices, fact, saved, setup


def change(comparison: Comparison) -> Change:
    (only,) = comparison.changes
    return only


def step(value: float, low: float | None = None, high: float | None = None, **values: Any) -> SavedRun:
    return saved(fact("step", value, low, high), **values)


def test_two_runs_by_hand() -> None:
    found = change(compare_runs([step(100.0, 99.0, 104.0)], step(110.0, 107.0, 114.0)))
    assert (found.base, found.new, found.difference, found.runs) == (100.0, 110.0, 10.0, 1)
    # down: 3 below NEW and 4 above BASE are 5 together; up: 4 above NEW and 1 below BASE
    assert found.low == pytest.approx(5.0)
    assert found.high == pytest.approx(10 + math.sqrt(17))
    assert found.real is True
    assert found.worse == 10.0
    assert found.relative(found.difference) == pytest.approx(0.1)


INTERVALS = {
    "clear": ((99.0, 101.0), (109.0, 111.0), True),
    "holds zero": ((90.0, 110.0), (100.0, 120.0), False),
    "no interval in base": ((None, None), (109.0, 111.0), None),
    "no interval in new": ((99.0, 101.0), (None, None), None),
}


@pytest.mark.parametrize(("base", "new", "real"), INTERVALS.values(), ids=INTERVALS.keys())
def test_real_is_what_noise_does_not_explain(base: tuple[Any, Any], new: tuple[Any, Any], real: bool | None) -> None:
    assert change(compare_runs([step(100.0, *base)], step(110.0, *new))).real is real


def band(*values: float) -> list[SavedRun]:
    return [step(value, run_id=str(value)) for value in values]


BANDS = {
    "above": (111.0, (1.0, 21.0), True),
    "below": (89.0, (-21.0, -1.0), True),
    "inside": (105.0, (-5.0, 15.0), False),
    "at its edge": (110.0, (0.0, 20.0), False),
}


@pytest.mark.parametrize(("new", "interval", "real"), BANDS.values(), ids=BANDS.keys())
def test_a_band_of_several_runs(new: float, interval: tuple[float, float], real: bool) -> None:
    found = change(compare_runs(band(90.0, 100.0, 110.0), step(new)))
    assert (found.base_smallest, found.base, found.base_largest, found.runs) == (90.0, 100.0, 110.0, 3)
    assert (found.low, found.high, found.real) == (*interval, real)


def test_a_band_is_widened_by_the_noise_of_its_runs_and_of_the_new_one() -> None:
    base = [step(100.0, 98.0, 103.0), step(102.0, 101.0, 104.0)]
    found = change(compare_runs(base, step(110.0, 108.0, 113.0)))
    assert (found.low, found.high) == (108.0 - 104.0, 113.0 - 98.0)


def test_devices_are_joined_by_uuid_in_any_order() -> None:
    base = saved(fact("compute", 100.0, device=0), fact("compute", 200.0, device=1))
    new = saved(fact("compute", 201.0, device=0), fact("compute", 101.0, device=1), devices=devices("GPU-b", "GPU-a"))
    comparison = compare_runs([base], new)
    assert comparison.same_devices
    assert [(c.device, c.base, c.new) for c in comparison.changes] == [(0, 200.0, 201.0), (1, 100.0, 101.0)]
    assert comparison.differences == ()


def test_other_devices_are_joined_by_place_and_told() -> None:
    base = saved(fact("compute", 100.0, device=0))
    comparison = compare_runs([base], saved(fact("compute", 101.0, device=0), devices=devices("GPU-c", "GPU-d")))
    assert not comparison.same_devices
    assert [(c.device, c.base) for c in comparison.changes] == [(0, 100.0)]
    assert comparison.differences == (Difference("UUIDs", "GPU-a GPU-b", "GPU-c GPU-d", blocking=False),)


SAME = {
    "the same": (setup(), setup(), True),
    "another": (setup(), setup(devices=devices("GPU-a", "GPU-c")), False),
    "one more": (setup(), setup(devices=devices("GPU-a", "GPU-b", "GPU-c")), False),
    "no UUID": (setup(devices=devices(None, None)), setup(devices=devices(None, None)), False),
    "CPU": (setup(backend="gloo", devices=devices(None)), setup(backend="gloo", devices=devices(None)), True),
    "other CPU": (
        setup(backend="gloo", devices=devices(None)),
        setup(backend="gloo", devices=devices(None), cpu_model="Z"),
        False,
    ),
    "unknown CPU": (setup(backend="gloo", cpu_model=None), setup(backend="gloo", cpu_model=None), False),
    "GPU and CPU": (setup(), setup(backend="gloo"), False),
}


@pytest.mark.parametrize(("one", "other", "same"), SAME.values(), ids=SAME.keys())
def test_same_devices(one: Any, other: Any, same: bool) -> None:
    assert same_devices(one, other) is same
    assert same_devices(other, one) is same


DIFFERENCES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "model of GPU": ({"devices": devices("GPU-a", "GPU-b", name="NVIDIA A100")}, "devices", True),
    "count": ({"devices": devices("GPU-a")}, "devices", True),
    "batch": ({"global_batch": 4096}, "batch", True),
    "model": ({"model": SPEC.model_copy(update={"layers": 6})}, "model", True),
    "backend": ({"backend": "gloo"}, "backend", True),
    "driver": ({"versions": {"driver": "590"}}, "driver", False),
    "torch": ({"versions": {"torch": "2.12"}}, "torch", False),
    "nccl": ({"versions": {"nccl": "2.30"}}, "nccl", False),
    "power limit": ({"devices": devices("GPU-a", "GPU-b", power_limit_w=500)}, "power limit", False),
    "NCCL": ({"environment": {"NCCL_P2P_DISABLE": "1"}}, "variables of NCCL", False),
    "workloads": ({"workloads": ["ddp"]}, "workloads", False),
    "injected": ({"injected": ["sleep:rank=1,ms=5"]}, "injected faults", False),
    "interrupted": ({"interrupted_by": 15}, "ended by", False),
    "version": ({"gpubalance_version": "0.2.0"}, "gpubalance", False),
}


@pytest.mark.parametrize(("values", "what", "blocking"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_what_differs_is_told_and_some_of_it_blocks(values: dict[str, Any], what: str, blocking: bool) -> None:
    if "versions" in values:
        values = {"versions": {**setup().versions, **values["versions"]}}
    comparison = compare_runs([step(100.0)], step(100.0, **values))
    assert what in [difference.what for difference in comparison.differences]
    assert bool(comparison.blocking) is blocking


def test_another_cpu_blocks_on_the_cpu_only() -> None:
    def cpu(model: str, backend: str) -> SavedRun:
        return step(100.0, backend=backend, cpu_model=model, devices=devices("GPU-a"))

    assert [d.what for d in compare_runs([cpu("A", "gloo")], cpu("B", "gloo")).blocking] == ["CPU"]
    assert compare_runs([cpu("A", "nccl")], cpu("B", "nccl")).differences == ()


def test_a_band_under_two_drivers_names_both() -> None:
    versions = [{**setup().versions, "driver": driver} for driver in ("570", "580")]
    comparison = compare_runs([step(1.0, versions=v) for v in versions], step(1.0, versions=versions[1]))
    assert comparison.differences == (Difference("driver", "570 or 580", "580", blocking=False),)


def test_what_one_side_has_alone_is_not_lost() -> None:
    base = saved(fact("step", 1.0), fact("busbw", 2.0, collective=collective()))
    comparison = compare_runs([base], saved(fact("step", 1.0), fact("gemm", 3.0, device=1)))
    assert comparison.unmatched == (
        Unmatched("busbw", None, collective(), "BASE"),
        Unmatched("gemm", 1, None, "NEW"),
    )


def test_collectives_are_the_same_by_name_size_mode_and_type() -> None:
    sizes = [collective(), collective(2**20), collective(mode="graph"), collective(dtype="bfloat16")]
    base = saved(*(fact("busbw", float(n + 1), collective=c) for n, c in enumerate(sizes)))
    found = compare_runs([base], base).changes
    assert [c.base for c in found] == [1.0, 2.0, 3.0, 4.0]
    assert [c.gated for c in found] == [True, True, False, True]


@pytest.mark.parametrize(("size", "gated"), [(999_999, False), (10**6, True)])
def test_small_collectives_are_launch_time(size: int, gated: bool) -> None:
    run = saved(fact("busbw", 1.0, collective=collective(size)))
    assert change(compare_runs([run], run)).gated is gated


@pytest.mark.parametrize(("metric", "worse"), [("score", -5.0), ("step", 5.0), ("busbw", -5.0), ("memory", 5.0)])
def test_which_way_is_worse(metric: str, worse: float) -> None:
    comparison = compare_runs([saved(fact(metric, 90.0))], saved(fact(metric, 90.0 + 5.0)))
    assert change(comparison).worse == worse


def test_of_a_base_of_zero_there_is_no_share() -> None:
    found = change(compare_runs([saved(fact("exposed", 0.0))], saved(fact("exposed", 1.0))))
    assert found.difference == 1.0
    assert found.relative(found.difference) is None


number = st.floats(0.1, 1e6)
spread = st.floats(0.0, 0.5)


@given(number, number, spread, spread)
def test_the_interval_holds_the_difference_and_turning_sides_turns_it(
    base: float, new: float, one: float, other: float
) -> None:
    left, right = step(base, base * (1 - one), base * (1 + one)), step(new, new * (1 - other), new * (1 + other))
    there, back = change(compare_runs([left], right)), change(compare_runs([right], left))
    assert None not in (there.low, there.high, back.low, back.high)
    assert there.low <= there.difference <= there.high  # type: ignore[operator]
    assert (back.low, back.high) == (pytest.approx(-there.high), pytest.approx(-there.low))  # type: ignore[operator]


@given(st.lists(number, min_size=1, max_size=8))
def test_a_run_of_the_band_is_no_change(values: list[float]) -> None:
    base = [step(value, value, value) for value in values]
    for new in base:
        assert change(compare_runs(base, new)).real is False
