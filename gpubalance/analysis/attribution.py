"""Why a rank is slow: parts that explain its excess, and the cause where one kind of them explains enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EXPLAINS = 0.8
"""A cause is named when it covers this share of the excess."""

NEGLIGIBLE = 0.05
"""Parts that cover less are not worth a word; ours."""

CauseKind = Literal[
    "thermal",
    "power_cap",
    "clock_limit",
    "memory_bandwidth",
    "pcie",
    "numa",
    "cpu_contention",
    "foreign_process",
    "data_imbalance",
    "host",
    "input_pipeline",
    "device_work",
    "device",
]


@dataclass(frozen=True)
class Part:
    """One thing that explains some of a rank's excess."""

    kind: CauseKind
    coverage: float
    """Share of the excess that it explains, 0 to 1."""
    evidence: str
    """What was seen, as the subject of a sentence."""
    more: tuple[str, ...] = ()
    """What corroborates it."""
    doubt: str = ""
    """Why it may be a consequence as well as a cause: then it is told, and never named."""
    measured: float | None = None
    """The share that was measured, where more is put down to it; None when that is `coverage`."""


@dataclass(frozen=True)
class Attribution:
    """The excess of one rank and what explains it."""

    rank: int
    excess: float
    """Slowness to be explained, as a share of what peers take."""
    cause: CauseKind | None
    """Named when parts of one kind cover at least 80 % of the excess; None is unattributed."""
    coverage: float | None
    """Of the cause; None without one."""
    parts: tuple[Part, ...]
    """Largest first."""


def attributed(rank: int, excess: float, found: Sequence[Part]) -> Attribution:
    """Name the cause if one kind of parts explains enough."""
    parts = sorted((part for part in found if part.coverage >= NEGLIGIBLE), key=lambda part: -part.coverage)
    covered: dict[CauseKind, float] = {}
    for part in parts:
        if not part.doubt:
            covered[part.kind] = covered.get(part.kind, 0.0) + part.coverage
    cause = max(covered, key=lambda kind: covered[kind], default=None)
    if cause is None or covered[cause] < EXPLAINS:
        return Attribution(rank, excess, None, None, tuple(parts))
    return Attribution(rank, excess, cause, min(1.0, covered[cause]), tuple(parts))
