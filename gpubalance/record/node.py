"""Records of what the machine is: devices with every name they go by, and the host around them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record

Scalar = int | float | str | bool | None


class Peer(Record):
    """How a GPU stands to another one."""

    nvml_index: int
    topology: str | None
    """Nearest common ancestor: INTERNAL, SINGLE, MULTIPLE, HOSTBRIDGE, NODE, SYSTEM (NVML_TOPOLOGY_*)."""
    p2p: dict[str, str | None]
    """read, write, nvlink, atomics -> OK, or why not (NVML_P2P_STATUS_*); null when NVML does not say."""
    nvlinks: int | None = None
    """NVLinks that lead straight to it and are up; null where that was not asked, or where NVML does not say where
    links lead, as with NVSwitches and in guests."""
    missing: dict[str, str] = Field(default_factory=dict)


class Device(Record):
    """A GPU, or a CPU slot where there is none, with every identity it has.

    CUDA and NVML number devices differently, so all names are kept together; they are joined by UUID or PCI bus
    id and never by position.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    uuid: str | None = None
    pci_bus_id: str | None = None
    nvml_index: int | None = None
    cuda_ordinal: int | None = None
    """Position among the devices that CUDA_VISIBLE_DEVICES leaves visible; null when it is hidden."""
    minor_number: int | None = None
    memory_total_bytes: int | None = None
    mig_enabled: bool | None = None
    cpu_cores: list[int] = Field(default_factory=list)
    """Cores this CPU slot owns alone; empty for a GPU."""
    readings: dict[str, Scalar] = Field(default_factory=dict)
    """What was read once, before anything ran."""
    peers: list[Peer] = Field(default_factory=list)
    """How it stands to the other GPUs of the node; empty where nobody asked."""
    missing: dict[str, str] = Field(default_factory=dict)
    """Field name -> why it is null."""


class DroppedEntry(Record):
    """An entry of CUDA_VISIBLE_DEVICES that yields no device, and why."""

    entry: str
    reason: str


class Visibility(Record):
    """What CUDA_VISIBLE_DEVICES asked for and what it leaves visible (NVML indices, in CUDA's order)."""

    asked: str | None
    visible: list[int]
    dropped: list[DroppedEntry] = Field(default_factory=list)


class Process(Record):
    """A process that NVML reports on a device before the run. Inside containers the pid may be foreign."""

    nvml_index: int
    pid: int
    memory_used_bytes: int | None
    name: str | None = None
    owner: str | None = None


class Node(Record):
    """The machine, as it was before anything ran."""

    hostname: str
    kernel: str
    gpu_evidence: list[str]
    """Why this machine must have a GPU, whatever the driver says: PCI devices, /dev/nvidia*. Empty: surely none."""
    driver_version: str | None = None
    nvml_version: str | None = None
    nvml_error: str | None = None
    """Why NVML cannot be used; null when it answers."""
    cuda_driver_version: str | None = None
    devices: list[Device] = Field(default_factory=list)
    visibility: Visibility | None = None
    processes: list[Process] = Field(default_factory=list)
    cpu_model: str | None = None
    cpu_count: int
    cpu_effective: float
    """min(count, affinity, cgroup quota): the cores that ranks can really use at once."""
    cpu_cores: list[int] = Field(default_factory=list)
    """Cores of the affinity mask."""
    cpu_busy_before: float | None = None
    """Share of all cores that was busy just before the run, 0 to 1."""
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    shm_free_bytes: int | None = None
    container: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables that steer CUDA, NCCL, gloo and OpenMP; nothing else is recorded. Of a bench also those that NCCL takes
    from its files (nccl.conf)."""
    packages: dict[str, str | None] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
