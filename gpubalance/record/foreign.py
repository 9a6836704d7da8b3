"""What other tools measured, as their logs tell it: times in us, bandwidths in GB/s with GB = 1e9 bytes.

Collectives and types have the names that our own records give them. What a log does not say is None.
"""

from __future__ import annotations

from dataclasses import dataclass

IN_PLACE, OUT_OF_PLACE = "in_place", "out_of_place"


@dataclass(frozen=True)
class TheirDevice:
    """A device as a log lists it, in the order of ranks or of CUDA."""

    name: str
    pci_bus_id: str | None = None


@dataclass(frozen=True)
class TheirRow:
    """One size and placement of one collective."""

    size_bytes: int
    dtype: str
    placement: str
    time_us: float | None
    """None when the log holds the time of the CPU instead."""
    algorithm_bandwidth_gb_per_s: float
    bus_bandwidth_gb_per_s: float
    wrong_elements: int | None
    redop: str | None = None
    """sum, prod, max, ...; None where nothing is reduced, or the log does not say."""


@dataclass(frozen=True)
class CollectiveTest:
    """One run of one program of nccl-tests."""

    collective: str | None
    """None when the log does not say which one it is."""
    ranks: int | None
    nodes: int | None
    mode: str
    """eager, or graph: operations replayed from a CUDA graph (-G)."""
    rows: tuple[TheirRow, ...]
    complete: bool
    """False when the log breaks off; the rows are those that were whole."""
    devices: tuple[TheirDevice, ...] = ()
    version: str | None = None
    """Of nccl-tests."""
    nccl_version: str | None = None
    """The library that was loaded."""
    nccl_headers: str | None = None
    """What the program was built against."""
    average_bus_bandwidth_gb_per_s: float | None = None
    """As printed: over all sizes and both placements, which says little about a sweep."""
    out_of_bounds: int = 0
    """Values that differ from what they should be by more than rounding, over all rows: older versions count them only
    here."""
    remarks: tuple[str, ...] = ()
    """What makes its numbers unlike others: waiting after each operation, errors."""


@dataclass(frozen=True)
class CopyMatrix:
    """One matrix of nvbandwidth. A cell is None where nothing was measured."""

    test: str
    description: str
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Foreign:
    """Everything that one file of another tool holds."""

    tool: str
    """nccl-tests or nvbandwidth."""
    tests: tuple[CollectiveTest, ...] = ()
    copies: tuple[CopyMatrix, ...] = ()
    devices: tuple[TheirDevice, ...] = ()
    version: str | None = None
    driver_version: str | None = None
    complete: bool = True
    """False when a program that began left no result."""
    remarks: tuple[str, ...] = ()
