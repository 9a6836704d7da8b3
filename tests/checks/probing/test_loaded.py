"""What was sampled of one GPU under load."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.probing.loaded import (
    counter_change,
    loaded_rows,
    loaded_samples,
    seconds_between_edges,
    was_loaded,
    why_no_change,
    why_no_samples,
)
from gpubalance.record.probe import DeviceLoad
from gpubalance.record.run import Phase
from gpubalance.record.samples import CounterReading, DeviceSamples, Samples
from tests.checks.probing.helpers import make_load, make_probe


def sampled(**load: Any) -> Any:
    """GPU 2 and GPU 0 were loaded, in this order; one sample each second from 0.5 s on."""
    return make_probe(
        count=3, load=make_load([{"x": [1, None, 3]}, {"x": [7, 8, 9]}], devices=[2, 0], seconds=3, **load)
    )


def test_gpus_of_a_load_are_named_by_their_nvml_index() -> None:
    assert loaded_samples(sampled(), 2, "x") == [1, 3]
    assert loaded_samples(sampled(), 0, "x") == [7, 8, 9]
    assert loaded_samples(sampled(), 1, "x") == []


def test_without_a_load_nothing_was_sampled() -> None:
    probe = make_probe()
    assert loaded_samples(probe, 0, "x") == []
    assert not was_loaded(probe, 0)
    assert counter_change(probe, 0, "pcie_replays") is None
    assert why_no_samples(probe, 0, "x") == "not sampled under load"


def phase(name: str, begin_s: float, end_s: float | None) -> Phase:
    return Phase(name=name, attempt=0, begin_s=begin_s, end_s=end_s)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([phase("load speed", 1, 2)], [8]),
        ([phase("load speed", 0.5, 1.5)], [7, 8]),  # both ends belong to it
        ([phase("load speed", 0, 1), phase("load speed", 2, 3)], [7, 9]),
        ([phase("load speed", 0, None)], []),  # never ended
        ([phase("load matmul", 0, 3)], []),
        ([], []),
    ],
)
def test_only_samples_inside_the_finished_phase_count(phases: list[Phase], expected: list[int]) -> None:
    assert loaded_samples(sampled(phases=phases), 0, "x") == expected


def test_a_gpus_own_stretch_goes_before_that_of_the_whole_load() -> None:
    results = [DeviceLoad(device=1, stage="done", seconds=3, windows={"load speed": (2.0, 3.0)})]
    probe = sampled(results=results)
    assert loaded_samples(probe, 0, "x") == [9]
    assert loaded_samples(probe, 2, "x") == [1, 3]


def test_readings_of_one_tick_stay_together() -> None:
    columns = [{"a": [1, None, 3], "b": [10, 20, None]}]
    probe = make_probe(load=make_load(columns))
    assert loaded_rows(probe, 0, ("a", "b")) == [(1, 10)]
    assert loaded_rows(probe, 0, ("a", "absent")) == []


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=20))
def test_nulls_are_left_out_and_nothing_else(values: list[int | None]) -> None:
    probe = make_probe(load=make_load([{"x": values}]))
    assert loaded_samples(probe, 0, "x") == [value for value in values if value is not None]


@pytest.mark.parametrize(("skipped", "expected"), [(None, True), ("in use by pid 7", False)])
def test_a_gpu_that_was_left_alone_was_not_loaded(skipped: str | None, expected: bool) -> None:
    result = DeviceLoad(device=0, stage="start", seconds=0, skipped=skipped)
    probe = make_probe(load=make_load(devices=[1], results=[result]))
    assert was_loaded(probe, 1) is expected
    assert not was_loaded(probe, 0)


def test_why_there_are_no_samples() -> None:
    result = DeviceLoad(device=0, stage="allocate", seconds=1, error="CUDA out of memory")
    samples = Samples(devices=[DeviceSamples(device=0, columns={}, missing={"x": "NOT_SUPPORTED"})])
    probe = make_probe(load=make_load(devices=[0], results=[result], samples=samples))
    assert why_no_samples(probe, 0, "x") == "NOT_SUPPORTED"
    assert why_no_samples(probe, 0, "y") == "CUDA out of memory"


@pytest.mark.parametrize(
    ("before", "after", "change"), [(1, 1, 0), (1, 5, 4), (5, 1, None), (None, 5, None), (1, None, None)]
)
def test_a_counter_grows_between_the_ends_of_the_load(
    before: int | None, after: int | None, change: int | None
) -> None:
    probe = make_probe(load=make_load(counters=[{"c": (before, after)}], devices=[1], seconds=30))
    assert counter_change(probe, 1, "c") == change
    assert counter_change(probe, 0, "c") is None
    assert seconds_between_edges(probe, 1) == 30
    assert seconds_between_edges(probe, 0) is None


def test_why_a_counter_gave_no_change() -> None:
    refused = CounterReading(t_s=0, edge="load end", device=0, values={"c": None}, missing={"c": "NO_PERMISSION"})
    probe = make_probe(load=make_load(devices=[0], samples=Samples(counters=[refused])))
    assert why_no_change(probe, 0, "c") == "NO_PERMISSION"
    assert why_no_change(probe, 0, "other") == "not read at both ends, or reset"
