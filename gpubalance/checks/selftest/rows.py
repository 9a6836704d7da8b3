"""The rows of the selftest: what is played, and what the tool must say about it.

A row has a name, as `--rows` takes it and a record keeps it. Rows of one kind that differ in size have the size behind
the name: compute_8, compute_20.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpubalance.errors import UsageError

Expected = Literal["nobody", "even", "slow", "each", "intermittent", "memory", "context"]
"""nobody: no rank is named. even: nobody, and the step rate drops all the same. slow: the rank is named, with cause.
each: every one of them, or that most are slow. intermittent: the rank, as slow now and then. memory, context: the rank,
for what it holds."""

HEALTHY = "healthy"


@dataclass(frozen=True)
class RowKind:
    """One kind of row."""

    name: str
    expected: Expected
    cause: str | None = None
    """Kind of the cause that must be named."""
    played: str | None = None
    """Kind of the cause that may be named."""

    @property
    def names_somebody(self) -> bool:
        """True where a rank must be named, so that it can be missed."""
        return self.expected not in ("nobody", "even")


KINDS: Mapping[str, RowKind] = {
    kind.name: kind
    for kind in (
        RowKind(HEALTHY, "nobody"),
        RowKind("compute", "slow", "device_work"),
        RowKind("backward", "slow", "device_work"),
        RowKind("sleep", "slow", "host"),
        RowKind("loader", "slow", "input_pipeline"),
        RowKind("copies", "slow", "pcie"),
        RowKind("data", "slow", "data_imbalance"),
        RowKind("hog", "slow", "cpu_contention"),
        RowKind("rival", "slow", "foreign_process"),
        RowKind("transient", "intermittent", played="device_work"),
        RowKind("memory", "memory"),
        RowKind("context", "context"),
        RowKind("half", "each", "device_work"),
        RowKind("fast", "nobody"),
        RowKind("all", "even"),
    )
}
"""In the order of the table."""

WORDS: Mapping[str, str] = {
    "device_work": "device work",
    "host": "host",
    "input_pipeline": "slow input",
    "pcie": "PCIe",
    "data_imbalance": "uneven data",
    "cpu_contention": "busy cores",
    "foreign_process": "foreign work",
    "thermal": "heat",
    "power_cap": "power cap",
    "clock_limit": "clock limit",
    "memory_bandwidth": "memory speed",
    "numa": "NUMA",
    "device": "slow device",
    "intermittent": "now and then",
    "memory": "memory skew",
    "context": "context",
    "majority": "most are slow",
}
"""Classes as a table shows them, at most 13 characters."""

UNATTRIBUTED = "unattributed"


def kind_of(row: str) -> RowKind | None:
    """The kind of a row by its name; None for a name that no row has."""
    base, mark, size = row.partition("_")
    return KINDS.get(base) if not mark or (base == "compute" and size.isdecimal()) else None


def expected_class(kind: RowKind) -> str | None:
    """Class that must be named, as `WORDS` has it; None where nobody must be."""
    if not kind.names_somebody:
        return None
    return kind.cause if kind.cause is not None else kind.expected


def check_row_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that no row has."""
    for name in names:
        if kind_of(name) is None or name == HEALTHY:
            known = ", ".join(known for known in KINDS if known != HEALTHY)
            raise UsageError(f"row {name!r:.60} is not known", f"choose from: {known}; healthy passes always run")
