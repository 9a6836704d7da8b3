"""The clocks around a collective: loops back to back, the same replayed from a CUDA graph, and one by one.

A loop begins after an operation that is not timed and that all ranks leave together, and there is one wait at its end:
nothing but the operations lies between the marks.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from gpubalance.workloads.context import Context
from gpubalance.workloads.operations import Operation
from gpubalance.workloads.timed_loop import FenceCounter

ITERATIONS = 20
"""Of nccl-tests, and the fewest of ours."""
MINIMUM_S = 0.04
"""Small operations are repeated until the loop is long against its own ends."""

LONGEST_S = 2.0
"""Operations that are slow (PCIe, gloo) are repeated less often, so that a loop ends well within the deadline of a step
(60 s unless asked for otherwise), whatever that is. Ours."""
FEWEST = 3

GRAPH_LOOP_S = 0.02
GRAPH_FEWEST = 4
GRAPH_REPLAYS = 3
"""The fewest; small ones are replayed until the loop lasts, as with nccl-tests' -G 20: its start is nothing then."""
SLOW_S = 0.5
"""An operation that takes so long gains nothing from a graph."""

JITTER_MOST = 200

Run = Callable[[int], object]


@dataclass(frozen=True)
class Times:
    """Seconds of one operation on this rank: by events on the device, by the host's clock around loop and wait."""

    device_s: float
    host_s: float


def timed(context: Context, fences: FenceCounter, run: Run, iterations: int) -> Times:
    """`iterations` operations back to back, after one that is not timed."""
    clock = context.clock
    with fences.entering():
        context.meet()
        run(0)
        clock.wait()
        start = time.perf_counter()
        begin = clock.mark()
        for turn in range(iterations):
            run(turn)
        end = clock.mark()
        clock.wait()
        host_s = time.perf_counter() - start
    return Times(clock.milliseconds(begin, end) / 1000 / iterations, host_s / iterations)


def choose_iterations(context: Context, fences: FenceCounter, run: Run, *, compat: bool = False) -> int:
    """So many that the loop lasts, and not for too long; the same on all ranks. With `compat` as many as nccl-tests,
    where that does not take too long.
    """
    once_s = context.agree_on_max(timed(context, fences, run, 1 if compat else 3).device_s)
    wanted = ITERATIONS if compat else max(ITERATIONS, math.ceil(MINIMUM_S / once_s))
    return min(wanted, max(FEWEST, int(LONGEST_S / once_s)))


def graph_times(
    context: Context, fences: FenceCounter, operation: Operation, eager_s: float
) -> tuple[int, Times] | str:
    """The loop captured in a CUDA graph, and replayed: no launch cost of the host in it. Else why there is none.

    The graph is dropped before this returns: one that holds NCCL work makes destroy_process_group wait for ever.
    """
    once_s = context.agree_on_max(eager_s)
    if once_s > SLOW_S:
        return f"an operation takes {once_s:.1f} s, beside which launching it is nothing"
    count = max(GRAPH_FEWEST, min(ITERATIONS, math.ceil(GRAPH_LOOP_S / once_s)))
    replays = max(GRAPH_REPLAYS, math.ceil(MINIMUM_S / once_s / count))
    graph, reason = _captured(operation, count)
    refused = [f"rank {rank}: {text}" for rank, text in enumerate(context.gather(reason)) if text is not None]
    try:
        times = None if refused else timed(context, fences, lambda _: graph.replay(), replays)
    finally:
        graph.reset()
        context.clock.wait()
    if times is None:
        return refused[0]
    return replays * count, Times(times.device_s / count, times.host_s / count)


def _captured(operation: Operation, count: int) -> tuple[Any, str | None]:
    """A graph, and why it holds nothing that can be replayed; None when it does."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for turn in range(count):
                operation.run(turn)
    except RuntimeError as error:
        return graph, first_line(error)
    return graph, None


def jitter(context: Context, fences: FenceCounter, run: Run, iterations: int) -> dict[str, float]:
    """A mark between all operations. Of each operation the slowest rank counts, as with nccl-tests' -I."""
    clock, count = context.clock, min(iterations, JITTER_MOST)
    with fences.entering():
        context.meet()
        run(0)
        clock.wait()
        marks = [clock.mark()]
        for turn in range(count):
            run(turn)
            marks.append(clock.mark())
        clock.wait()
    own = [1000 * clock.milliseconds(*pair) for pair in pairwise(marks)]
    return spread_of([max(each) for each in zip(*context.gather(own), strict=True)])


def spread_of(times_us: list[float]) -> dict[str, float]:
    """What `record.timings.Jitter` holds. The 99th percentile is the value that 99 % do not exceed (nearest rank)."""
    ordered, mean = sorted(times_us), statistics.fmean(times_us)
    return {
        "operations": len(ordered),
        "p50_us": statistics.median(ordered),
        "p99_us": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "max_us": ordered[-1],
        "cv": statistics.pstdev(ordered) / mean,
    }


def over_ranks(context: Context, times: Times) -> dict[str, float]:
    """Mean and largest of both clocks over ranks, in microseconds, as `record.timings.CollectiveRow` names them."""
    all_times = [Times(**each) for each in context.gather(asdict(times))]
    found: dict[str, float] = {}
    for name in ("device", "host"):
        values = [1e6 * float(getattr(each, f"{name}_s")) for each in all_times]
        found[f"{name}_time_us"] = statistics.fmean(values)
        found[f"{name}_time_max_us"] = max(values)
    return found


def first_line(error: BaseException) -> str:
    """What torch says, without the traces that follow."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
