"""Which ranks a table shows when there are more than anybody reads: the worst, and what the others have in common."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.analysis.facts import AttemptFacts


def worst_ranks(first: AttemptFacts, most: int) -> list[int]:
    """All ranks, or of more than `most` so many: those that are slow for sure, then those with the largest blame; in
    the order of their numbers.
    """
    ranks = range(len(first.device_of_rank))
    if len(ranks) <= most:
        return list(ranks)
    slow = {speed.rank: place for place, speed in enumerate(first.stragglers.named)}
    blame = first.balance.blame_ms
    return sorted(sorted(ranks, key=lambda rank: (slow.get(rank, len(slow)), -blame[rank]))[:most])


def others_line(first: AttemptFacts, shown: Sequence[int]) -> list[str]:
    """A line on the ranks that are not shown; [] where all are."""
    hidden = sorted(set(range(len(first.device_of_rank))) - set(shown))
    if not hidden:
        return []
    spans = [
        f"{name} {min(values[rank] for rank in hidden):.2f} to {max(values[rank] for rank in hidden):.2f} ms"
        for name, values in (
            ("compute", first.compute_ms), ("wait", first.wait_ms), ("blame", first.balance.blame_ms),
        )
    ]  # fmt: skip
    slow = len({speed.rank for speed in first.stragglers.named} & set(hidden))
    named = f", {slow} of them slow for sure" if slow else ""
    return [f"{len(hidden)} other ranks{named}: {', '.join(spans)}"]
