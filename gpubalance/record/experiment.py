"""What a variable costs here: the same collectives in fresh processes with it and without it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record


class TouchRow(Record):
    """An all-reduce of one size over one crew."""

    size_bytes: int
    time_us: float
    """Mean over ranks of back-to-back operations."""
    bus_bandwidth_gb_per_s: float
    """2(n-1)/n x size / time, GB = 1e9 bytes."""
    wrong_elements: int


class Arm(Record):
    """One side of an experiment."""

    value: str
    """Value of the variable in these processes."""
    rows: list[TouchRow] = Field(default_factory=list)
    missing: str | None = None
    """Why there are no rows, or not all."""


class Experiment(Record):
    """One variable, measured both ways."""

    name: Literal["p2p"]
    variable: str
    found: str | None
    """The value that the environment had before; null when it was not set."""
    ranks: int
    arms: list[Arm]
    """First as NCCL does it by itself, then with what the variable turns off."""
