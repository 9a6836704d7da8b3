"""Quick measures of a device alone: matrix product, memory copy, copies to and from pinned host memory, and launches.

All devices are measured at the same time, as training would use them.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import torch

from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import mean_step, steady_marks, window

MATRIX_EDGE = 8192
"""Large enough for every GPU to reach its plateau; 2 x 8192^3 operations."""

COPY_BYTES = 2**30
"""Several times the second-level cache of any GPU."""

HOST_COPY_BYTES = 2**28
LAUNCHES, LAUNCH_GROUPS = 2000, 9
"""Tiny kernels launched in a row, about 8 ms, so that a group sees the host's scheduler; median over groups."""

SECONDS = 0.3
PRODUCT_SECONDS = 0.5
SETTLE_SECONDS = 1.5
"""How long a device multiplies before its products are timed. A power limiter first lets it run, then holds it too low
(H200: 1230 MHz from 0.8 to 1.1 s after the start), and has settled after that."""


def run(context: Context) -> None:
    """One line with all measures; values count what moved: a copy in device memory is read and written."""
    dtype = getattr(torch, context.job.model["dtype"])
    gemm_tflops = _gemm(context, dtype)
    context.log.write(
        "probe",
        gemm_tflops=gemm_tflops,
        memory_copy_gb_per_s=_device_copy(context),
        host_to_device_gb_per_s=_host_copy(context, to_device=True),
        device_to_host_gb_per_s=_host_copy(context, to_device=False),
        launch_us=launch_us(context),
    )
    torch.cuda.empty_cache()


def _seconds(context: Context, work: Callable[[], object]) -> float:
    """Seconds of one repetition, from as many as fill the time; all devices start together."""
    context.meet()
    first_ms = mean_step(work, context.clock, 3)
    return mean_step(work, context.clock, max(5, round(1000 * SECONDS / first_ms))) / 1000


def _gemm(context: Context, dtype: torch.dtype) -> float:
    a, b = (torch.randn(MATRIX_EDGE, MATRIX_EDGE, device=context.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)

    def multiply() -> torch.Tensor:
        return torch.mm(a, b, out=out)

    context.meet()
    first_ms = mean_step(multiply, context.clock, 3)
    settling, timed = (max(5, round(1000 * seconds / first_ms)) for seconds in (SETTLE_SECONDS, PRODUCT_SECONDS))
    marks = steady_marks(multiply, context.clock, settling + timed)
    begin = deque(islice(marks, settling + 1), maxlen=1).pop()
    with window(context.log, "probe gemm"):
        end = deque(marks, maxlen=1).pop()
        context.clock.wait()
    return 2 * MATRIX_EDGE**3 / (context.clock.milliseconds(begin, end) / timed / 1000) / 1e12


def launch_us(context: Context) -> float:
    """Host time to launch one tiny kernel, in a row of them that the device works off faster than they come."""
    tiny = torch.ones(8, device=context.device)
    context.meet()

    def group() -> float:
        begin_s = time.perf_counter()
        for _ in range(LAUNCHES):
            tiny.add_(1.0)
        taken_s = time.perf_counter() - begin_s
        context.clock.wait()
        return 1e6 * taken_s / LAUNCHES

    group()
    return statistics.median(group() for _ in range(LAUNCH_GROUPS))


def _device_copy(context: Context) -> float:
    source = torch.randint(0, 255, (COPY_BYTES,), dtype=torch.uint8, device=context.device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / _seconds(context, lambda: target.copy_(source)) / 1e9


def _host_copy(context: Context, *, to_device: bool) -> float:
    host = torch.empty(HOST_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.randint(0, 255, (HOST_COPY_BYTES,), dtype=torch.uint8, device=context.device)
    host.copy_(device)  # random bytes: links and memories may treat zeros better
    source, target = (host, device) if to_device else (device, host)
    return HOST_COPY_BYTES / _seconds(context, lambda: target.copy_(source, non_blocking=True)) / 1e9
