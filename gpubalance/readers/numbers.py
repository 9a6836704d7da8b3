"""Numbers that anybody may have written: finite, not negative, of a size that something measures."""

from __future__ import annotations

import math
import re

from gpubalance.errors import UsageError
from gpubalance.record.untrusted import LARGEST

_PLAIN = re.compile(r"\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")

LARGEST_COUNT = 2**63


def measured(value: object, what: str) -> float:
    """The number, from text or JSON. Raises UsageError that says what is no number."""
    number = _number(value)
    if number is None or not math.isfinite(number) or not 0 <= number < LARGEST:
        raise UsageError(f"{what}: {_shown(value)} is no number that anything measures")
    return number


def count(value: object, what: str) -> int:
    """A whole number, likewise; 1e+06 is one."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else measured(value, what)
    if number != int(number) or not 0 <= number < LARGEST_COUNT:
        raise UsageError(f"{what}: {_shown(value)} is no count")
    return int(number)


def is_number(text: str) -> bool:
    """Whether the text could be a cell of a table: a number, one that is none (nan), or N/A."""
    return (
        _PLAIN.fullmatch(text) is not None
        or text.lower().lstrip("+-") in ("n/a", "nan", "inf", "infinity")
        or (text[:1] in "+-" and _PLAIN.fullmatch(text[1:]) is not None)
    )


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return float(value) if _PLAIN.fullmatch(value) is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        return None
    return float(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
