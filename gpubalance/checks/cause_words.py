"""An attribution in words: what a finding's sentence says of the cause, what stands below it, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubalance.analysis.attribution import Attribution, CauseKind, Part
from gpubalance.analysis.facts import AttemptFacts
from gpubalance.checks.finding import percent

ALL = 0.95
"""From here on a cause is said to explain all of it."""

NAMES: dict[CauseKind, str] = {
    "thermal": "clock (heat)",
    "power_cap": "clock (power)",
    "clock_limit": "clock",
    "memory_bandwidth": "device memory",
    "pcie": "copies to the device",
    "numa": "its NUMA node",
    "cpu_contention": "shared cores",
    "foreign_process": "a foreign process",
    "data_imbalance": "more data",
    "host": "the host",
    "input_pipeline": "input",
    "device_work": "more work on its device",
    "device": "the device itself",
}

NEXT_STEPS: dict[CauseKind, str] = {
    "thermal": "check airflow and heat sink of that GPU; drain the node if it stays hot",
    "power_cap": "compare its power limit with its peers' (nvidia-smi -q -d POWER) and check its power supply",
    "clock_limit": "look for locked or application clocks: nvidia-smi -q -d CLOCK,PERFORMANCE; nvidia-smi -rgc resets",
    "memory_bandwidth": "look at its ECC and remapped rows (nvidia-smi -q -d ECC,ROW_REMAPPER); reset or replace it",
    "pcie": "run gpubalance probe --load for its PCIe link; reseat the card if the link is narrow or slow",
    "numa": "bind each rank to the cores near its GPU (numactl --cpunodebind), and see what else runs on that socket",
    "cpu_contention": "find what else runs on this rank's cores (top -H), and give each rank cores of its own",
    "foreign_process": "stop that process and measure again",
    "data_imbalance": "split the data evenly",
    "host": "profile this rank's process: what its host does between launches (py-spy, or nsys)",
    "input_pipeline": "give this rank's data loading more workers, or faster storage",
    "device_work": "look for what this rank's process does more than its peers; the device itself is as fast as theirs",
    "device": "look at that device: dmesg for Xid messages, nvidia-smi -q; swap it with a peer and measure again",
}


OF_THE_RANK = frozenset({"host", "input_pipeline", "cpu_contention", "device_work", "data_imbalance"})
OF_THE_DEVICE = frozenset({"thermal", "power_cap", "clock_limit", "memory_bandwidth", "foreign_process", "device"})
"""Causes that stay with a rank's process when ranks change devices, and those that stay with the device."""


FOLLOWS = {
    "device": "seen again with ranks rotated: it follows the device (device or slot)",
    "rank": "seen again with ranks rotated: it follows the rank (software, affinity or data)",
}
"""What a second look with every rank on the next device shows."""


def held_against(attribution: Attribution | None, follows: str | None) -> Attribution | None:
    """The attribution, its cause taken back when the slowness followed ("rank" or "device") what it cannot follow."""
    wrong = {"rank": OF_THE_DEVICE, "device": OF_THE_RANK}.get(follows or "", frozenset())
    if attribution is None or attribution.cause not in wrong:
        return attribution
    return replace(attribution, cause=None, coverage=None)


def cause_of(attempt: AttemptFacts, rank: int) -> Attribution | None:
    """What is known of a rank, or None when it was not asked."""
    return next((each for each in attempt.attributions if each.rank == rank), None)


def clause(attribution: Attribution | None) -> str:
    """The end of a sentence about a slow rank; empty when no cause is named."""
    if attribution is None or attribution.cause is None or attribution.coverage is None:
        return ""
    leading = _leading(attribution)
    if leading.measured is not None and leading.measured < attribution.coverage:
        return f"; {leading.evidence} explains at least {percent(round(leading.measured, 2))} of it"
    share = "all" if attribution.coverage >= ALL else percent(round(attribution.coverage, 2))
    return f"; {leading.evidence} explains {share} of it"


def lines(attribution: Attribution | None) -> tuple[str, ...]:
    """Evidence below: what corroborates the cause, or which parts were found and are not enough for one."""
    if attribution is None:
        return ("cause not attributed",)
    if attribution.cause is not None:
        return _leading(attribution).more
    parts = [f"{NAMES[part.kind]} contributes {percent(round(part.coverage, 2))}" for part in attribution.parts]
    head = f"cause not attributed: {', '.join(parts)}" if parts else "cause not attributed"
    return (head, *(_said(part) for part in attribution.parts))


@dataclass(frozen=True)
class Shared:
    """What several slow ranks have in common, in words."""

    clause: str
    lines: tuple[str, ...]
    next_step: str | None


def shared_cause(attributions: Sequence[Attribution | None]) -> Shared:
    """A cause is named where it is that of every rank; otherwise it is told how many have which."""
    causes = Counter(None if each is None else each.cause for each in attributions)
    worst = max((each for each in attributions if each is not None), key=lambda each: each.excess, default=None)
    if worst is not None and worst.cause is not None and len(causes) == 1:
        leading = _leading(worst)
        seen = f"rank {worst.rank}: {leading.evidence}"
        return Shared(f"; {NAMES[worst.cause]} explains it on each", (seen, *leading.more), next_step(worst))
    told = ", ".join(f"{NAMES[kind]} on {count}" for kind, count in causes.items() if kind is not None)
    return Shared("", (f"cause not attributed: {told}" if told else "cause not attributed",), None)


def next_step(attribution: Attribution | None) -> str | None:
    """What to do about a named cause; None without one."""
    return None if attribution is None or attribution.cause is None else NEXT_STEPS[attribution.cause]


def _leading(attribution: Attribution) -> Part:
    return next(part for part in attribution.parts if part.kind == attribution.cause)


def _said(part: Part) -> str:
    doubt = f" ({part.doubt})" if part.doubt else ""
    return f"{NAMES[part.kind]}: {part.evidence}{doubt}"
