"""What a run was held against when it ended, and what that showed: the baseline itself may be gone, or have grown, when
the run is read again.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record

HISTORY_IDS = frozenset({"comparable", "history", "change"})
"""Checks that look at earlier runs."""


class SavedFinding(Record):
    """A finding as it was made."""

    id: str
    state: Literal["pass", "info", "warn", "fail", "skip", "unknown"]
    message: str
    subject: str | None = None
    observed: str | None = None
    expected: str | None = None
    evidence: list[str] = Field(default_factory=list)
    next_step: str | None = None
    required: bool = False


class Against(Record):
    """A baseline, or an earlier run, that `--baseline` named."""

    base: str
    """As `--baseline` said it."""
    label: str
    """The same in words."""
    judged_at: str
    """UTC, ISO 8601."""
    runs: list[str] = Field(default_factory=list)
    """Their ids; none where there was no baseline, or none that could be read."""
    findings: list[SavedFinding] = Field(default_factory=list)
