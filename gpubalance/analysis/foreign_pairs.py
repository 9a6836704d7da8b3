"""Numbers of a run and of a log that are about the same thing, and those that have no partner."""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.analysis.compare import GATED_BYTES

PLACEMENT_WORDS = {"in_place": "in place", "out_of_place": "out of place"}


@dataclass(frozen=True)
class What:
    """What a row of a collective is about."""

    collective: str
    ranks: int | None
    dtype: str
    mode: str
    placement: str
    size_bytes: int


@dataclass(frozen=True)
class Pair:
    """One number of both: GB/s, with the time of one operation in us where it is known."""

    metric: str
    """busbw, h2d, d2h, memory_copy or p2p."""
    what: What | None
    place: str
    """GPU 3 by its NVML index, or all_reduce for a row of a collective."""
    theirs: float
    ours: float
    theirs_us: float | None = None
    ours_us: float | None = None
    repeats: int = 1
    """How many rows of the log it is the median of."""

    @property
    def ratio(self) -> float | None:
        """Ours / theirs as bandwidths; None where the log's number is 0."""
        if self.theirs_us and self.ours_us:
            return self.theirs_us / self.ours_us
        return self.ours / self.theirs if self.theirs > 0 else None

    @property
    def gated(self) -> bool:
        """False for what is shown and never judged: small collectives, and those replayed from a graph."""
        return self.what is None or (self.what.size_bytes >= GATED_BYTES and self.what.mode == "eager")


@dataclass(frozen=True)
class Unpaired:
    """Numbers of one side only, and why."""

    side: str
    """log or run."""
    what: str
    count: int
    reason: str
