"""Records of what the ranks measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record


class FencedBlock(Record):
    """A block of fenced steps on one rank, one value a step, in milliseconds.

    compute: from leaving the gradient all-reduce of the step before to reaching the fence (optimizer, data,
    forward, backward). fence: the all-reduce of one element, which is the wait for the slowest rank plus a floor.
    transfer: the all-reduce of all gradients. Each value is the difference of two marks on one device, so no
    clocks are compared.
    """

    begin_s: float
    compute_ms: list[float]
    fence_ms: list[float]
    transfer_ms: list[float]


class RankSteps(Record):
    """All blocks of one rank in one attempt of the ddp phase, oldest first."""

    rank: int
    device: int
    """Index into the devices of the plan."""
    samples_per_step: int
    units_per_step: float
    """Work of one step, 1 being the planned batch: how much longer this rank's own device takes for its samples than
    for the planned ones. Not the ratio of samples, because the optimizer costs the same for any batch."""
    fenced: list[FencedBlock]
    overlapped_step_ms: list[float]
    """Mean step of each overlapped block, communication overlapped as in real training."""
    loss: float | None = None
    """Last training loss; null when it is not finite."""


class WarmUp(Record):
    """How the ddp phase became steady: blocks of steps until the last four agree (or the cap)."""

    blocks: int
    steps: int
    settled: bool
    last_medians_ms: list[float]


class DdpAttempt(Record):
    """One pass of the ddp phase over all ranks. A confirming attempt runs in fresh processes."""

    attempt: int
    steps_per_block: int
    warm_up: WarmUp | None = None
    ranks: list[RankSteps]
    complete: bool
    """False when the attempt was cut short; the blocks that every rank finished are kept."""


class SoloResult(Record):
    """One device working alone: no communication, the same seeded work as every other device."""

    rank: int
    device: int
    eager_step_ms: float
    graph_step_ms: float | None = None
    """Device time of the step from replays of a CUDA graph, without any host in it."""
    graph_missing: str | None = None
    samples_per_step: int
    output_digest: str
    """Digest of outputs and gradients after a few seeded steps; equal on devices of one model."""

    @property
    def samples_per_s(self) -> float:
        """Throughput of the device alone, with the host."""
        return 1000 * self.samples_per_step / self.eager_step_ms


class DeviceProbe(Record):
    """Quick measures of one device alone, all devices at the same time; GB is 1e9 bytes."""

    rank: int
    device: int
    gemm_tflops: float
    """Dense matrix product in the model's type."""
    memory_copy_gb_per_s: float
    """Copy within device memory, bytes read plus bytes written."""
    host_to_device_gb_per_s: float
    device_to_host_gb_per_s: float
    """Copies from and to pinned host memory."""


class CollectiveRow(Record):
    """One collective at one size, with nccl-tests' definitions; GB is 1e9 bytes."""

    collective: Literal["all_reduce", "all_gather", "reduce_scatter"]
    backend: str
    mode: Literal["eager", "graph"]
    ranks: int
    size_bytes: int
    dtype: str
    iterations: int
    time_us: float
    """Mean over ranks of the time of one operation."""
    time_max_us: float
    """Slowest rank."""
    algorithm_bandwidth_gb_per_s: float
    bus_bandwidth_gb_per_s: float
    wrong_elements: int


class DataParallelResult(Record):
    """nn.DataParallel over all devices with the same global batch, against one device and against DDP."""

    global_batch: int
    shards: list[int]
    """Samples that each device receives; 0 means not fed, by the arithmetic of the split."""
    step_ms: float
    one_device_step_ms: float
    peak_memory_bytes: list[int]


class RankMemory(Record):
    """Memory of one rank's process at its peak in the ddp phase."""

    rank: int
    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    capacity_bytes: int


class RankInfo(Record):
    """Who a rank is, as it sees itself."""

    rank: int
    local_rank: int
    attempt: int
    pid: int
    device: int
    device_name: str
    device_uuid: str | None = None
    versions: dict[str, str | None] = Field(default_factory=dict)
