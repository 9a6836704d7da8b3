"""What a run could have seen, and what was kept out of its timed blocks: the same words in every report."""

from __future__ import annotations

from gpubalance.analysis.facts import AttemptFacts
from gpubalance.checks.finding import percent


def limit_lines(first: AttemptFacts) -> list[str]:
    """Sentences about one attempt; none about stragglers where there is one rank."""
    return [*_detectable(first), *_collector(first)]


def _detectable(first: AttemptFacts) -> list[str]:
    if len(first.device_of_rank) < 2:
        return []
    seen = first.stragglers
    blocks = f"{seen.blocks} blocks of {first.steps_per_block} steps, {first.measured_s:.1f} s"
    if seen.needed is None:
        return [f"Could have seen no slowdown at all: too few blocks ({blocks})."]
    return [f"Could have seen a slowdown of {percent(seen.detectable)} or more on one rank ({blocks})."]


def _collector(first: AttemptFacts) -> list[str]:
    """The rank that suffers most; one block that differs by less than two spreads of blocks says nothing."""
    measured = [(share, rank) for rank, share in enumerate(first.trust.collector) if share is not None]
    if not measured:
        return []
    most, rank = max(measured)
    noise = first.trust.collector_noise
    if noise is None or most <= 2 * noise:
        spread = "" if noise is None else f" (blocks differ by {percent(noise)})"
        return [f"Python's garbage collector, off in timed blocks, made no difference that shows{spread}."]
    return [f"With Python's garbage collector on, off in timed blocks, rank {rank} computes {percent(most)} longer."]
