"""What is kept of a run when it becomes a baseline: its numbers, each with the interval that its own noise leaves.

Intervals are 95 % percentiles of resampled blocks under a fixed seed: the same run gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.steps import Array, Steps, arrays_of
from gpubalance.record.baselines import Collective, Fact, SavedRun, Setup, SetupDevice
from gpubalance.record.node import Device
from gpubalance.record.run import Run

DRAWS = 1000
SEED = 2026
DIGITS = 7
"""Significant digits that are kept: more than any clock of ours has."""

Interval = tuple[float, float] | None
Statistic = Callable[[Array], Array]


def saved_run_of(run: Run, facts: Facts, verdict: str) -> SavedRun:
    """The facts of a run under its setup. Pure."""
    return SavedRun(
        run_id=run.run_id,
        started_at=run.started_at,
        gpubalance_version=run.gpubalance_version,
        verdict=verdict,
        injected=run.injected,
        interrupted_by=run.interrupted_by,
        setup=setup_of(run),
        facts=[*_of_steps(run, facts), *_of_collectives(run), *_of_probes(run), *_of_memory(run)],
    )


def setup_of(run: Run) -> Setup:
    """Under what the run measured; versions are those that the ranks really loaded."""
    loaded = run.ranks[0].versions if run.ranks else {}
    return Setup(
        backend=run.plan.backend,
        devices=[_device(device) for device in run.plan.devices],
        cpu_model=run.node.cpu_model,
        workloads=run.plan.workloads,
        model=run.plan.model,
        global_batch=run.plan.global_batch,
        per_rank_batch=run.plan.per_rank_batch,
        versions={
            "driver": run.node.driver_version,
            **{name: loaded.get(name) for name in ("torch", "cuda", "nccl")},
        },
        environment={
            name: value
            for name, value in run.node.environment.items()
            if name.startswith(("NCCL_", "TORCH_NCCL_")) and name != "NCCL_VERSION"  # a label of images
        },
    )


def _device(device: Device) -> SetupDevice:
    limit = device.readings.get("power_limit_w")
    power = float(limit) if isinstance(limit, int | float) else None
    return SetupDevice(name=device.name, uuid=device.uuid, nvml_index=device.nvml_index, power_limit_w=power)


def _of_steps(run: Run, facts: Facts) -> Iterator[Fact]:
    if not run.ddp or facts.first is None:
        return
    steps, balance = arrays_of(run.ddp[0]), facts.first.balance
    yield Fact(metric="score", value=_kept(balance.score), low=_kept(balance.low), high=_kept(balance.high))
    yield from _step_times(run, steps, balance.exposed_ms)
    medians = steps.block_medians() / steps.units[:, None]
    for rank, row in zip(run.ddp[0].ranks, medians, strict=True):
        interval = _interval(row, lambda draws: np.median(draws, axis=1))
        yield _fact("compute", float(np.median(row)), interval, device=rank.device)


def _step_times(run: Run, steps: Steps, exposed_ms: float | None) -> Iterator[Fact]:
    """The step of real training, and what of its communication is not hidden behind compute."""
    if steps.overlapped_ms is None:
        return
    overlapped = [rank.overlapped_step_ms for rank in run.ddp[0].ranks]
    common = min(len(values) for values in overlapped)
    step_blocks = np.mean([values[:common] for values in overlapped], axis=0)
    yield _fact("step", steps.overlapped_ms, _interval(step_blocks, _means))
    if exposed_ms is None:
        return
    ordinary, _ = steps.ordinary
    slowest_blocks = ordinary.max(axis=0).mean(axis=1)
    step, slowest = _interval(step_blocks, _means), _interval(slowest_blocks, _means)
    interval = (max(0.0, step[0] - slowest[1]), max(0.0, step[1] - slowest[0])) if step and slowest else None
    yield _fact("exposed", exposed_ms, interval)


def _of_collectives(run: Run) -> Iterator[Fact]:
    for row in run.collectives:
        if row.backend != run.plan.backend:  # gloo beside NCCL says nothing about the links
            continue
        which = Collective(
            name=row.collective, mode=row.mode, placement=row.placement, dtype=row.dtype, size_bytes=row.size_bytes
        )
        yield Fact(metric="busbw", collective=which, value=_kept(row.bus_bandwidth_gb_per_s))


def _of_probes(run: Run) -> Iterator[Fact]:
    for probe in run.probes:
        yield _fact("gemm", probe.gemm_tflops, None, device=probe.device)
        yield _fact("memory_copy", probe.memory_copy_gb_per_s, None, device=probe.device)
        yield _fact("h2d", probe.host_to_device_gb_per_s, None, device=probe.device)
        yield _fact("d2h", probe.device_to_host_gb_per_s, None, device=probe.device)


def _of_memory(run: Run) -> Iterator[Fact]:
    """What torch reserved at the peak: the driver's own number is not known in every container."""
    for memory in run.memory:
        yield Fact(metric="memory", device=memory.device, value=memory.peak_reserved_bytes)


def _means(draws: Array) -> Array:
    return np.asarray(draws.mean(axis=1))


def _interval(blocks: Array, statistic: Statistic) -> Interval:
    """95 % of the statistic over resampled blocks; None for a single block, which shows no noise."""
    count = len(blocks)
    if count < 2:
        return None
    draws = np.random.default_rng(SEED).integers(0, count, size=(DRAWS, count))
    low, high = np.percentile(statistic(blocks[draws]), [2.5, 97.5])
    return float(low), float(high)


def _fact(metric: str, value: float, interval: Interval, device: int | None = None) -> Fact:
    low, high = interval if interval is not None else (None, None)
    return Fact.model_validate(
        {"metric": metric, "device": device, "value": _kept(value)}
        | ({"low": _kept(low), "high": _kept(high)} if low is not None and high is not None else {})
    )


def _kept(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
