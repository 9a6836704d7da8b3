"""The clocks of a machine over a run."""

from __future__ import annotations

import sys
import time

import pytest

from gpubalance.record.run import Clocks
from gpubalance.session.clocks import ClockMark, clock_mark


def test_each_clock_is_held_against_itself() -> None:
    begin, end = ClockMark(100.0, 1_000_000.0, 150.0), ClockMark(130.0, 1_000_093.0004, 192.5)
    assert begin.until(end) == Clocks(monotonic_s=30.0, wall_s=93.0, boottime_s=42.5)


@pytest.mark.parametrize(("begin", "end"), [(None, 5.0), (5.0, None)])
def test_a_clock_that_is_not_there_is_null(begin: float | None, end: float | None) -> None:
    assert ClockMark(1.0, 2.0, begin).until(ClockMark(2.0, 3.0, end)).boottime_s is None


def test_a_machine_that_stays_awake_has_clocks_that_agree() -> None:
    begin = clock_mark()
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    seen = begin.until(clock_mark())
    assert seen.monotonic_s >= 0.05
    if sys.platform == "linux":
        assert seen.boottime_s == pytest.approx(seen.monotonic_s, abs=0.1)
