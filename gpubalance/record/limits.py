"""What a device could do at most, derived from what the driver says of it; no table of models to grow old.

Sources of the factors: NVIDIA's architecture white papers (operations per clock and multiprocessor), PCI-SIG (rates).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from gpubalance.record.node import Device

CORES_PER_SM = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
"""CUDA cores of one multiprocessor by compute capability; 128 in every later part."""

FLOPS_PER_CLOCK = {
    (7, 0): 1024,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
    (10, 3): 8192,
}
"""Dense 16-bit operations per clock and multiprocessor of the tensor cores."""

GEFORCE_FLOPS_PER_CLOCK = 512
"""GeForce parts from Turing on multiply at half rate when they add up in 32 bits (RTX 2080 Ti: 54 TFLOPS, not 108);
known by name, not by compute capability. GTX parts have no tensor cores."""

PCIE_GB_PER_S_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""One direction, after line coding."""


def memory_limit_gb_per_s(device: Device) -> float | None:
    """Clock x 2 (double data rate) x bus width. H200: 3201 MHz x 2 x 6016 bits = 4815 GB/s."""
    clock, bits = _number(device, "memory_clock_max_mhz"), _number(device, "memory_bus_width_bits")
    return None if not clock or not bits else clock * 1e6 * 2 * bits / 8 / 1e9


def gemm_limit_tflops(device: Device, clock_mhz: float | None) -> float | None:
    """Multiprocessors x clock x operations per clock, at the clock that was seen during the product.

    Not at the maximum clock: a healthy part at full load is held by its power limit far below it (H200: 132 x 4096 x
    1980 MHz would be 1071, but 700 W allow 1400 to 1550 MHz), and how far depends on the model.
    """
    cores = _number(device, "cuda_cores")
    major, minor = _number(device, "compute_capability_major"), _number(device, "compute_capability_minor")
    if not cores or not clock_mhz or major is None or minor is None:
        return None
    capability = (int(major), int(minor))
    if "GTX" in device.name:
        return None
    halved = "GeForce" in device.name and capability >= (7, 5)
    rate = GEFORCE_FLOPS_PER_CLOCK if halved else FLOPS_PER_CLOCK.get(capability)
    return None if rate is None else cores / CORES_PER_SM.get(capability, 128) * clock_mhz * 1e6 * rate / 1e12


def host_link_limit_gb_per_s(device: Device) -> float | None:
    """Lanes x rate of the PCIe generation, as far as device and slot both go."""
    generation, width = _number(device, "pcie_generation_max"), _number(device, "pcie_width_max")
    if not generation or not width or int(generation) not in PCIE_GB_PER_S_PER_LANE:
        return None
    return PCIE_GB_PER_S_PER_LANE[int(generation)] * width


def nvlink_limit_gb_per_s(device: Device, active_links: int) -> float | None:
    """Active links x speed of one, one direction. H200: 18 x 26.562 GB/s, of which 25 carry data."""
    speed = _number(device, "nvlink_speed_mb_per_s")
    return None if not speed or not active_links else active_links * speed / 1000


@dataclass(frozen=True)
class Published:
    """What the maker publishes of a model."""

    name: str
    memory_gb_per_s: float
    tflops: float
    source: str


def published(name: str) -> Published | None:
    """The published peaks of a model by NVML's name: the longest known beginning of it, or None."""
    text = resources.files("gpubalance.record").joinpath("known_gpus.json").read_text(encoding="utf-8")
    known = [gpu for gpu in json.loads(text)["gpus"] if name == gpu["name"] or name.startswith(gpu["name"] + "-")]
    if not known:
        return None
    best = max(known, key=lambda gpu: len(gpu["name"]))
    return Published(best["name"], best["memory"], best["tflops"], best["source"])


def _number(device: Device, key: str) -> float | None:
    value = device.readings.get(key)
    return float(value) if isinstance(value, int | float) else None
