"""Lines about throughput."""

from __future__ import annotations

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.thermal import LOOK_BACK_S, STILL_RISING_C
from gpubalance.record.run import Run
from gpubalance.record.timings import DataParallelResult


def heat_lines(facts: Facts) -> list[str]:
    """Whether thermal limits lie beyond what this run could see; nothing when it was long enough."""
    heat = facts.thermal
    if not heat.too_short or heat.loaded_s is None:
        return []
    rising = heat.rising_c or 0.0
    warmer = f", {rising:.0f} C warmer in the last {LOOK_BACK_S:.0f} s" if rising > STILL_RISING_C else ""
    return [f"Too short for thermal limits: {heat.loaded_s:.0f} s of load{warmer}; --budget 3m would show them."]


def throughput_lines(run: Run, facts: Facts) -> list[str]:
    """DDP against one device, and DataParallel against both."""
    scaling = facts.scaling
    lines = []
    if scaling.ddp_samples_per_s is not None:
        line = f"DDP {_rate(scaling.ddp_samples_per_s)}"
        if scaling.speedup is not None and len(run.plan.devices) > 1:
            share = 100 * (scaling.efficiency or 0)
            line += f" = {scaling.speedup:.2f} x one device alone ({share:.0f} % of all together)"
        lines.append(line + ".")
    elif scaling.alone_samples_per_s is not None:
        lines.append(f"One device alone: {_rate(scaling.alone_samples_per_s)}.")
    if run.data_parallel is not None and scaling.data_parallel_samples_per_s is not None:
        lines += _data_parallel(run, run.data_parallel, scaling.data_parallel_samples_per_s, facts)
    return lines


def _data_parallel(run: Run, result: DataParallelResult, rate: float, facts: Facts) -> list[str]:
    against = facts.scaling.data_parallel_speedup or 0
    lines = [f"DataParallel {_rate(rate)} = {against:.2f} x one device with the whole batch; {_skew(result, facts)}."]
    starved = [index for index, shard in enumerate(result.shards) if shard == 0]
    if starved:
        names = ", ".join(f"cuda:{run.plan.devices[index].cuda_ordinal}" for index in starved)
        lines.append(f"Not fed by DataParallel's arithmetic: {names} (shards {result.shards}).")
    return lines


def _skew(result: DataParallelResult, facts: Facts) -> str:
    first, *others = result.peak_memory_bytes
    texts = []
    if others and max(others) > 0:
        texts.append(f"the first device holds {first / max(others):.1f} x the memory of the next")
    busy = [sampled.utilization if sampled else None for sampled in facts.data_parallel_sampled]
    shown = [f"{100 * share:.0f} %" for share in busy if share is not None]
    if len(shown) == len(busy):
        texts.append(f"devices are busy {', '.join(shown)} of the time")
    return f"{' and '.join(texts)}: that is how DataParallel works, use DDP" if texts else "use DDP"


def _rate(samples_per_s: float) -> str:
    if samples_per_s >= 10_000:
        return f"{samples_per_s / 1000:.0f} k samples/s"
    return f"{samples_per_s:.0f} samples/s"
