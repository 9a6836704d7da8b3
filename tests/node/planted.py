"""A made-up host: files below a root, as the kernel would show them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write these files below the root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def plant_gpu(root: Path, path: str, **files: str) -> Path:
    """A GPU at a place in the PCI tree, such as pci0000:5d/0000:5d:00.0/0000:5e:00.0; returns its folder."""
    folder = plant_device(root, path)
    plant(folder, {"vendor": "0x10de\n", "class": "0x030200\n", "device": "0x2335\n", **files})
    return folder


def plant_device(root: Path, path: str) -> Path:
    """A PCI device and all bridges above it, linked as the kernel does."""
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    folder = root / "sys/devices"
    for part in path.split("/"):
        folder /= part
        folder.mkdir(parents=True, exist_ok=True)
        link = bus / part
        if not part.startswith("pci") and not link.is_symlink():
            link.symlink_to(f"../../../devices/{folder.relative_to(root / 'sys/devices')}")
    return folder


def config_space(acs_control: int | None, size: int = 4096) -> bytes:
    """Configuration space of a bridge: an extended capability of no interest, then ACS with this control register."""
    space = bytearray(size)
    if size > 0x148:
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)  # AER, version 1, next at 0x148
        if acs_control is not None:
            struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x5F, acs_control)
    return bytes(space)
