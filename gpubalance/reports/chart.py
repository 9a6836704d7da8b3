"""A picture of a report, or the reason why it could not be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.checks.identity import device_name
from gpubalance.record.node import Device
from gpubalance.record.run import Run

MOST_ROWS = 32
"""Bars or curves of one picture; beyond it those that matter most are drawn, and the picture says so."""


@dataclass(frozen=True)
class Chart:
    """`svg` is made of our own words and numbers alone; `notes` and `missing` may hold text from outside."""

    title: str
    shows: str
    svg: str | None = None
    missing: str | None = None
    notes: tuple[str, ...] = ()


def column_name(device: Device, index: int) -> str:
    """The device as findings call it; a slot of the CPU, which may have many cores, by its place in the plan."""
    return f"CPU slot {index}" if device.kind == "cpu" else device_name(device)


def why_not(run: Run, workload: str) -> str:
    """Why a workload left nothing to draw."""
    for skip in run.skipped:
        if skip.what == workload:
            return f"{skip.reason} ({workload})"
    return f"{workload} gave no result"


def left_out(rows: Sequence[object], what: str) -> tuple[str, ...]:
    """A note where not all rows are drawn."""
    return (f"{MOST_ROWS} of {len(rows)} {what}",) if len(rows) > MOST_ROWS else ()
