"""One function a cause: what a healthy rank looks like once that cause makes its step so many milliseconds longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpubalance.analysis.attribution import Attribution
from gpubalance.analysis.facts import AttemptFacts, compute_facts
from gpubalance.record.run import Run
from gpubalance.testing.evidence import Traces, run_with

Cause = Callable[[Traces, float], Traces]
HEALTHY = Traces()


def thermal(seen: Traces, ms: float) -> Traces:
    """Software thermal slowdown beside the power cap, as the driver reports them: two bits in one number."""
    return seen.lower_clock(ms, 0x4 | 0x20)


def power_cap(seen: Traces, ms: float) -> Traces:
    return replace(seen.lower_clock(ms, 0x4), readings={**seen.readings, "power_limit_w": 500.0})


def clock_limit(seen: Traces, ms: float) -> Traces:
    return replace(seen.lower_clock(ms, 0x2), readings={**seen.readings, "sm_clock_max_mhz": 1500.0})


def memory_bandwidth(seen: Traces, ms: float) -> Traces:
    return replace(seen.slower_device(ms), memory_gb_per_s=seen.memory_gb_per_s / (1 + ms / 100))


def foreign_process(seen: Traces, ms: float) -> Traces:
    return replace(seen.slower_device(ms), stranger_pids=(4711,))


def device_work(seen: Traces, ms: float) -> Traces:
    return replace(seen.longer(forward=ms), device_ms=None if seen.device_ms is None else seen.device_ms + ms)


def pcie(seen: Traces, ms: float) -> Traces:
    return replace(seen.longer(copy=ms), host_copy_gb_per_s=12.0)


def input_pipeline(seen: Traces, ms: float) -> Traces:
    return replace(seen.longer(input=ms), blocked_ms=seen.blocked_ms + ms)


def host(seen: Traces, ms: float) -> Traces:
    return replace(seen.longer(forward=ms), blocked_ms=seen.blocked_ms + ms)


def cpu_contention(seen: Traces, ms: float) -> Traces:
    """Whatever the process does takes longer, because it is driven off its core all the time."""
    split = seen.longer(forward=ms * 33 / 93, backward=ms * 60 / 93)
    return replace(split, blocked_ms=seen.blocked_ms + ms, involuntary_per_s=150.0)


ON_GPU: dict[str, Cause] = {
    "thermal": thermal,
    "power_cap": power_cap,
    "clock_limit": clock_limit,
    "memory_bandwidth": memory_bandwidth,
    "foreign_process": foreign_process,
    "device_work": device_work,
    "pcie": pcie,
    "input_pipeline": input_pipeline,
    "host": host,
    "cpu_contention": cpu_contention,
}

ON_CPU = {name: ON_GPU[name] for name in ("input_pipeline", "pcie", "host", "cpu_contention", "device_work")}


def first_of(run: Run) -> AttemptFacts:
    """Facts of the attempt that is judged, under the margins of a GPU."""
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    return first


def attributions(traces: Sequence[Traces], *, on_cpu: bool = False) -> tuple[Attribution, ...]:
    return first_of(run_with(traces, on_cpu=on_cpu)).attributions


def among(slow: Traces, ranks: int = 4) -> list[Traces]:
    """The last of so many ranks is the slow one."""
    return [*[HEALTHY] * (ranks - 1), slow]


def of_slow(slow: Traces, ranks: int = 4, *, on_cpu: bool = False) -> Attribution:
    """The only attribution there is: that of the slow rank."""
    (found,) = attributions(among(slow, ranks), on_cpu=on_cpu)
    assert found.rank == ranks - 1
    return found
