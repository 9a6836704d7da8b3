"""One look at a node: everything that `gpubalance probe` saw, in one document.

A value that could not be read is null and its reason stands beside it; it is never 0.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record
from gpubalance.record.node import Node, Peer, Scalar
from gpubalance.record.run import Phase, Setting
from gpubalance.record.samples import Samples
from gpubalance.record.timings import DeviceProbe

PROBE_SCHEMA_VERSION = 1


class NvLink(Record):
    """One NVLink of a GPU, by its number on that GPU."""

    link: int
    active: bool | None
    version: int | None = None


class DeviceDetail(Record):
    """Everything that a healthy GPU tells about itself beside its identity."""

    nvml_index: int
    values: dict[str, Scalar] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
    """Key -> why it is null. NOT_SUPPORTED is the GPU's word that it has no such thing."""
    links: list[NvLink] = Field(default_factory=list)
    peers: list[Peer] = Field(default_factory=list)
    failed: str | None = None
    """Why the process that asked this GPU gave no answer, with the call that never returned."""


class PciGpu(Record):
    """A GPU as the PCI bus shows it, whatever the driver says."""

    bus_id: str
    device_id: str
    driver: str | None = None
    numa_node: int | None = None
    link_speed_gt_per_s: float | None = None
    link_width: int | None = None
    link_speed_max_gt_per_s: float | None = None
    link_width_max: int | None = None


class NumaNode(Record):
    """A NUMA node and its CPUs, as the kernel writes them: 0-15,32-47."""

    node: int
    cpus: str
    memory_total_bytes: int | None = None


class KernelEvent(Record):
    """A line of the kernel's log that speaks of a GPU or its bus."""

    kind: Literal["xid", "sxid", "fallen_off", "aer", "downtrained"]
    text: str
    """The line, one line, without anything that identifies people."""
    xid: int | None = None
    bus_id: str | None = None
    fatal: bool | None = None


class StaleFile(Record):
    """A segment in /dev/shm that nobody uses any more."""

    name: str
    size_bytes: int
    age_s: float
    owner: str | None


class Holder(Record):
    """A process that holds a GPU's device file and is dead (Z) or cannot be killed (D)."""

    pid: int
    state: str
    name: str | None = None
    owner: str | None = None
    files: list[str] = Field(default_factory=list)


class HostDetail(Record):
    """The host around the GPUs, as far as this process may see it."""

    uptime_s: float | None = None
    wsl: bool = False
    virtual_machine: bool | None = None
    """True when the CPU says that a hypervisor is below; PCI topology is then a picture the hypervisor painted."""
    numa_nodes: list[NumaNode] = Field(default_factory=list)
    kernel_modules: list[str] | None = None
    """Names of loaded modules that matter to GPUs; null when /proc/modules cannot be read."""
    device_files: dict[str, str] = Field(default_factory=dict)
    """/dev/nvidia* -> ok, or the name of the error that opening it gave."""
    driver_file_version: str | None = None
    """The kernel module's version by /proc/driver/nvidia/version."""
    pci_gpus: list[PciGpu] | None = None
    """Null when /sys is not readable."""
    open_files_limit: int | None = None
    memlock_limit_bytes: int | None = None
    """Null is unlimited (see `missing` for not read)."""
    stack_limit_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_stale: list[StaleFile] = Field(default_factory=list)
    cgroup_memory_limit_bytes: int | None = None
    cgroup_cpu_quota: float | None = None
    cgroup_periods: int | None = None
    cgroup_periods_throttled: int | None = None
    iommu: str | None = None
    """off, passthrough or translated."""
    acs_bridges: list[str] | None = None
    """PCI bridges above GPUs whose ACS redirects peer-to-peer traffic; null when config space cannot be read."""
    kernel_log: list[KernelEvent] | None = None
    """Events since boot; null when the log cannot be read."""
    hostname_resolves: bool | None = None
    infiniband_ports: list[str] = Field(default_factory=list)
    nccl_conf: dict[str, dict[str, str]] = Field(default_factory=dict)
    """File -> variable -> value."""
    holders: list[Holder] = Field(default_factory=list)
    sys_nice: bool | None = None
    """Whether this process may bind host memory to NUMA nodes (CAP_SYS_NICE)."""
    nccl_libraries: list[str] = Field(default_factory=list)
    """Every libnccl.so* that a program here could load."""
    binding_file: str | None = None
    """Where `import pynvml` comes from."""
    missing: dict[str, str] = Field(default_factory=dict)


class TorchDetail(Record):
    """What torch says about itself, asked in a process of its own that makes no CUDA context."""

    version: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    nccl_library: str | None = None
    """File name of the libnccl that torch loaded; null when it is linked statically or not loaded."""
    arch_list: list[str] = Field(default_factory=list)
    cuda_available: bool | None = None
    device_count: int | None = None
    seconds: float | None = None
    """How long the import took."""
    error: str | None = None
    """Why torch could not be asked: not installed, its import failed, it never came back."""


class DeviceLoad(Record):
    """What one GPU did under `--load`, in a process of its own."""

    device: int
    """Index into `Load.devices`."""
    stage: str
    """The last stage that was begun: start, allocate, matmul, bits, speed, done."""
    seconds: float
    matmul_max_error: float | None = None
    """Largest difference from the CPU's product, in units of the tolerance: above 1 is wrong."""
    repeats: int | None = None
    """How often the large product was repeated."""
    repeats_differing: int | None = None
    """How many of the repetitions gave other bits than the first."""
    output_digest: str | None = None
    speed: DeviceProbe | None = None
    windows: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Stretch -> begin and end in seconds: `load speed` is all measures, `probe gemm` the matrix product."""
    error: str | None = None
    """What ended it before `done`."""
    error_kind: str | None = None
    """exception, out_of_memory, no_cuda, killed, exited, stalled."""
    skipped: str | None = None
    """Why this GPU was left alone, for example because somebody uses it."""


class Load(Record):
    """The active check of `--load`: NVML indices of the GPUs it ran on, what each did, what the sensor saw."""

    devices: list[int]
    results: list[DeviceLoad] = Field(default_factory=list)
    phases: list[Phase] = Field(default_factory=list)
    """`load speed`, from the first GPU that began its measures to the last that ended them."""
    samples: Samples = Field(default_factory=Samples)


class Probe(Record):
    """Everything one `probe` saw."""

    schema_version: int = PROBE_SCHEMA_VERSION
    kind: Literal["probe"] = "probe"
    gpubalance_version: str
    probe_id: str
    started_at: str
    duration_s: float
    settings: dict[str, Setting] = Field(default_factory=dict)
    simulated: str | None = None
    """Name of the stand-in profile; such a look says nothing about this node and never stands for its state."""
    looks: int = 1
    """How often the node was looked at, because a first look saw something that may pass (links that train)."""
    node: Node | None = None
    """Null when the driver did not answer."""
    details: list[DeviceDetail] = Field(default_factory=list)
    host: HostDetail
    torch: TorchDetail
    load: Load | None = None
    nvml_failed: str | None = None
    """Why NVML gave no snapshot: the call and device that never returned, or how the process died."""
