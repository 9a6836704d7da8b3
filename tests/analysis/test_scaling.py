"""Throughput against one device and against DataParallel."""

from __future__ import annotations

import pytest

from gpubalance.analysis.scaling import scaling_of
from gpubalance.record.timings import DataParallelResult
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady

PARALLEL = DataParallelResult(
    global_batch=8192, shards=[4096, 4096], step_ms=200.0, one_device_step_ms=160.0, peak_memory_bytes=[2, 1]
)


def test_two_ranks_at_four_fifths_of_two_devices_alone() -> None:
    """Each alone 4096 samples in 100 ms, together 8192 in 125 ms."""
    run = make_run([make_attempt(steady([100.0, 100.0]))], solo=[make_solo(0, 90.0), make_solo(1, 90.0)])
    scaling = scaling_of(run, 125.0)
    assert scaling.ddp_samples_per_s == pytest.approx(65_536)
    assert scaling.alone_samples_per_s == pytest.approx(40_960)
    assert scaling.speedup == pytest.approx(1.6)
    assert scaling.efficiency == pytest.approx(0.8)


def test_a_rank_with_more_data_adds_its_samples() -> None:
    run = make_run([make_attempt(steady([100.0, 150.0]), units=[1.0, 1.5])])
    assert scaling_of(run, 200.0).ddp_samples_per_s == pytest.approx(4096 * 2.5 / 0.2)


def test_data_parallel_is_held_against_one_device_with_the_whole_batch() -> None:
    scaling = scaling_of(make_run(data_parallel=PARALLEL), None)
    assert scaling.data_parallel_samples_per_s == pytest.approx(40_960)
    assert scaling.one_device_samples_per_s == pytest.approx(51_200)
    assert scaling.data_parallel_speedup == pytest.approx(0.8)


def test_what_did_not_run_is_none() -> None:
    scaling = scaling_of(make_run(), None)
    assert set(vars(scaling).values()) == {None}


def test_without_the_solo_phase_there_is_a_rate_and_no_speedup() -> None:
    scaling = scaling_of(make_run([make_attempt(steady([100.0, 100.0]))]), 125.0)
    assert scaling.ddp_samples_per_s is not None
    assert (scaling.speedup, scaling.efficiency) == (None, None)
