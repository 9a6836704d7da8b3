"""A row a rank: who it is, what it did with its time, and what the sensor saw of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpubalance.analysis.balance import reference_of
from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.analysis.sampled import Sampled
from gpubalance.checks.identity import device_label, name_of
from gpubalance.node.readings import reason_names
from gpubalance.record.run import Run
from gpubalance.reports.many_ranks import others_line, worst_ranks

NONE = "-"
LEGEND = (
    "compute: a rank's own work, median; wait: for the slowest rank, mean; blame: its part of the loss; "
    "speed: against the reference rank"
)
GPU_LEGEND = "; useful: device time over the real step; SM: of GPM; NVML: any kernel, waiting as well"
MOST_RANKS = 16
"""Rows of the table: two nodes of eight."""
HEADINGS = (
    ("rank", "compute", "wait", "blame", "speed", "useful", "SM", "NVML", "memory", "clock", "power", "temp"),
    ("", "ms", "ms", "ms", "", "%", "%", "%", "GB", "MHz", "W", "C"),
)
CPU_HEADINGS = (
    ("rank", "compute", "wait", "blame", "speed", "cores", "memory"),
    ("", "ms", "ms", "ms", "", "used", "GB"),
)


def rank_lines(run: Run, facts: Facts) -> list[str]:
    """The table, a line of identities below it, and the event reasons that were set."""
    first = facts.first
    if first is None:
        return []
    on_cpu = run.plan.backend == "gloo"
    headings = CPU_HEADINGS if on_cpu else HEADINGS
    ranks = worst_ranks(first, MOST_RANKS)
    speeds = speeds_of(first)
    rows = [_cpu_row(facts, first, rank, speeds) if on_cpu else _gpu_row(facts, first, rank, speeds) for rank in ranks]
    names = [f"rank {rank} is {device_label(run.plan.devices[first.device_of_rank[rank]])}" for rank in ranks]
    reasons = _reason_lines(run, [facts.sampled[rank] for rank in ranks if rank < len(facts.sampled)])
    return [*aligned([*headings, *rows]), *others_line(first, ranks), legend(on_cpu=on_cpu), *names, *reasons]


def legend(*, on_cpu: bool) -> str:
    """What the columns are, in the README's words."""
    return f"{LEGEND}." if on_cpu else f"{LEGEND}{GPU_LEGEND}."


def aligned(rows: Sequence[Sequence[str]], names: int = 0) -> list[str]:
    """Columns as wide as their widest cell, two spaces apart; the first `names` to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def cell(text: str, column: int) -> str:
        return text.ljust(widths[column]) if column < names else text.rjust(widths[column])

    return ["  ".join(cell(text, column) for column, text in enumerate(row)).rstrip() for row in rows]


def speeds_of(first: AttemptFacts) -> list[float]:
    """By rank, the work rate per unit against the reference rank: 0.83 is 17 % slower work."""
    per_unit = np.array(first.compute_ms) / np.array(first.units)
    return [float(speed) for speed in reference_of(per_unit) / per_unit]


def _gpu_row(facts: Facts, first: AttemptFacts, rank: int, speeds: Sequence[float]) -> list[str]:
    sampled = facts.sampled[rank] if rank < len(facts.sampled) else None
    useful = facts.utilization.useful[rank] if rank < len(facts.utilization.useful) else None
    return [
        *_times(first, rank, speeds),
        _number(useful, 100),
        _number(sampled.sm if sampled else None, 100),
        _number(sampled.utilization if sampled else None, 100),
        _memory(facts, first.device_of_rank[rank]),
        _number(sampled.sm_clock_mhz if sampled else None),
        _number(sampled.power_w if sampled else None),
        _number(sampled.temperature_c if sampled else None),
    ]


def _cpu_row(facts: Facts, first: AttemptFacts, rank: int, speeds: Sequence[float]) -> list[str]:
    sampled = facts.sampled[rank] if rank < len(facts.sampled) else None
    cores = sampled.cpu if sampled else None
    resident = sampled.resident_bytes if sampled else None
    return [
        *_times(first, rank, speeds),
        NONE if cores is None else f"{cores:.2f}",
        NONE if resident is None else f"{resident / 1e9:.2f}",
    ]


def _times(first: AttemptFacts, rank: int, speeds: Sequence[float]) -> list[str]:
    return [
        str(rank),
        _ms(first.compute_ms[rank]),
        _ms(first.wait_ms[rank]),
        _ms(first.balance.blame_ms[rank]),
        f"{speeds[rank]:.2f}",
    ]


def _ms(value: float) -> str:
    """Two decimals below a second and none above, so that the table stays within its width."""
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def _number(value: float | None, scale: float = 1.0) -> str:
    return NONE if value is None else f"{scale * value:.0f}"


def _memory(facts: Facts, device: int) -> str:
    for memory in facts.memory.devices:
        if memory.device == device and memory.own is not None:
            return f"{memory.own / 1e9:.1f}"
    return NONE


def _reason_lines(run: Run, shown: Sequence[Sampled | None]) -> list[str]:
    return [line for sampled in shown if sampled for line in _reasons(run, sampled)]


def _reasons(run: Run, sampled: Sampled) -> list[str]:
    """A software power cap at full load is what a healthy GPU does; it is said, and called normal."""
    texts = []
    for bit, share in sampled.reasons_share.items():
        if bit == 0x1:
            continue
        normal = " (normal at full load)" if bit == 0x4 else ""
        texts.append(f"{reason_names(bit)[0]} {100 * share:.0f} % of the time{normal}")
    return [f"{name_of(run, sampled.device)}: {', '.join(texts)}"] if texts else []
