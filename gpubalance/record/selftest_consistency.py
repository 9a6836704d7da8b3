"""What the types of a selftest's record cannot say: that its parts fit together. Each pass must be a run that fits
together by itself, since it is judged as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.record.consistency import contradiction
from gpubalance.record.selftest import Selftest

ROWS = frozenset({
    "healthy", "compute", "backward", "sleep", "loader", "copies", "data", "hog", "rival", "transient", "memory",
    "context", "half", "fast", "all",
})  # fmt: skip
"""Kinds of row; a compute row has its size behind the name."""


def selftest_contradiction(record: Selftest) -> str | None:
    """The first place where a selftest contradicts itself, in words; None when everything fits."""
    checks = (_numbers, _rows, _passes)
    return next((text for check in checks for text in check(record)), None)


def _numbers(record: Selftest) -> Iterator[str]:
    if not record.plan.devices:
        yield "plan.devices is empty"
    if [played.number for played in record.played] != list(range(len(record.played))):
        yield "played is not numbered from 0"
    numbers = [each.number for each in record.passes]
    if numbers != sorted(set(numbers)) or any(not 0 <= number < len(record.played) for number in numbers):
        yield "passes are not some of those that were played, in order"


def _rows(record: Selftest) -> Iterator[str]:
    count = len(record.plan.devices)
    for played in record.played:
        kind, mark, size = played.row.partition("_")
        if kind not in ROWS or (mark and (kind != "compute" or not size.isdecimal())):
            yield f"played.{played.number}: no row is called {played.row!r:.40}"
        if any(not 0 <= rank < count for rank in played.ranks):
            yield f"played.{played.number} names a rank that the plan does not have"
        if bool(played.ranks) != (kind != "healthy") or len(set(played.ranks)) != len(played.ranks):
            yield f"played.{played.number}: its ranks do not fit its row"


def _passes(record: Selftest) -> Iterator[str]:
    for each in record.passes:
        problem = contradiction(record.run_of(each))
        if problem is not None:
            yield f"passes.{each.number}: {problem}"
        elif len(each.ddp.ranks) != len(record.plan.devices):
            yield f"passes.{each.number}: {len(each.ddp.ranks)} ranks on {len(record.plan.devices)} devices"
