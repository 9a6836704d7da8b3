"""Records of what the ranks measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record
from gpubalance.record.collectives import CollectiveName


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


STAGES = ("update", "input", "copy", "forward", "backward")
"""Parts of compute in the order in which a fenced step runs them."""

BUSY = "busy"
"""CPU time of the thread that steps, beside the stages."""


class HostUse(Record):
    """What the host spent on one rank's process during one fenced block (getrusage, all its threads)."""

    wall_s: float
    cpu_s: float
    """User and system time; it exceeds wall_s where several threads are busy."""
    voluntary_switches: int
    """The process waited for something."""
    involuntary_switches: int
    """The process was made to leave its core although it had work."""
    queued_s: float | None = None
    """Time that its threads had work and no core, added up; null where the kernel does not count it."""


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
    stages_ms: dict[str, list[float]] = Field(default_factory=dict)
    """Stage of `STAGES` -> the median over a block's steps, one value a fenced block. `update`, `copy`, `forward` and
    `backward` are marks on the device; `input` is the host waiting for its next batch, which a device that still has
    work queued does not feel. On a CPU the stages of a step add up to its compute. Empty in older runs."""
    device_step_ms: float | None = None
    """The local step, with this rank's extra device work, replayed as a CUDA graph: no host in it."""
    device_step_missing: str | None = None
    host: list[HostUse] = Field(default_factory=list)
    """One a fenced block. Empty in older runs."""
    busy_ms: list[float] = Field(default_factory=list)
    """CPU time of the thread that steps within compute: the median over a block's steps, one value a fenced block. On a
    CPU the rest of compute is time without a core. Empty in older runs."""
    means_ms: dict[str, list[float]] = Field(default_factory=dict)
    """The same stages, and `busy`, as means over a block's steps: what lies above the medians of all blocks is time of
    steps that are slow now and then. Empty in older runs."""
    collector_ms: float | None = None
    """Median compute of one more fenced block, with Python's garbage collector on."""


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
    launch_us: float | None = None
    """Host time to launch one tiny kernel. Null in older runs."""


class Jitter(Record):
    """How much single operations differ: a pair of events around each, of each operation the slowest rank."""

    operations: int
    p50_us: float
    p99_us: float
    max_us: float
    cv: float
    """Standard deviation over mean."""


class CollectiveRow(Record):
    """One collective at one size, with nccl-tests' definitions; GB is 1e9 bytes."""

    collective: CollectiveName
    backend: str
    mode: Literal["eager", "graph"]
    placement: Literal["in_place", "out_of_place"] = "in_place"
    ranks: int
    size_bytes: int
    """S after nccl-tests' rounding."""
    dtype: str
    iterations: int
    time_us: float
    """Mean over ranks of the time of one operation, by `clock`; bandwidths follow from it."""
    time_max_us: float
    """Slowest rank."""
    clock: Literal["device", "host"] = "device"
    """device: two events around the loop. host: from before the first launch to the end of the wait, as nccl-tests."""
    device_time_us: float | None = None
    device_time_max_us: float | None = None
    host_time_us: float | None = None
    host_time_max_us: float | None = None
    algorithm_bandwidth_gb_per_s: float
    bus_bandwidth_gb_per_s: float
    wrong_elements: int
    """Sum over ranks, from a pass of its own that is not timed."""
    first_wrong_rank: int | None = None
    first_wrong_index: int | None = None
    """Element of that rank's result."""
    jitter: Jitter | None = None


class Transport(Record):
    """How NCCL moves data from one rank to another."""

    sender: int
    receiver: int
    via: str
    """P2P/CUMEM, P2P/IPC, SHM/direct/direct, NET/Socket/0 and their kin, in NCCL's words."""
    channels: int


class AlgorithmChoice(Record):
    """What NCCL chose for one message."""

    collective: CollectiveName
    size_bytes: int
    """S as in `CollectiveRow`."""
    algorithm: str
    """Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT."""
    protocol: str
    """LL, LL128, Simple."""
    channels: int | None = None


class NcclFacts(Record):
    """What NCCL's log said in a short pass of its own, in fresh processes; null where no line said it."""

    version: str | None = None
    network: str | None = None
    """What it would use between hosts; within one it only shows what was found."""
    nvls_available: bool | None = None
    nvls_channels: int | None = None
    collective_channels: int | None = None
    p2p_channels: int | None = None
    rings_connected: bool | None = None
    """Null when no rank said so: newer versions connect at the first operation."""
    transports: list[Transport] = Field(default_factory=list)
    choices: list[AlgorithmChoice] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


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
