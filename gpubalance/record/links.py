"""Records of copies over single links: between two devices, and between a device and the host. GB is 1e9 bytes.

`source`, `target`, `device`, `first` and `second` are indices into the devices of the plan.
"""

from __future__ import annotations

from pydantic import Field

from gpubalance.record.base import Record


class PeerCopies(Record):
    """Copies from one device to another, by the copy engine of the source."""

    source: int
    target: int
    peer_access: bool | None = None
    """Whether CUDA says that the source may reach into the target's memory."""
    checked_bytes: int | None = None
    """Bytes of a pattern of this pair that were compared on the target."""
    wrong_bytes: int | None = None
    checked_on_host_bytes: int | None = None
    """Bytes that were compared once more in host memory."""
    wrong_on_host_bytes: int | None = None
    copy_bytes: int | None = None
    """Size of one timed copy."""
    looks_gb_per_s: list[float] = Field(default_factory=list)
    """Each the median of three samples, nothing else running: the first together with all other pairs, three more
    where the first was lower than those of similar pairs."""
    both_ways_gb_per_s: float | None = None
    """This direction while the opposite one copies as well; the sum of both directions is the total."""
    together_gb_per_s: float | None = None
    """This direction while all other devices copy in disjoint pairs."""


class DeviceCopies(Record):
    """Copies of one device within its memory, and from and to pinned host memory."""

    device: int
    memory_copy_gb_per_s: float | None = None
    """Within device memory, bytes read plus bytes written."""
    to_device_gb_per_s: float | None = None
    from_device_gb_per_s: float | None = None
    together_to_device_gb_per_s: float | None = None
    """While all devices of the run copy in this direction."""
    together_from_device_gb_per_s: float | None = None
    numa_node: int | None = None
    """NUMA node whose cores allocated the host buffer."""
    not_bound: str | None = None
    """Why the buffer was allocated wherever this process happened to run."""


class HostPair(Record):
    """Two devices that copy from the host at the same time, nothing else running."""

    first: int
    second: int
    first_gb_per_s: float
    second_gb_per_s: float


class Links(Record):
    """Everything that the links phase measured."""

    buffer_bytes: int | None = None
    peers: list[PeerCopies] = Field(default_factory=list)
    devices: list[DeviceCopies] = Field(default_factory=list)
    host_pairs: list[HostPair] = Field(default_factory=list)
    missing: dict[str, str] = Field(default_factory=dict)
    """Part of the phase -> why it was not measured."""
    complete: bool = False
    """False when the phase was cut short; what was measured until then is kept."""
