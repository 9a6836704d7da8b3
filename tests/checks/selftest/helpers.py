"""Passes as a judge saw them, made by hand."""

from __future__ import annotations

from typing import Any

from gpubalance.checks.selftest.look import Named, Seen
from gpubalance.checks.selftest.rows import HEALTHY
from gpubalance.record.selftest import Played


def seen(*named: Named, **values: Any) -> Seen:
    """A pass of 100 ms compute and 120 ms steps in which these ranks are named."""
    base: dict[str, Any] = {
        "state": "fail" if named else "ok",
        "named": named,
        "majority_slow": 0,
        "score": 100.0,
        "slowest_ms": 100.0,
        "step_ms": 120.0,
        "healthy_ms": 100.0,
        "communication_bound": False,
        "cause_s": 9.0,
    }
    return Seen(**{**base, **values})


def slow(rank: int, cause: str | None = "device_work") -> Named:
    return Named(rank, "slow", cause)


def played(number: int, row: str, *ranks: int, again: bool = False) -> Played:
    faults = [] if row == HEALTHY else [f"compute:rank={rank},percent=20" for rank in ranks]
    return Played(number=number, row=row, title=row, faults=faults, ranks=list(ranks), again=again)


def healthy(number: int, *, again: bool = False) -> Played:
    return played(number, HEALTHY, again=again)
