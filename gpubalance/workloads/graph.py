"""The local step replayed as a CUDA graph: what the device needs when no host is in its way."""

from __future__ import annotations

from collections import deque
from itertools import islice

import torch

from gpubalance.workloads.context import Context
from gpubalance.workloads.timed_loop import steady_marks, steps_in
from gpubalance.workloads.training_step import TrainingStep


def graph_step(
    context: Context, step: TrainingStep, eager_ms: float, seconds: float, settle_s: float = 0.0
) -> tuple[float | None, str | None]:
    """Milliseconds of the replayed step from about so many seconds of replays, or why there is none. Replays of
    `settle_s` go before them without a pause: a power limiter takes 0.3 s to settle after one.

    The graph holds no collective, and it is gone when this returns: a graph that is alive may keep a process group
    from being destroyed.
    """
    if context.device.type != "cuda":
        return None, "a CPU has no graphs: host and device are one"
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # libraries choose their kernels and workspaces before the capture, on the same stream
            step.captured()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.captured()
    settling, timed = steps_in(settle_s, eager_ms), steps_in(seconds, eager_ms)
    marks = steady_marks(graph.replay, context.clock, settling + timed)
    begin = deque(islice(marks, settling + 1), maxlen=1).pop()
    end = deque(marks, maxlen=1).pop()
    context.clock.wait()
    graph.reset()
    return context.clock.milliseconds(begin, end) / timed, None
