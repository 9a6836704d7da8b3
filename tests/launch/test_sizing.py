"""The synthetic model: one size for all ranks, by the smallest device."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.launch.sizing import choose_model, memory_needed_bytes
from gpubalance.record.node import Device
from gpubalance.record.run import ModelSpec
from gpubalance.testing.runs import make_gpu

GB = 10**9


def gpu(memory_bytes: int | None, **readings: Any) -> Device:
    return make_gpu(0, **readings).model_copy(update={"memory_total_bytes": memory_bytes})


H200 = gpu(150754820096)
A100_40 = gpu(
    42949672960, memory_clock_max_mhz=1215, memory_bus_width_bits=5120, compute_capability_major=8
)  # 1555 GB/s
RTX_4090 = gpu(
    25757220864, memory_clock_max_mhz=10501, memory_bus_width_bits=384, compute_capability_major=8
)  # 1008 GB/s
V100 = gpu(34359738368, memory_clock_max_mhz=877, memory_bus_width_bits=4096, compute_capability_major=7)  # 898 GB/s
CPU = Device(kind="cpu", name="CPU", cpu_cores=[0], memory_total_bytes=64 * GB)


@pytest.mark.parametrize(
    ("device", "width", "dtype"),
    [(H200, 4096, "bfloat16"), (A100_40, 4096, "bfloat16"), (RTX_4090, 2048, "bfloat16"), (V100, 2048, "float16")],
    ids=["H200", "A100", "RTX 4090", "V100"],
)
def test_fast_memory_gets_the_wide_model_and_old_parts_the_older_type(device: Device, width: int, dtype: str) -> None:
    spec, batch = choose_model("mlp", [device, device])
    assert (spec.kind, spec.width, spec.layers, spec.dtype) == ("mlp", width, 12, dtype)
    assert batch == 4096


@pytest.mark.parametrize(("device", "width", "batch"), [(H200, 2048, 32), (RTX_4090, 1024, 16)])
def test_a_transformer_is_sized_in_the_same_way(device: Device, width: int, batch: int) -> None:
    spec, chosen = choose_model("transformer", [device])
    assert (spec.kind, spec.width, spec.layers, chosen) == ("transformer", width, 4, batch)


@pytest.mark.parametrize("order", [[H200, RTX_4090], [RTX_4090, H200]])
def test_the_smallest_device_decides_whatever_its_place(order: list[Device]) -> None:
    assert choose_model("mlp", order)[0].width == 2048


def test_one_device_without_bfloat16_is_enough_for_the_older_type() -> None:
    assert choose_model("mlp", [H200, V100])[0].dtype == "float16"


def test_fast_memory_of_little_size_gets_the_narrow_model() -> None:
    assert choose_model("mlp", [gpu(20 * GB)])[0].width == 2048
    assert choose_model("mlp", [gpu(20 * GB + 1)])[0].width == 4096


@pytest.mark.parametrize("unknown", [{"memory_clock_max_mhz": None}, {"memory_bus_width_bits": None}])
def test_a_bandwidth_that_nobody_knows_gets_the_narrow_model(unknown: dict[str, None]) -> None:
    assert choose_model("mlp", [gpu(150 * GB, **unknown)])[0].width == 2048


def test_a_size_that_nobody_knows_gets_the_narrow_model() -> None:
    assert choose_model("mlp", [gpu(None)])[0].width == 2048


def test_a_capability_that_nobody_knows_is_taken_for_a_new_part() -> None:
    assert choose_model("mlp", [gpu(150 * GB, compute_capability_major=None)])[0].dtype == "bfloat16"


@pytest.mark.parametrize(("kind", "layers", "batch"), [("mlp", 4, 256), ("transformer", 1, 2)])
def test_the_cpu_gets_a_small_model_in_float32(kind: str, layers: int, batch: int) -> None:
    spec, chosen = choose_model(kind, [CPU, CPU])
    assert (spec.width, spec.layers, spec.dtype, chosen) == (512, layers, "float32", batch)


@pytest.mark.parametrize(
    ("kind", "device", "parameters"),
    [
        ("mlp", CPU, 1050624),  # 4 x (512 x 512 weights + 512 biases)
        ("mlp", H200, 201375744),  # 12 x (4096 x 4096 + 4096)
        ("transformer", CPU, 3152384),  # 12 x 512 x 512 + 13 x 512
    ],
)
def test_parameters_are_counted_by_layer(kind: str, device: Device, parameters: int) -> None:
    assert choose_model(kind, [device])[0].parameters == parameters


def test_the_memory_that_a_rank_needs_is_estimated_from_the_model_and_its_batch() -> None:
    small = ModelSpec(kind="mlp", width=512, layers=4, dtype="float32", parameters=1050624)
    # 16 x 1050624 + 256 x 512 x 4 x 8 + 2 GiB
    assert memory_needed_bytes(small, 256) == 16809984 + 4194304 + 2147483648
    words = ModelSpec(kind="transformer", width=512, layers=1, dtype="float32", parameters=3152384)
    # 16 x 3152384 + (2 x 512 tokens) x 512 x 1 x 80 + 2 GiB
    assert memory_needed_bytes(words, 2) == 50438144 + 41943040 + 2147483648


def test_every_model_fits_into_the_device_that_it_is_chosen_for() -> None:
    for kind in ("mlp", "transformer"):
        for device in (H200, A100_40, RTX_4090, V100, gpu(20 * GB + 1), gpu(12 * GB)):
            spec, batch = choose_model(kind, [device])
            assert memory_needed_bytes(spec, batch) < (device.memory_total_bytes or 0)
