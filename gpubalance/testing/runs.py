"""Ready-made runs: whole records around the step times that a test or a demonstration wants to see judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpubalance.record.node import Device, Node
from gpubalance.record.run import ModelSpec, Phase, Plan, Run, Setting
from gpubalance.record.timings import DdpAttempt, FencedBlock, RankInfo, RankSteps, SoloResult, WarmUp

FLOOR_MS = 0.01
"""What an all-reduce of one element takes when nobody is waited for."""


def make_gpu(index: int, **readings: Any) -> Device:
    """An H200 with all its names; `readings` replace what it reads at rest."""
    at_rest = {
        "power_limit_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 3201,
        "memory_bus_width_bits": 6016,
        "cuda_cores": 16896,
        "compute_capability_major": 9,
        "compute_capability_minor": 0,
        "compute_mode": 0,
        "nvlink_count": 18,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "utilization_before_percent": 0,
        "memory_used_before_bytes": 0,
        "memory_free_before_bytes": 150109880320,
        "memory_reserved_bytes": 644939776,
    }
    return Device(
        kind="cuda",
        name="NVIDIA H200",
        uuid=f"GPU-{index + 1:08x}-aaaa-bbbb-cccc-{index:012d}",
        pci_bus_id=f"0000:{index + 6:02x}:00.0",
        nvml_index=index,
        cuda_ordinal=index,
        minor_number=index,
        memory_total_bytes=150754820096,
        mig_enabled=False,
        readings={**at_rest, **readings},
    )


def make_node(devices: Sequence[Device] = (), **values: Any) -> Node:
    """A quiet node with these GPUs."""
    base: dict[str, Any] = {
        "hostname": "node",
        "kernel": "6.1",
        "gpu_evidence": [f"PCI device {device.pci_bus_id}" for device in devices],
        "devices": list(devices),
        "cpu_model": "CPU",
        "cpu_count": 8,
        "cpu_effective": 8.0,
        "cpu_cores": list(range(8)),
        "cpu_busy_before": 0.01,
        "memory_total_bytes": 64 * 2**30,
        "driver_version": "580.1" if devices else None,
        "nvml_error": None if devices else "LIBRARY_NOT_FOUND",
    }
    return Node(**{**base, **values})


def steady(
    compute_ms: Sequence[float], *, blocks: int = 24, steps: int = 20, noise: float = 0.0, seed: int = 0
) -> NDArray[np.float64]:
    """(ranks, blocks, steps) of compute times around these medians; `noise` is the coefficient of variation."""
    generator = np.random.default_rng(seed)
    shape = (len(compute_ms), blocks, steps)
    return np.asarray(compute_ms)[:, None, None] * (1 + noise * generator.standard_normal(shape))


def make_attempt(
    compute: ArrayLike,
    *,
    transfer_ms: float = 20.0,
    overlapped_ms: float | None = None,
    attempt: int = 0,
    devices: Sequence[int] | None = None,
    units: Sequence[float] | None = None,
) -> DdpAttempt:
    """A ddp attempt with these compute times, (ranks, blocks, steps) in ms.

    Waits follow from them: in each step everybody waits for the slowest. The overlapped step is the mean slowest
    compute plus the whole transfer unless given.
    """
    times = np.asarray(compute, dtype=float)
    slowest = times.max(axis=0)
    fences = slowest - times + FLOOR_MS
    step_ms = float(slowest.mean()) + transfer_ms if overlapped_ms is None else overlapped_ms
    ranks = [
        RankSteps(
            rank=rank,
            device=devices[rank] if devices else rank,
            samples_per_step=round(4096 * units[rank]) if units else 4096,
            units_per_step=units[rank] if units else 1.0,
            fenced=[
                FencedBlock(
                    begin_s=float(block),
                    compute_ms=[float(value) for value in times[rank, block]],
                    fence_ms=[float(value) for value in fences[rank, block]],
                    transfer_ms=[transfer_ms] * times.shape[2],
                )
                for block in range(times.shape[1])
            ],
            overlapped_step_ms=[step_ms] * 8,
            loss=1.0,
        )
        for rank in range(times.shape[0])
    ]
    warm_up = WarmUp(blocks=4, steps=40, settled=True, last_medians_ms=[1.0] * 4)
    return DdpAttempt(attempt=attempt, steps_per_block=times.shape[2] + 2, warm_up=warm_up, ranks=ranks, complete=True)


def make_run(attempts: Sequence[DdpAttempt] = (), *, ranks: int = 2, on_cpu: bool = False, **values: Any) -> Run:
    """A whole run around these attempts: H200s, or CPU slots. `values` replace fields of the record."""
    count = len(attempts[0].ranks) if attempts else ranks
    devices = [_cpu_slot(index) if on_cpu else make_gpu(index) for index in range(count)]
    spec = ModelSpec(kind="mlp", width=4096, layers=12, dtype="bfloat16", parameters=201_375_744)
    base: dict[str, Any] = {
        "gpubalance_version": "0.1.0",
        "run_id": "2026-01-01T00-00-00-000000",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 30.0,
        "settings": {"seed": Setting(value=2026, origin="default")},
        "node": make_node([] if on_cpu else devices),
        "plan": Plan(
            backend="gloo" if on_cpu else "nccl",
            launcher="own",
            devices=devices,
            global_batch=4096 * count,
            per_rank_batch=4096,
            model=spec,
            workloads=["solo", "ddp"],
        ),
        "ranks": [
            RankInfo(
                rank=rank.rank,
                local_rank=rank.rank,
                attempt=attempt.attempt,
                pid=1000 * (attempt.attempt + 1) + rank.rank,
                device=rank.device,
                device_name=devices[rank.device].name,
                device_uuid=devices[rank.device].uuid,
                versions={"torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9"},
            )
            for attempt in attempts
            for rank in attempt.ranks
        ],
        "phases": [
            Phase(name="ddp", attempt=0, begin_s=5.0, end_s=15.0),
            Phase(name="ddp fenced", attempt=0, begin_s=6.0, end_s=12.0),
            Phase(name="ddp overlapped", attempt=0, begin_s=12.0, end_s=15.0),
        ],
        "ddp": list(attempts),
    }
    return Run(**{**base, **values})


def make_solo(
    rank: int,
    graph_step_ms: float | None,
    *,
    eager_step_ms: float = 100.0,
    digest: str = "same",
    samples: int = 4096,
) -> SoloResult:
    """The solo result of one rank on the device of the same number."""
    return SoloResult(
        rank=rank,
        device=rank,
        eager_step_ms=eager_step_ms,
        graph_step_ms=graph_step_ms,
        graph_missing=None if graph_step_ms is not None else "no graph",
        output_digest=digest,
        samples_per_step=samples,
    )


def _cpu_slot(index: int) -> Device:
    return Device(kind="cpu", name="CPU", cpu_cores=[index], memory_total_bytes=64 * 2**30)
