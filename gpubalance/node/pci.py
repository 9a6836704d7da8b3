"""GPUs, the bridges above them and the IOMMU, as the PCI bus shows them, whatever the driver says."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubalance.node.host import is_gpu, read_text
from gpubalance.node.part import Part, error_name, merged, names_in, part

DEVICES = "sys/bus/pci/devices"

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_EXTENDED_AT = 0x100
_ACS = 0x000D
"""PCIe base specification: extended capabilities begin at 0x100; Access Control Services is number 0x000D."""

_ACS_CONTROL_OFFSET = 6
_ACS_REDIRECT_BITS = 0b11100
"""Request redirect (2), completion redirect (3), upstream forwarding (4): each sends peer traffic to the root."""

_WIDEST = 32
"""The specification knows no wider link; a dead card answers 63, a virtual one 255."""

_TRANSLATED, _PASSTHROUGH, _OFF = "translated", "passthrough", "off"


def gpu_addresses(root: Path) -> list[str] | None:
    """Bus ids of the NVIDIA GPUs; None where /sys cannot be read."""
    names = names_in(root / DEVICES)
    return None if names is None else [name for name in names if is_gpu(root / DEVICES / name)]


def numa_node_of(root: Path, address: str | None) -> int | None:
    """The NUMA node that a device is nearest to; None where the bus does not say."""
    return _whole(read_text(root / DEVICES / address.lower() / "numa_node")) if address else None


def bridges_above(root: Path, address: str) -> list[str]:
    """Bus ids of the bridges between a device and its root complex, from the top."""
    above = (root / DEVICES / address).resolve().parent.parts
    return [name for name in above if _ADDRESS.fullmatch(name)]


def read_pci(root: Path) -> Part:
    """GPUs on the bus, redirecting bridges above them, and what the IOMMU does."""
    gpus = gpu_addresses(root)
    if gpus is None:
        return merged(part(field, None) for field in ("pci_gpus", "acs_bridges", "iommu"))
    return merged([part("pci_gpus", [_gpu(root, gpu) for gpu in gpus]), _acs_bridges(root, gpus), _iommu(root, gpus)])


def _gpu(root: Path, address: str) -> dict[str, Any]:
    folder = root / DEVICES / address
    node = _whole(read_text(folder / "numa_node"))
    return {
        "bus_id": address,
        "device_id": read_text(folder / "device") or "unknown",
        "driver": _link_name(folder / "driver"),
        "numa_node": node,
        "link_speed_gt_per_s": _speed(read_text(folder / "current_link_speed")),
        "link_width": _width(read_text(folder / "current_link_width")),
        "link_speed_max_gt_per_s": _speed(read_text(folder / "max_link_speed")),
        "link_width_max": _width(read_text(folder / "max_link_width")),
    }


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None


def _whole(text: str | None) -> int | None:
    """-1 is the kernel's word for: no NUMA node."""
    return int(text) if text is not None and text.isdecimal() else None


def _speed(text: str | None) -> float | None:
    """16.0 GT/s PCIe; Unknown where the card is dead or virtual."""
    number = (text or "").split(" ")[0]
    return float(number) if re.fullmatch(r"\d+(\.\d+)?", number) else None


def _width(text: str | None) -> int | None:
    width = _whole(text)
    return width if width is not None and 0 < width <= _WIDEST else None


def _acs_bridges(root: Path, gpus: list[str]) -> Part:
    """Bridges that redirect. One that cannot be read leaves no answer, unless another one redirects anyway."""
    bridges = sorted({bridge for gpu in gpus for bridge in bridges_above(root, gpu)})
    controls = {bridge: acs_control(root / DEVICES / bridge / "config") for bridge in bridges}
    redirecting = [name for name, bits in controls.items() if isinstance(bits, int) and bits & _ACS_REDIRECT_BITS]
    unreadable = [reason for reason in controls.values() if isinstance(reason, str)]
    if redirecting or not unreadable:
        return part("acs_bridges", redirecting)
    return part("acs_bridges", None, unreadable[0])


def acs_control(config: Path) -> int | str:
    """The ACS control register in a device's configuration space, 0 where it has none, or why it cannot be read."""
    try:
        space = config.read_bytes()
    except OSError as error:
        return error_name(error)
    if len(space) <= _EXTENDED_AT:
        return "NO_PERMISSION" if len(space) <= 64 else "no extended configuration space"
    return next((_control(space, at) for at, capability in _capabilities(space) if capability == _ACS), 0)


def _control(space: bytes, at: int) -> int:
    (bits,) = struct.unpack_from("<H", space.ljust(at + 8, b"\0"), at + _ACS_CONTROL_OFFSET)
    return int(bits)


def _capabilities(space: bytes) -> Iterator[tuple[int, int]]:
    """(offset, number) of each extended capability. Offsets only grow here, so that a broken chain ends."""
    at = _EXTENDED_AT
    while at + 4 <= len(space):
        (header,) = struct.unpack_from("<I", space, at)
        yield at, header & 0xFFFF
        following = header >> 20 & ~3
        if following <= at:
            return
        at = following


def _iommu(root: Path, gpus: list[str]) -> Part:
    kinds = {read_text(root / DEVICES / gpu / "iommu_group/type") for gpu in gpus} - {None}
    if any(str(kind).startswith("DMA") for kind in kinds):
        return part("iommu", _TRANSLATED)
    if "identity" in kinds:
        return part("iommu", _PASSTHROUGH)
    units = names_in(root / "sys/class/iommu")
    if units == []:
        return part("iommu", _OFF)
    return part("iommu", _asked_for(read_text(root / "proc/cmdline") or ""), "the kernel does not say")


def _asked_for(command_line: str) -> str | None:
    """What the kernel's command line asks of the IOMMU, for kernels that name no kind of group."""
    words = command_line.split()
    for meaning, spellings in (
        (_OFF, {"iommu=off", "intel_iommu=off", "amd_iommu=off"}),
        (_PASSTHROUGH, {"iommu=pt", "iommu.passthrough=1"}),
        (_TRANSLATED, {"intel_iommu=on", "iommu.passthrough=0"}),
    ):
        if spellings.intersection(words):
            return meaning
    return None
