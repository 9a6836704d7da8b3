"""What was measured of every rank in one attempt, each value beside that of the rank's peers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.analysis.steps import Array
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import Column, CounterReading
from gpubalance.record.timings import DdpAttempt

DEVICE_STAGES = ("forward", "backward")
"""Stages whose device work is the same on every rank: a slower device is slower in both."""


POWER_CAP_BIT = 0x4

EDGE_S = 5.0
"""A look at the counters comes within so many seconds of its edge."""


@dataclass(frozen=True)
class ByRank:
    """One quantity of every rank and what it is held against; NaN where it was not measured."""

    own: Array
    peers: Array

    def pair(self, rank: int) -> tuple[float, float] | None:
        """(own, peers) of one rank, or None when either is missing."""
        own, peers = float(self.own[rank]), float(self.peers[rank])
        return None if math.isnan(own) or math.isnan(peers) else (own, peers)

    def above(self, rank: int) -> float | None:
        """Own less the peers'."""
        pair = self.pair(rank)
        return None if pair is None else pair[0] - pair[1]

    def slower(self, rank: int) -> float | None:
        """Of a rate: by how much its peers' is larger, as a share: 0.2 takes 20 % longer."""
        pair = self.pair(rank)
        return None if pair is None or pair[0] <= 0 else pair[1] / pair[0] - 1


@dataclass(frozen=True)
class RankEvidence:
    """All that speaks for or against a cause, by rank."""

    run: Run
    attempt: DdpAttempt
    window: Phase | None
    """In which the sensor saw the fenced blocks."""
    phase: Phase | None
    """The ddp phase of this attempt."""
    looks: Mapping[int, Sequence[CounterReading]]
    """By device: looks at its counters."""
    strangers: Mapping[int, Sequence[int]]
    """By device: pids of nobody's that were on it in the window."""
    pids_are_known: bool
    """False where the driver numbers processes as another namespace does: then nobody can be told from us."""
    columns: Mapping[int, Mapping[str, Column]]
    """By device: what the sensor read in the window only."""
    kinds: tuple[int, ...]
    raw: ByRank
    """Median compute, ms a step, whatever the work."""
    compute: ByRank
    """The same for a work unit."""
    device: ByRank
    """The same of the replayed graph, without the host."""
    device_is_fresh: bool
    """True when the graph was replayed in this attempt; else it was before, and what came later is not in it."""
    stages: Mapping[str, ByRank]
    """Median ms a step and work unit of each stage."""
    clock: ByRank
    """Mean SM clock in the window, MHz."""
    capped: ByRank
    """Share of samples in the window with the software power cap set."""
    power_limit: ByRank
    clock_max: ByRank
    """Enforced power limit (W) and highest SM clock (MHz), before anything ran."""
    gemm: ByRank
    memory_copy: ByRank
    host_copy: ByRank
    """The slower of both directions, GB/s."""
    launch: ByRank
    """Microseconds of a tiny kernel's launch."""
    blocked: ByRank
    """Ms a step and unit in which the rank's process used no core, waits for other ranks taken off."""
    busy: ByRank
    """Ms of CPU time a step and unit."""
    involuntary: ByRank
    """Times a second that the process was put off its core although it had work."""
    queued: ByRank
    """Ms a step and unit in which its threads had work and no core."""

    @property
    def on_cpu(self) -> bool:
        """Whether ranks work on CPU slots."""
        return self.run.plan.backend == "gloo"

    def device_of(self, rank: int) -> int:
        """Index into the devices of the plan."""
        return self.attempt.ranks[rank].device

    def reading(self, rank: int, key: str) -> float | None:
        """What the rank's device read before anything ran."""
        return number(self.run, self.device_of(rank), key)

    def growth(self, rank: int, key: str) -> float | None:
        """How much a counter of the rank's device grew over the ddp phase of this attempt, from the looks at its two
        edges; None when one of them is missing.
        """
        if self.phase is None or self.phase.end_s is None:
            return None
        looks = self.looks.get(self.device_of(rank), [])
        begin = _look(looks, f"{self.phase.name} begin", self.phase.begin_s, key)
        end = _look(looks, f"{self.phase.name} end", self.phase.end_s, key)
        return None if begin is None or end is None else float(end - begin)

    def violation(self, rank: int, key: str) -> float | None:
        """Share of the ddp phase in which the driver counted a violation of this kind."""
        grown = self.growth(rank, key)
        if grown is None or self.phase is None or self.phase.end_s is None:
            return None
        return min(1.0, max(0.0, grown / 1e9 / (self.phase.end_s - self.phase.begin_s)))

    def share(self, quantity: ByRank | None, rank: int) -> float | None:
        """Which share of the rank's excess (0 to 1) lies in this quantity, both in ms a step and unit."""
        excess_ms = self.compute.above(rank)
        above = None if quantity is None else quantity.above(rank)
        if above is None or not excess_ms or excess_ms <= 0:
            return None
        return min(1.0, max(0.0, above / excess_ms))


def number(run: Run, device: int, key: str) -> float | None:
    """What a device of the plan read before anything ran; None where that is no number."""
    value = run.plan.devices[device].readings.get(key)
    return float(value) if isinstance(value, int | float) else None


def _look(looks: Sequence[CounterReading], edge: str, at_s: float, key: str) -> float | None:
    """The value that was read nearest to an edge of a phase."""
    near = [
        (abs(look.t_s - at_s), value)
        for look in looks
        if look.edge == edge and abs(look.t_s - at_s) <= EDGE_S and (value := look.values.get(key)) is not None
    ]
    return min(near)[1] if near else None
