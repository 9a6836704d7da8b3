"""Throughput: DDP against each device alone, and against DataParallel with the same global batch."""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.record.run import Run


@dataclass(frozen=True)
class Scaling:
    """Samples per second. Efficiency 1 means that DDP is as fast as all devices together without communication."""

    ddp_samples_per_s: float | None
    alone_samples_per_s: float | None
    """Mean of the devices, each working alone on the same per-rank batch."""
    speedup: float | None
    """DDP over one device."""
    efficiency: float | None
    data_parallel_samples_per_s: float | None
    one_device_samples_per_s: float | None
    """One device with the global batch, as DataParallel has it."""
    data_parallel_speedup: float | None


def scaling_of(run: Run, overlapped_ms: float | None) -> Scaling:
    """Throughputs of one run; what did not run is None."""
    samples = sum(rank.samples_per_step for rank in run.ddp[0].ranks) if run.ddp else 0
    ddp = 1000 * samples / overlapped_ms if overlapped_ms else None
    alone = [solo.samples_per_s for solo in run.solo]
    mean_alone = sum(alone) / len(alone) if alone else None
    parallel = run.data_parallel
    return Scaling(
        ddp_samples_per_s=ddp,
        alone_samples_per_s=mean_alone,
        speedup=ddp / mean_alone if ddp and mean_alone else None,
        efficiency=ddp / sum(alone) if ddp and alone else None,
        data_parallel_samples_per_s=1000 * parallel.global_batch / parallel.step_ms if parallel else None,
        one_device_samples_per_s=1000 * parallel.global_batch / parallel.one_device_step_ms if parallel else None,
        data_parallel_speedup=parallel.one_device_step_ms / parallel.step_ms if parallel else None,
    )
