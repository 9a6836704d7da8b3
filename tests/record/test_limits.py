"""Limits against values computed by hand from data sheets."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.record.limits import gemm_limit_tflops, host_link_limit_gb_per_s, memory_limit_gb_per_s
from gpubalance.record.node import Device


def part(
    name: str,
    *,
    capability: tuple[int | None, int | None],
    cores: int | None,
    memory_mhz: int | None,
    bits: int | None,
    pcie: tuple[int | None, int | None],
) -> Device:
    readings: dict[str, Any] = {
        "compute_capability_major": capability[0],
        "compute_capability_minor": capability[1],
        "cuda_cores": cores,
        "memory_clock_max_mhz": memory_mhz,
        "memory_bus_width_bits": bits,
        "pcie_generation_max": pcie[0],
        "pcie_width_max": pcie[1],
    }
    return Device(kind="cuda", name=name, readings=readings)


H200 = part("NVIDIA H200", capability=(9, 0), cores=16896, memory_mhz=3201, bits=6016, pcie=(5, 16))
H100 = part("NVIDIA H100 80GB HBM3", capability=(9, 0), cores=16896, memory_mhz=2619, bits=5120, pcie=(5, 16))
A100 = part("NVIDIA A100-SXM4-40GB", capability=(8, 0), cores=6912, memory_mhz=1215, bits=5120, pcie=(4, 16))
L4 = part("NVIDIA L4", capability=(8, 9), cores=7424, memory_mhz=6251, bits=192, pcie=(4, 16))
L40S = part("NVIDIA L40S", capability=(8, 9), cores=18176, memory_mhz=9001, bits=384, pcie=(4, 16))
RTX_4090 = part(
    "NVIDIA GeForce RTX 4090",
    capability=(8, 9),
    cores=16384,
    memory_mhz=10501,
    bits=384,
    pcie=(4, 16),
)
V100 = part("Tesla V100-SXM2-32GB", capability=(7, 0), cores=5120, memory_mhz=877, bits=4096, pcie=(3, 16))
A40 = part("NVIDIA A40", capability=(8, 6), cores=10752, memory_mhz=7251, bits=384, pcie=(4, 16))
B200 = part("NVIDIA B200", capability=(10, 0), cores=18944, memory_mhz=3996, bits=8192, pcie=(5, 16))
B300 = part("NVIDIA B300", capability=(10, 3), cores=18944, memory_mhz=3996, bits=8192, pcie=(6, 16))
T4 = part("Tesla T4", capability=(7, 5), cores=2560, memory_mhz=5001, bits=256, pcie=(3, 16))


@pytest.mark.parametrize(
    ("device", "gb_per_s"),
    [
        (H200, 4814.3),  # 3201 MHz x 2 x 752 bytes
        (H100, 3352.3),  # 2619 x 2 x 640
        (A100, 1555.2),  # 1215 x 2 x 640
        (L4, 300.0),  # 6251 x 2 x 24
        (RTX_4090, 1008.1),  # 10501 x 2 x 48
        (V100, 898.0),  # 877 x 2 x 512
    ],
    ids=lambda value: value.name if isinstance(value, Device) else "",
)
def test_memory_moves_two_words_of_the_buss_width_a_clock(device: Device, gb_per_s: float) -> None:
    assert memory_limit_gb_per_s(device) == pytest.approx(gb_per_s, abs=0.05)


@pytest.mark.parametrize(
    ("device", "clock_mhz", "tflops"),
    [
        (H200, 1980, 1070.5),  # 132 multiprocessors x 1980 MHz x 4096
        (H200, 1465, 792.1),  # 132 x 1465 x 4096: where 700 W hold it
        (H100, 1980, 1070.5),
        (A100, 1410, 311.9),  # 108 x 1410 x 2048
        (A40, 1740, 149.7),  # 84 x 1740 x 1024
        (B200, 1965, 2382.4),  # 148 x 1965 x 8192
        (B300, 1965, 2382.4),
        (L4, 2040, 121.2),  # 58 x 2040 x 1024
        (L40S, 2520, 366.4),  # 142 x 2520 x 1024
        (RTX_4090, 2520, 165.2),  # 128 x 2520 x 512, half the rate of an L40S
        (V100, 1530, 125.3),  # 80 x 1530 x 1024
        (T4, 1590, 65.1),  # 40 x 1590 x 1024
    ],
    ids=lambda value: value.name if isinstance(value, Device) else "",
)
def test_tensor_cores_multiply_so_much_a_clock_and_multiprocessor(
    device: Device, clock_mhz: float, tflops: float
) -> None:
    assert gemm_limit_tflops(device, clock_mhz) == pytest.approx(tflops, abs=0.05)


GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
USEFUL_BITS = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}
"""Of all bits on the line, by generation."""


@pytest.mark.parametrize("generation", GIGATRANSFERS)
def test_the_host_link_is_so_many_lanes_of_its_generation(generation: int) -> None:
    device = H200.model_copy(update={"readings": {**H200.readings, "pcie_generation_max": generation}})
    expected = 16 * GIGATRANSFERS[generation] * USEFUL_BITS[generation] / 8
    assert host_link_limit_gb_per_s(device) == pytest.approx(expected, rel=5e-4)


def test_half_the_lanes_are_half_the_link() -> None:
    narrow = H200.model_copy(update={"readings": {**H200.readings, "pcie_width_max": 8}})
    assert host_link_limit_gb_per_s(narrow) == pytest.approx(31.5, abs=0.05)


def gemm_at_full_clock(device: Device) -> float | None:
    return gemm_limit_tflops(device, 1980)


@pytest.mark.parametrize("clock_mhz", [None, 0])
def test_a_product_whose_clock_was_not_seen_has_no_limit(clock_mhz: float | None) -> None:
    assert gemm_limit_tflops(H200, clock_mhz) is None


LIMITS = {
    memory_limit_gb_per_s: {"memory_clock_max_mhz", "memory_bus_width_bits"},
    gemm_at_full_clock: {
        "cuda_cores",
        "compute_capability_major",
        "compute_capability_minor",
    },
    host_link_limit_gb_per_s: {"pcie_generation_max", "pcie_width_max"},
}
NEEDED = [(limit, key) for limit, keys in LIMITS.items() for key in sorted(keys)]
ZERO = [(limit, key) for limit, key in NEEDED if "capability" not in key]


@pytest.mark.parametrize("there", [True, False], ids=["null", "absent"])
@pytest.mark.parametrize(("limit", "key"), NEEDED, ids=[f"{limit.__name__}-{key}" for limit, key in NEEDED])
def test_a_limit_is_null_where_a_reading_is_missing(limit: Any, key: str, there: bool) -> None:
    readings = {name: value for name, value in H200.readings.items() if name != key}
    device = H200.model_copy(update={"readings": {**readings, key: None} if there else readings})
    assert limit(device) is None


@pytest.mark.parametrize(("limit", "key"), ZERO, ids=[f"{limit.__name__}-{key}" for limit, key in ZERO])
def test_a_reading_of_zero_is_no_limit_of_zero(limit: Any, key: str) -> None:
    assert limit(H200.model_copy(update={"readings": {**H200.readings, key: 0}})) is None


@pytest.mark.parametrize("capability", [(9, 9), (12, 0), (6, 1)])
def test_a_part_whose_rate_is_not_known_has_no_limit(capability: tuple[int, int]) -> None:
    unknown = part("NVIDIA New", capability=capability, cores=16896, memory_mhz=3201, bits=6016, pcie=(5, 16))
    assert gemm_at_full_clock(unknown) is None


def test_a_generation_that_is_not_known_has_no_limit() -> None:
    later = H200.model_copy(update={"readings": {**H200.readings, "pcie_generation_max": 9}})
    assert host_link_limit_gb_per_s(later) is None


def test_the_measured_products_of_an_h200_lie_below_its_limits() -> None:
    memory, link = memory_limit_gb_per_s(H200), host_link_limit_gb_per_s(H200)
    assert memory is not None
    assert link is not None
    assert 0.85 < 4260 / memory < 1  # a copy in its memory, read and write
    assert 0.85 < 55.4 / link < 1  # pinned memory to the device
