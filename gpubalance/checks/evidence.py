"""What stands beside a slow rank: the class of time that it loses, and what the sensor saw of its device."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.analysis.attribution import EXPLAINS, Attribution
from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.analysis.sampled import Sampled
from gpubalance.analysis.stragglers import RankSpeed
from gpubalance.checks.cause_words import OF_THE_DEVICE
from gpubalance.checks.finding import percent
from gpubalance.record.run import Run

REASON_NAMES = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Event reasons that are never normal under load. A software power cap (0x4) at full load is."""


def time_class(run: Run, first: AttemptFacts, speed: RankSpeed, cause: Attribution | None = None) -> str:
    """Device time, host time, or both: how much of the excess the replayed graph, which has no host in it, shows beside
    peers of its kind. Less than the rest (20 %) rules a class out, but for a device that has recovered since.
    """
    units = first.units
    fresh = {r.rank: r.device_step_ms for a in run.ddp if a.attempt == first.attempt for r in a.ranks}
    replayed = fresh if any(fresh.values()) else {s.rank: s.graph_step_ms for s in run.solo}
    alone = {rank: ms / units[rank] for rank, ms in replayed.items() if rank < len(units) and ms}
    others = sorted(alone[rank] for rank in _kind(first, speed.rank) if rank in alone and rank != speed.rank)
    excess = speed.ratio - 1
    if speed.rank not in alone or not others or excess <= 0:
        return "class of time not measured: no graph replay"
    device_excess = alone[speed.rank] / others[(len(others) - 1) // 2] - 1
    covered = max(0.0, min(1.0, device_excess / excess))
    if covered >= EXPLAINS:
        return f"device time: alone and without the host it is {percent(device_excess)} slower as well"
    if covered <= 1 - EXPLAINS and cause is not None and cause.cause in OF_THE_DEVICE:
        return "replayed after these blocks, without the host, its device is as fast as its peers again"
    if covered <= 1 - EXPLAINS:
        return "host time: its device alone, without the host, is as fast as its peers"
    return f"device time covers {percent(covered)} of it, the rest is host time"


def sensor_evidence(facts: Facts, rank: int) -> list[str]:
    """Clock, power, temperature and event reasons of the device against its peers; facts, not causes."""
    if facts.first is None or rank >= len(facts.sampled):
        return []
    own = facts.sampled[rank]
    others = [seen for each in _kind(facts.first, rank) if (seen := facts.sampled[each]) is not None and each != rank]
    if own is None or not others:
        return []
    lines = []
    for name, unit, attribute in (
        ("clock", "MHz", "sm_clock_mhz"),
        ("power", "W", "power_w"),
        ("temperature", "C", "temperature_c"),
    ):
        mine, peers = getattr(own, attribute), [getattr(s, attribute) for s in others]
        if mine is not None and None not in peers:
            lines.append(f"{name} {mine:.0f} {unit}, peers {_middle(peers):.0f} {unit}")
    return [", ".join(lines)] * bool(lines) + abnormal_reasons(own)


def abnormal_reasons(sampled: Sampled) -> list[str]:
    """Slowdowns that are never normal, with the share of loaded samples in which they were set."""
    return [
        f"{REASON_NAMES[bit]} in {percent(share)} of the loaded samples"
        for bit, share in sampled.reasons_share.items()
        if bit in REASON_NAMES
    ]


def _kind(first: AttemptFacts, rank: int) -> Sequence[int]:
    """The ranks of its kind, itself as well; all where kinds are not known."""
    return next((kind.ranks for kind in first.kinds if rank in kind.ranks), range(len(first.device_of_rank)))


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
