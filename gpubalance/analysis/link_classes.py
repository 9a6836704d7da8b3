"""What kind of link joins two devices of a run, by NVML's word, and what it lets expect."""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.record.node import Device, Peer
from gpubalance.record.run import Run

WAYS = {"INTERNAL": "board", "SINGLE": "PIX", "MULTIPLE": "PXB", "HOSTBRIDGE": "PHB", "NODE": "NODE", "SYSTEM": "SYS"}
"""nvidia-smi topo's words for the nearest common ancestor."""

NOMINAL_GB_PER_S = 25.0
"""An NVLink carries multiples of this: V100 to H200 25, B200 50. Drivers say that, or the raw rate of the line, which
is up to 7 % more (H200: 26.562)."""

LARGEST_OVERHEAD = 0.07


@dataclass(frozen=True)
class LinkClass:
    """Links that can be held against each other."""

    kind: str | None
    """NVLink, PIX, PXB, PHB, NODE, SYS, board; None where NVML does not say, which makes no class."""
    links: int | None
    """NVLinks that carry copies between the two; None where that is not known, or where they are none."""
    limit_gb_per_s: float | None
    """NVLinks x 25 or 50 GB/s, one direction."""
    models: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Links of this class are alike: NVML says what it is, and of NVLinks how many."""
        return self.kind is not None and (self.kind != "NVLink" or self.links is not None)

    @property
    def name(self) -> str:
        """18 NVLinks, NVLink, PIX."""
        if self.kind is None:
            return "unknown"
        return f"{self.links} NVLink{'' if self.links == 1 else 's'}" if self.links else self.kind


def link_class(run: Run, source: int, target: int) -> LinkClass:
    """The class of the link from one device of the plan to another."""
    one, other = run.plan.devices[source], run.plan.devices[target]
    peer = _peer(one, other)
    models = tuple(sorted({one.name, other.name}))
    if peer is None:
        return LinkClass(None, None, None, models)
    if not over_nvlink(peer):
        return LinkClass(WAYS.get(peer.topology or "", peer.topology), None, None, models)
    links = peer.nvlinks if peer.nvlinks is not None else _shared_links(run, one, other)
    speed = min((nominal_gb_per_s(device) or 0.0 for device in (one, other)), default=0.0)
    return LinkClass("NVLink", links, links * speed if links and speed else None, models)


def over_nvlink(peer: Peer) -> bool:
    """NVLink joins the two: NVML says that peer access over it works, or that links lead there."""
    return peer.p2p.get("nvlink") == "OK" or bool(peer.nvlinks)


def _peer(one: Device, other: Device) -> Peer | None:
    return next((peer for peer in one.peers if peer.nvml_index == other.nvml_index), None)


def _shared_links(run: Run, one: Device, other: Device) -> int | None:
    """Where all GPUs of the node are joined by NVLink and nobody says where links lead, all of them lead to switches,
    or to the only other GPU. As many as either *has*: a link that is down must not move a GPU into a class of its own.
    """
    everybody = [peer for device in run.node.devices for peer in device.peers]
    if not everybody or not all(over_nvlink(peer) for peer in everybody):
        return None
    up = max((nvlinks_active(device) or 0 for device in run.node.devices), default=0)
    counts = [device.readings.get("nvlink_count") or up for device in (one, other)]
    known = [count for count in counts if isinstance(count, int) and count > 0]
    return min(known) if len(known) == len(counts) else None


def nominal_gb_per_s(device: Device) -> float | None:
    """What one of the device's NVLinks carries in one direction."""
    raw = device.readings.get("nvlink_speed_mb_per_s")
    if not isinstance(raw, int | float) or raw <= 0:
        return None
    speed = raw / 1000
    nominal = NOMINAL_GB_PER_S * round(speed / NOMINAL_GB_PER_S)
    return nominal if nominal and abs(speed / nominal - 1) <= LARGEST_OVERHEAD else speed


def nvlinks_active(device: Device) -> int | None:
    """NVLinks of the device that were up before the run; None where NVML does not say."""
    value = device.readings.get("nvlinks_active")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
