"""What the tool says about one pass, by the same facts and checks as a bench. It is given a run, and nothing in that
run says what was played.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpubalance.analysis.facts import AttemptFacts, Facts, compute_facts
from gpubalance.analysis.sampled import window_of
from gpubalance.checks.devices import check_memory
from gpubalance.checks.finding import State
from gpubalance.checks.selftest.rows import UNATTRIBUTED
from gpubalance.checks.steps import check_units
from gpubalance.checks.trust import VOIDING, check_trust
from gpubalance.checks.verdict import margins_of
from gpubalance.record.run import Run

How = Literal["slow", "intermittent", "data", "memory", "context"]


@dataclass(frozen=True)
class Named:
    """A rank that is named, and for what."""

    rank: int
    how: How
    cause: str | None = None
    """What its slowness comes from; None: not attributed, or not a matter of speed."""

    @property
    def named_class(self) -> str:
        """The class that a table shows."""
        return self.cause or UNATTRIBUTED if self.how in ("slow", "data") else self.how


@dataclass(frozen=True)
class Seen:
    """What one pass shows."""

    state: str
    """Of the sign test: ok, warn, fail or unclear."""
    named: tuple[Named, ...]
    majority_slow: int
    score: float
    slowest_ms: float
    """M: mean over steps of the slowest rank's compute."""
    step_ms: float | None
    """T: the real, overlapped step; None when it was not measured."""
    healthy_ms: float
    """Median compute of the fastest rank."""
    communication_bound: bool
    cause_s: float | None
    """From the begin of the pass to its end, the replay of the step included, after which the cause is known."""
    void: str | None = None
    """What takes the meaning from its times, as in a bench; None where nothing does."""


def look(run: Run) -> Seen | None:
    """Judge one pass; None when it finished no block."""
    facts = compute_facts(run, *margins_of(run))
    first = facts.first
    if first is None:
        return None
    void = (f.message for f in check_trust(run, facts) if f.id in VOIDING and f.state is State.UNKNOWN)
    return Seen(
        void=next(void, None),
        state=first.stragglers.state,
        named=tuple(_named(run, facts, first)),
        majority_slow=first.stragglers.majority_slow,
        score=first.balance.score,
        slowest_ms=first.balance.slowest_ms,
        step_ms=first.overlapped_ms,
        healthy_ms=min(first.compute_ms),
        communication_bound=first.balance.communication_bound,
        cause_s=_cause_s(run),
    )


def _named(run: Run, facts: Facts, first: AttemptFacts) -> Iterator[Named]:
    causes = {each.rank: each.cause for each in first.attributions}
    slow = [speed.rank for speed in first.stragglers.named]
    yield from (Named(rank, "slow", causes.get(rank)) for rank in slow)
    if first.transient.rank is not None and first.transient.rank not in slow:
        yield Named(first.transient.rank, "intermittent", causes.get(first.transient.rank))
    yield from (Named(rank, "data", causes.get(rank)) for rank in _more_data(run, facts) if rank not in slow)
    problems = [finding for finding in check_memory(run, facts) if finding.state in (State.WARN, State.FAIL)]
    if any(finding.id == "memory_skew" for finding in problems):
        yield Named(_fullest(run, facts), "memory")
    if any(finding.id == "leaked_context" for finding in problems):
        yield from (Named(rank, "context") for rank in _strangers(run, first))


def _more_data(run: Run, facts: Facts) -> list[int]:
    """Ranks that are given more than their share, by the check that says so."""
    if not check_units(run, facts):
        return []
    samples = [rank.samples_per_step for rank in run.ddp[0].ranks]
    return [rank for rank, count in enumerate(samples) if count > min(samples) * (1 + facts.margin_warn)]


def _fullest(run: Run, facts: Facts) -> int:
    """The rank whose own process holds the largest share of its device."""
    own = {device.device: device.own for device in facts.memory.devices}
    shares = {
        memory.rank: (own.get(memory.device) or memory.peak_reserved_bytes) / memory.capacity_bytes
        for memory in run.memory
        if memory.capacity_bytes > 0
    }
    return max(shares, key=lambda rank: shares[rank])


def _strangers(run: Run, first: AttemptFacts) -> list[int]:
    """Ranks that hold memory on a device that is not theirs."""
    home = dict(enumerate(first.device_of_rank))
    return sorted({
        process.rank
        for process in run.samples.processes
        if process.rank is not None and home.get(process.rank, process.device) != process.device
    })  # fmt: skip


def _cause_s(run: Run) -> float | None:
    """None where an edge was not recorded."""
    whole = window_of(run, "ddp")
    return None if whole is None or whole.end_s is None else max(0.0, whole.end_s - whole.begin_s)
