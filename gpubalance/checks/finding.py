"""A finding: one judged fact, with what was seen, what it is held against, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """States of a check. `skip` is not applicable, `unknown` is applicable but not measured; neither is a pass."""

    PASS = "pass"  # noqa: S105  (a verdict, not a password)
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"


INJECTED = "none: this fault was injected on purpose"
"""The next step of a run that played one."""


@dataclass(frozen=True)
class Finding:
    """What one check found about one subject."""

    id: str
    state: State
    message: str
    """A sentence that stands alone."""
    subject: str | None = None
    """Full identity of the device or rank, never shortened."""
    observed: str | None = None
    expected: str | None = None
    evidence: tuple[str, ...] = ()
    next_step: str | None = None
    required: bool = False
    """An unknown of a required check leaves no verdict."""


def counted(number: int, noun: str) -> str:
    """1 error, 2 errors."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(share: float) -> str:
    """A share as percent with the digits that matter: 0.143 is 14.3 %, 0.2 is 20 %."""
    return f"{round(100 * share, 1) + 0.0:.1f}".removesuffix(".0") + " %"  # + 0.0 takes the sign off a zero


def listed(numbers: Sequence[int], most: int = 20) -> str:
    """1, 2, 7; of many the first ones and how many more there are."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(str(number) for number in numbers[:most]) + more
