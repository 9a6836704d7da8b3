"""The parts of a workload in this process, on the CPU, with real torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.launch.sizing import choose_model
from gpubalance.record.job import Slot
from gpubalance.record.rank_log import RankLog
from gpubalance.testing.runs import make_gpu
from gpubalance.workloads import probes
from gpubalance.workloads.clock import HostClock
from gpubalance.workloads.collectives import bus_factor
from gpubalance.workloads.context import Context
from gpubalance.workloads.data_parallel import shards
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.models import build_batch, build_model
from gpubalance.workloads.sgd import Sgd
from gpubalance.workloads.solo import output_digest
from gpubalance.workloads.training_step import TrainingStep
from tests.support import make_job

CPU = torch.device("cpu")
MLP = {"kind": "mlp", "width": 32, "layers": 2, "dtype": "float32"}
TRANSFORMER = {"kind": "transformer", "width": 64, "layers": 1, "dtype": "float32"}


def make_context(folder: Path, **values: Any) -> Context:
    job = make_job(folder, 1, model=MLP, **values)
    return Context(job, 0, 1, Slot(0, None, None, ()), CPU, None, HostClock(), RankLog(folder / "log.jsonl"))


def make_step(folder: Path, batch_seed: int = 1, **values: Any) -> TrainingStep:
    context = make_context(folder, **values)
    return TrainingStep(context, Faults.of_rank(context.job.faults, 0, ExtraWork(CPU, context.clock)), batch_seed)


@pytest.mark.parametrize("spec", [MLP, TRANSFORMER])
def test_a_model_depends_on_its_seed_only_and_its_output_is_never_zero(spec: dict[str, Any]) -> None:
    first, again, other = (build_model(spec, CPU, seed) for seed in (1, 1, 2))
    batch = build_batch(spec, 2, CPU, 1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert first(batch).item() > 0
    assert batch.abs().min() > 0 or batch.count_nonzero() > 0.99 * batch.numel()


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_the_plan_counts_parameters_as_torch_does(kind: str) -> None:
    spec, _ = choose_model(kind, [make_gpu(0)])
    with torch.device("meta"):
        model = build_model(spec.model_dump(), torch.device("meta"), 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == spec.parameters


def test_the_flat_buffer_is_the_gradients_that_autograd_computes(tmp_path: Path) -> None:
    step = make_step(tmp_path)
    step.forward(step.model)
    step.backward()
    flat = step.gradients.clone()
    step.release_gradients()
    step.model(step.batch).backward()
    expected = torch.cat([p.grad.flatten() for p in step.model.parameters() if p.grad is not None])
    assert torch.equal(flat, expected)
    assert flat.count_nonzero() > 0


def test_a_step_changes_the_weights_but_hardly(tmp_path: Path) -> None:
    step = make_step(tmp_path)
    before = next(step.model.parameters()).detach().clone()
    step.local()
    after = next(step.model.parameters()).detach()
    assert not torch.equal(before, after)
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-5)


def test_our_descent_is_torchs_bit_for_bit() -> None:
    ours, theirs = (build_model(MLP, CPU, 1) for _ in range(2))
    torchs = torch.optim.SGD(theirs.parameters(), lr=0.1, foreach=True)
    own = Sgd(ours.parameters(), 0.1)
    batch = build_batch(MLP, 4, CPU, 1)
    for _ in range(3):
        own.zero_gradients()
        torchs.zero_grad()
        ours(batch).backward()
        theirs(batch).backward()
        own.step()
        torchs.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_zeroed_gradients_stay_where_they_were() -> None:
    model = build_model(MLP, CPU, 1)
    model(build_batch(MLP, 4, CPU, 1)).backward()
    gradients = [p.grad for p in model.parameters()]
    Sgd(model.parameters(), 0.1).zero_gradients()
    assert all(p.grad is g and not g.any() for p, g in zip(model.parameters(), gradients, strict=True))


def test_a_loss_does_not_keep_its_graph(tmp_path: Path) -> None:
    step = make_step(tmp_path)
    step.local()
    assert step.loss.grad_fn is None


def test_what_is_captured_is_the_work_of_a_local_step(tmp_path: Path) -> None:
    one, other = make_step(tmp_path), make_step(tmp_path)
    one.local()
    other.captured()
    assert torch.equal(one.gradients, other.gradients)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


def test_a_released_step_takes_its_gradients_back(tmp_path: Path) -> None:
    step = make_step(tmp_path)
    step.forward(step.model)
    step.backward()
    expected = step.gradients.clone()
    step.release_gradients()
    step.model(step.batch).backward()
    step.attach_gradients()
    step.forward(step.model)
    step.backward()
    assert torch.equal(step.gradients, expected)
    assert all(
        p.grad is not None and p.grad.untyped_storage().data_ptr() == step.gradients.untyped_storage().data_ptr()
        for p in step.model.parameters()
    )


def test_a_step_of_other_faults_has_their_batch_and_then_the_planned_one_again(tmp_path: Path) -> None:
    step = make_step(tmp_path)
    planned = step.batch
    extra = ExtraWork(CPU, HostClock())
    step.use(Faults(extra, [{"kind": "data", "factor": 2.0}]))
    assert (step.samples, len(step.batch)) == (16, 16)
    step.use(Faults(extra))
    assert step.samples == 8
    assert step.batch is planned


def test_a_data_fault_gives_more_units_of_the_same_kind(tmp_path: Path) -> None:
    step = make_step(tmp_path, faults=({"kind": "data", "rank": 0, "factor": 1.5},))
    assert (step.samples, step.planned, len(step.batch)) == (12, 8, 12)


def test_a_fault_of_another_rank_does_nothing(tmp_path: Path) -> None:
    step = make_step(tmp_path, faults=({"kind": "data", "rank": 1, "factor": 1.5},))
    assert (step.samples, step.planned) == (8, 8)


def test_the_digest_is_the_same_for_the_same_work_and_another_for_other_work(tmp_path: Path) -> None:
    digests = [output_digest(make_step(tmp_path, seed)) for seed in (1, 1, 2)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_gradients_that_are_off_in_their_last_bits_change_the_digest(tmp_path: Path) -> None:
    good, bad = make_step(tmp_path), make_step(tmp_path)
    forward = bad.model.forward

    def off_by_a_millionth(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = forward(batch)
        loss.register_hook(lambda gradient: gradient * (1 + 2**-20))
        return loss

    bad.model.forward = off_by_a_millionth
    assert output_digest(bad) != output_digest(good)


def test_launching_takes_time_and_leaves_nothing_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LAUNCHES", 50)
    waits: list[None] = []
    monkeypatch.setattr(HostClock, "wait", lambda _self: waits.append(None))
    assert 0 < probes.launch_us(make_context(tmp_path)) < 1e6
    assert len(waits) == probes.LAUNCH_GROUPS + 1


@given(batch=st.integers(1, 300), devices=st.integers(1, 16))
def test_shards_are_what_torch_chunk_makes(batch: int, devices: int) -> None:
    chunks = [len(chunk) for chunk in torch.empty(batch, 1).chunk(devices)]
    assert shards(batch, devices) == chunks + [0] * (devices - len(chunks))


def test_ten_samples_feed_five_of_eight_devices() -> None:
    assert shards(10, 8) == [2, 2, 2, 2, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("ranks", "all_reduce", "others"), [(2, 1.0, 0.5), (4, 1.5, 0.75), (8, 1.75, 0.875), (16, 1.875, 0.9375)]
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(ranks: int, all_reduce: float, others: float) -> None:
    assert bus_factor("all_reduce", ranks) == all_reduce
    assert bus_factor("all_gather", ranks) == bus_factor("reduce_scatter", ranks) == others
