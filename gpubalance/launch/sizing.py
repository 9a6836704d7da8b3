"""How large the synthetic model is: the same for all ranks, sized to the smallest device."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.record.limits import memory_limit_gb_per_s
from gpubalance.record.node import Device
from gpubalance.record.run import ModelSpec

CPU_WIDTH, CPU_LAYERS, CPU_BATCH = 512, 4, 256
"""About 20 ms a step on one core: long against gloo's latency, short enough for 24 blocks in 15 s."""

LARGE_BANDWIDTH_GB_PER_S = 1200
"""Memory bandwidth from which on the large model is used: all HBM2e parts and later lie above (A100 1555), all GDDR
parts and V100 below (RTX 4090 1008, V100 898)."""

LARGE_MEMORY_BYTES = 20 * 10**9
"""The large model needs about 8 GB with everything that training it takes."""


def choose_model(kind: str, devices: Sequence[Device]) -> tuple[ModelSpec, int]:
    """The model and the per-rank batch. Compute grows with the batch and transfer does not, so weak GPUs get a
    narrower model with the same batch, which keeps the share of communication in the step as it is.
    """
    if devices[0].kind == "cpu":
        return _spec(kind, CPU_WIDTH, CPU_LAYERS if kind == "mlp" else 1, "float32"), CPU_BATCH if kind == "mlp" else 2
    large = all(_is_large(device) for device in devices)
    dtype = "bfloat16" if all(_has_bf16(device) for device in devices) else "float16"
    if kind == "mlp":
        return _spec(kind, 4096 if large else 2048, 12, dtype), 4096
    return _spec(kind, 2048 if large else 1024, 4, dtype), 32 if large else 16


def _is_large(device: Device) -> bool:
    bandwidth = memory_limit_gb_per_s(device)
    return (bandwidth or 0) > LARGE_BANDWIDTH_GB_PER_S and (device.memory_total_bytes or 0) > LARGE_MEMORY_BYTES


def _has_bf16(device: Device) -> bool:
    """Tensor cores multiply bfloat16 from compute capability 8.0 on."""
    major = device.readings.get("compute_capability_major")
    return not isinstance(major, int) or major >= 8


def _spec(kind: str, width: int, layers: int, dtype: str) -> ModelSpec:
    per_layer = width * width + width if kind == "mlp" else 12 * width * width + 13 * width
    return ModelSpec.model_validate(
        {"kind": kind, "width": width, "layers": layers, "dtype": dtype, "parameters": layers * per_layer}
    )


def memory_needed_bytes(model: ModelSpec, batch: int) -> int:
    """A safe upper estimate of one rank's device memory: weights, gradients and DDP's buckets in float32, copies in
    the compute type, activations of forward and backward, NCCL's and cuBLAS' buffers and the CUDA context.
    """
    tokens = batch if model.kind == "mlp" else batch * 512
    width_factor = 4 if model.kind == "mlp" else 40
    activations = tokens * model.width * model.layers * width_factor * 2
    return 16 * model.parameters + activations + 2 * 2**30
