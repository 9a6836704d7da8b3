"""Checks of single values that a user gave, whatever they are for."""

from __future__ import annotations

from gpubalance.errors import UsageError

LARGEST = 1e9
"""No count, batch or number of seconds that anybody means is larger."""


def positive(name: str, value: float | None) -> None:
    """Raise UsageError unless the value is None, or above 0 and finite."""
    if value is not None and not 0 < value <= LARGEST:
        raise UsageError(f"{name} must be above 0 and finite, not {value:g}")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise UsageError, with what there is to choose from, for anything else."""
    if value not in allowed:
        raise UsageError(f"{name} {value!r} is not known", f"choose from: {', '.join(allowed)}")
