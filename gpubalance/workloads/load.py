"""The short active check of one GPU, alone in its process: does it allocate, multiply rightly, give the same bits each
time, and how fast is it. Each stage is logged as it begins, so that a hang has a name.
"""

from __future__ import annotations

import hashlib

import torch

from gpubalance.workloads import probes
from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import collector_off, window

ALLOCATED_BYTES = 2**30
SMALL_EDGE = 512
LARGE_EDGE = 4096
"""1024 tiles of 128 x 128: every multiprocessor of every GPU gets some."""

REPEATS = 50
"""Repetitions of the large product, 10 to 30 ms in all: a GPU that errs now and then differs from itself."""

OUTPUT_ROUNDING = 2.0**-7
"""bfloat16 keeps 8 significant bits: rounding to nearest errs by at most half of this share of the value, float16 by
an eighth of that.
"""

PRODUCT_ROUNDING = 2.0**-23
"""Unit of float32, in which tensor cores add up, possibly by cutting off."""


def run(context: Context) -> None:
    """All stages. Raises what torch raises; a wrong result is no error here but a number in the log."""
    generator = torch.Generator().manual_seed(context.job.seed)
    _stage(context, "allocate")
    _allocate(context)
    _stage(context, "matmul")
    dtype = getattr(torch, context.job.model["dtype"])
    context.log.write("matmul", max_error=matmul_error(context.device, dtype, generator))
    _stage(context, "bits")
    digest, differing = repeated_digest(context.device, dtype, generator)
    context.log.write("bits", digest=digest, repeats=REPEATS, differing=differing)
    _stage(context, "speed")
    if context.device.type == "cuda":
        with collector_off(), window(context.log, "load speed"):
            probes.run(context)
    _stage(context, "done")


def _stage(context: Context, name: str) -> None:
    context.log.write("stage", stage=name)


def _allocate(context: Context) -> None:
    """Take memory, fill it with random bytes, copy it, and compare."""
    source = torch.randint(0, 256, (ALLOCATED_BYTES,), dtype=torch.uint8, device=context.device)
    copy = torch.empty_like(source).copy_(source)
    if not torch.equal(source, copy):
        raise RuntimeError("device memory did not give back what was written to it")


def matmul_error(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> float:
    """Largest error of a small product against the CPU's in float64, in units of what rounding allows.

    |computed - exact| <= u |exact| + 2 n v |A| |B|, u the rounding of the output, v of the float32 sums of n products
    (Higham, Accuracy and Stability of Numerical Algorithms, 3.5; twice, because tensor cores may cut off).
    """
    a, b = (torch.randn(SMALL_EDGE, SMALL_EDGE, generator=generator).to(dtype) for _ in range(2))
    computed = (a.to(device) @ b.to(device)).cpu().double()
    exact = a.double() @ b.double()
    magnitude = a.double().abs() @ b.double().abs()
    allowed = OUTPUT_ROUNDING * exact.abs() + 2 * SMALL_EDGE * PRODUCT_ROUNDING * magnitude
    error = ((computed - exact).abs() / allowed).max()
    return float(error) if torch.isfinite(error) else 1e9


def repeated_digest(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> tuple[str, int]:
    """Digest of a large seeded product, and how many of its repetitions differ from the first in any bit."""
    a, b = (torch.randn(LARGE_EDGE, LARGE_EDGE, generator=generator).to(dtype).to(device) for _ in range(2))
    first = a @ b
    differing = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(REPEATS):
        differing += ((a @ b).view(torch.uint8) != first.view(torch.uint8)).any()
    bits = first.view(torch.uint8).cpu().numpy().tobytes()
    return hashlib.sha256(bits).hexdigest(), int(differing)
