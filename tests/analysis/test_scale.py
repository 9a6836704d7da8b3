"""Work grows in proportion to ranks, held without a clock: by the lines of Python that are executed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from tests.benchmarks.analysis_scale import large_run

Tracer = Callable[..., Any]


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Lines of gpubalance executed in the block; each turn of a loop counts, one within a line as well."""
    count, before = [0], sys.gettrace()

    def line(frame: Any, event: str, arg: Any) -> Tracer:
        count[0] += event == "line"
        return line

    def call(frame: Any, event: str, arg: Any) -> Tracer | None:
        return line if "gpubalance" in frame.f_code.co_filename else None

    sys.settrace(call)
    try:
        yield count
    finally:
        sys.settrace(before)


def lines_for(run: Run) -> int:
    with counted_lines() as count:
        judge(run)
    return count[0]


@pytest.mark.parametrize(
    ("share", "explained"),
    [(0.0, 32), (0.01, 32), (0.4, 32), (0.4, 1000)],
    ids=["healthy", "one in a hundred slow", "40 % slow", "40 % slow, the cause of each looked for"],
)
def test_twice_as_many_ranks_take_twice_as_many_lines(
    share: float, explained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four terms: 100, 200 and 400 ranks. A loop over ranks within a loop over ranks would make the steps unequal."""
    monkeypatch.setattr("gpubalance.analysis.causes.MOST_EXPLAINED", explained)
    first, second, third = (lines_for(large_run(r, slow=range(round(share * r)))) for r in (100, 200, 400))
    assert third - second == pytest.approx(2 * (second - first), rel=0.02)


def test_a_loop_within_a_loop_would_be_seen() -> None:
    """The counter counts turns of comprehensions: gpubalance's own code, run on N and 2 N values."""
    from gpubalance.checks.finding import listed

    def lines(numbers: int) -> int:
        with counted_lines() as count:
            listed(range(numbers), most=numbers)
        return count[0]

    assert lines(400) - lines(200) == 2 * (lines(200) - lines(100)) > 150
