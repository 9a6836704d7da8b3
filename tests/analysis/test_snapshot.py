"""What is kept of a run: its own numbers, small, the same each time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpubalance.analysis.facts import compute_facts
from gpubalance.analysis.snapshot import saved_run_of, setup_of
from gpubalance.record.baselines import Collective, Fact, SavedRun
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe, RankMemory
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import KEPT, kept, row


def snapshot(run: Run) -> SavedRun:
    return saved_run_of(run, compute_facts(run, 0.05, 0.10), "pass")


def values(run: Run, metric: str) -> list[tuple[int | None, float]]:
    return [(fact.device, fact.value) for fact in snapshot(run).facts if fact.metric == metric]


def one(run: Run, metric: str) -> Fact:
    (fact,) = [fact for fact in snapshot(run).facts if fact.metric == metric]
    return fact


def test_numbers_of_steps_computed_by_hand() -> None:
    run = make_run([make_attempt(steady([100.0, 120.0]), transfer_ms=20.0)])
    assert values(run, "compute") == [(0, 100.0), (1, 120.0)]
    assert values(run, "step") == [(None, 140.0)]
    assert values(run, "exposed") == [(None, 20.0)]
    assert values(run, "score") == [(None, pytest.approx(100 * 120 / 140, abs=1e-4))]


def test_compute_is_per_unit_of_work_and_belongs_to_the_device() -> None:
    attempt = make_attempt(steady([100.0, 150.0]), devices=[1, 0], units=[1.0, 1.5])
    assert values(make_run([attempt]), "compute") == [(1, 100.0), (0, 100.0)]


def test_an_interval_holds_the_value_and_grows_with_noise() -> None:
    calm, noisy = (one(make_run([make_attempt(steady([100.0], noise=noise))]), "compute") for noise in (0.01, 0.05))
    for fact in (calm, noisy):
        assert fact.low < fact.value < fact.high  # type: ignore[operator]
    assert noisy.low < calm.low < calm.high < noisy.high  # type: ignore[operator]


def test_without_noise_the_interval_is_the_value() -> None:
    fact = one(make_run([make_attempt(steady([100.0]))]), "compute")
    assert (fact.low, fact.high) == (100.0, 100.0)


def test_a_single_block_has_no_interval() -> None:
    fact = one(make_run([make_attempt(steady([100.0], blocks=1))]), "compute")
    assert (fact.low, fact.high) == (None, None)


def test_without_overlapped_steps_there_is_no_step_time_and_nothing_exposed() -> None:
    attempt = make_attempt(steady([100.0, 100.0]))
    ranks = [rank.model_copy(update={"overlapped_step_ms": []}) for rank in attempt.ranks]
    run = make_run([attempt.model_copy(update={"ranks": ranks})])
    assert values(run, "step") == values(run, "exposed") == []
    assert len(values(run, "compute")) == 2


def test_other_measures_have_one_value_and_no_interval() -> None:
    probe = DeviceProbe(
        rank=0, device=1, gemm_tflops=660.0, memory_copy_gb_per_s=4250.0, host_to_device_gb_per_s=55.0,
        device_to_host_gb_per_s=54.0,
    )  # fmt: skip
    memory = RankMemory(rank=0, device=1, peak_allocated_bytes=3, peak_reserved_bytes=4, capacity_bytes=5)
    run = make_run([], probes=[probe], memory=[memory], collectives=[row()])
    facts = {fact.metric: fact for fact in snapshot(run).facts}
    shown = {metric: (fact.device, fact.value, fact.low) for metric, fact in facts.items()}
    assert shown == {
        "busbw": (None, 325.37, None),
        "gemm": (1, 660.0, None),
        "memory_copy": (1, 4250.0, None),
        "h2d": (1, 55.0, None),
        "d2h": (1, 54.0, None),
        "memory": (1, 4.0, None),
    }
    assert facts["busbw"].collective == Collective(name="all_reduce", mode="eager", dtype="float32", size_bytes=2**30)


def test_a_run_that_measured_nothing_has_no_facts() -> None:
    assert snapshot(make_run([])).facts == []


def test_the_setup_is_what_the_ranks_loaded_and_what_steers_nccl() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]))])
    environment = {"NCCL_ALGO": "Ring", "NCCL_VERSION": "2", "TORCH_NCCL_BLOCKING_WAIT": "1", "CUDA_HOME": "/x"}
    run = run.model_copy(update={"node": run.node.model_copy(update={"environment": environment})})
    found = setup_of(run)
    assert found.versions == {"driver": "580.1", "torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9"}
    assert found.environment == {"NCCL_ALGO": "Ring", "TORCH_NCCL_BLOCKING_WAIT": "1"}
    assert [(device.uuid, device.power_limit_w) for device in found.devices] == [
        (device.uuid, 700.0) for device in run.plan.devices
    ]


def test_without_ranks_versions_are_unknown() -> None:
    assert setup_of(make_run([])).versions == {"driver": "580.1", "torch": None, "cuda": None, "nccl": None}


@pytest.mark.parametrize("name", KEPT)
def test_a_real_run_takes_a_few_kilobytes_and_is_the_same_each_time(name: str) -> None:
    run = kept(name)
    first, second = (snapshot(run).model_dump_json(exclude_none=True) for _ in range(2))
    assert first == second
    assert len(first) < 8000
    assert SavedRun.model_validate(json.loads(first)) == snapshot(run)


def test_medians_are_those_of_the_blocks() -> None:
    times = np.concatenate([np.full((1, 10, 5), 100.0), np.full((1, 14, 5), 110.0)], axis=1)
    assert values(make_run([make_attempt(times)]), "compute") == [(0, 110.0)]
