"""Ready-made runs are what they claim to be, or every test on them is worth nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.consistency import contradiction
from gpubalance.record.file import load_run, save_text
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.testing.runs import FLOOR_MS, make_attempt, make_gpu, make_node, make_run, make_solo, steady

RUNS = {
    "healthy": make_run([make_attempt(steady([100.0, 100.0], noise=0.01))]),
    "one": make_run([make_attempt(steady([100.0]))]),
    "sixteen": make_run([make_attempt(steady([100.0] * 16, noise=0.01))]),
    "confirmed": make_run([make_attempt(steady([100.0, 120.0], seed=s), attempt=s) for s in (0, 1)]),
    "cpu": make_run([make_attempt(steady([20.0, 20.0]))], on_cpu=True),
    "solo": make_run([], ranks=3, solo=[make_solo(rank, None) for rank in range(3)]),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_a_ready_made_run_fits_together_and_survives_a_file(tmp_path: Path, run: Run) -> None:
    assert contradiction(run) is None
    save_text(tmp_path / "run.json", document_text(run, judge(run)))
    assert load_run(tmp_path / "run.json") == run


def test_times_have_the_shape_the_median_and_the_spread_that_were_asked_for() -> None:
    times = steady([100.0, 200.0], blocks=24, steps=50, noise=0.02)
    assert times.shape == (2, 24, 50)
    relative = times / np.array([100.0, 200.0])[:, None, None]
    assert np.median(relative) == pytest.approx(1.0, abs=0.003)
    assert relative.std() == pytest.approx(0.02, rel=0.1)


def test_noise_is_the_same_for_the_same_seed_and_different_for_another() -> None:
    one, again, other = (steady([100.0], noise=0.01, seed=seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


def test_without_noise_every_step_takes_what_was_asked() -> None:
    assert set(steady([100.0, 120.0]).ravel()) == {100.0, 120.0}


def test_everybody_waits_for_the_slowest_of_each_step() -> None:
    attempt = make_attempt([[[10.0, 30.0]], [[20.0, 15.0]]], transfer_ms=5.0)
    fences = [rank.fenced[0].fence_ms for rank in attempt.ranks]
    assert fences[0] == pytest.approx([10.0 + FLOOR_MS, FLOOR_MS])
    assert fences[1] == pytest.approx([FLOOR_MS, 15.0 + FLOOR_MS])
    # the slowest take 20 and 30 ms, and nothing of the transfer is hidden
    assert set(attempt.ranks[0].overlapped_step_ms) == {30.0}


def test_ranks_work_on_the_devices_and_with_the_data_that_were_asked_for() -> None:
    attempt = make_attempt(steady([100.0, 150.0]), devices=[1, 0], units=[1.0, 1.5], overlapped_ms=160.0, attempt=1)
    assert [rank.device for rank in attempt.ranks] == [1, 0]
    assert [rank.samples_per_step for rank in attempt.ranks] == [4096, 6144]
    assert set(attempt.ranks[1].overlapped_step_ms) == {160.0}
    run = make_run([make_attempt(steady([100.0, 100.0])), attempt])
    assert [(info.attempt, info.rank, info.device) for info in run.ranks] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
    ]
    assert len({info.pid for info in run.ranks}) == 4


def test_every_gpu_has_names_of_its_own() -> None:
    gpus = [make_gpu(index) for index in range(16)]
    for name in ("uuid", "pci_bus_id", "nvml_index", "cuda_ordinal", "minor_number"):
        assert len({getattr(gpu, name) for gpu in gpus}) == 16
    assert make_gpu(0, nvlink_count=None).readings["nvlink_count"] is None


def test_a_node_without_gpus_has_no_driver_and_no_sign_of_one() -> None:
    bare, full = make_node(), make_node([make_gpu(0)])
    assert (bare.driver_version, bare.gpu_evidence, bare.nvml_error) == (None, [], "LIBRARY_NOT_FOUND")
    assert (full.driver_version, full.gpu_evidence, full.nvml_error) == ("580.1", ["PCI device 0000:06:00.0"], None)
